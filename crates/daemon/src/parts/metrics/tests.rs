//! The text of a full page, and docs/reference/metrics.md.
//!
//! `WEIR_BLESS=1 cargo test -p weir-daemon metrics` writes the tables of metrics into the page of docs.

use super::contents::{ALL, page};
use super::figures::{Figures, ListFiles, Memory, Own};
use super::page::{Kind, Metric};
use super::process::Process;
use super::source::{Heartbeat, Source};
use crate::generations::still::Daemon;
use crate::requests::occupancy::{FlowOccupancy, Occupancy, TableOccupancy};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use weir_control::{AttacksListed, CardReport, LimitsTotal, ListName, Request, ShadowReport, Stats, Status};
use weir_engine::live::tap::{TapCounts, Taps};

fn of<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("it is one")
}

fn tally(packets: u64, rules: Value, reasons: Value) -> Value {
    let one = json!({
        "packets": packets, "bytes": 60 * packets, "passed": packets / 2, "dropped": packets / 4,
        "diverted": packets / 8, "replied": packets / 8, "sampled": 3, "rules": rules, "reasons": reasons,
        "tables": [{ "table": "bad", "packets": 7, "bytes": 420 }],
    });
    let mut both = one.clone();
    both["total"] = one;
    both
}

fn outcome(packets: u64) -> Value {
    let one =
        json!({ "packets": packets, "bytes": 60 * packets, "passed": packets, "dropped": packets, "diverted": 0 });
    let mut both = one.clone();
    both["total"] = one;
    both
}

fn interface(interface: &str, side: &str, rx_missed: Option<u64>) -> Value {
    json!({
        "interface": interface, "side": side, "rx_packets": 800, "rx_bytes": 48000, "tx_packets": 4, "tx_bytes": 240,
        "rx_missed": rx_missed, "rx_too_long": 1, "sampled": 3, "tx_dropped": {
            "tx-full": 1, "link-down": 2, "tx-too-long": 3, "tx-unsupported": 4, "tx-error": 5, "no-divert": 6,
        },
    })
}

fn rule(at: &str, packets: u64) -> Value {
    json!({ "at": at, "rule": "udp drop", "packets": packets, "bytes": 60 * packets })
}

fn stats() -> Stats {
    let rules =
        json!([rule("edge.weir:12", 200), rule("edge.weir:12", 20), rule("old.weir:3", 5), rule("old.weir:4", 0)]);
    let upstream = tally(800, rules, json!({ "no-match": 500, "edge.weir:12": 200, "(policies that are gone)": 100 }));
    let downstream =
        tally(16, json!([rule("edge.weir:12", 0), rule("edge.weir:20", 16)]), json!({ "edge.weir:20": 16 }));
    of(json!({
        "upstream": upstream, "downstream": downstream,
        "workers": [{ "worker": 0, "upstream": outcome(800), "downstream": outcome(16), "interfaces": [] }],
        "interfaces": [interface("eth0", "lower", Some(9)), interface("eth1", "upper", None)],
        "additions": { "added": 1, "updated": 2, "additions-overflow": 3, "table-full": 4, "protected": 5 },
        "tracked": { "pipeline": 14, "controller": 5 },
        "card": { "upstream": outcome(50), "interface": interface("card", "lower", None) },
    }))
}

fn status() -> Status {
    of(json!({
        "uptime_s": 100.5, "workers": 1, "access": [], "generation": 2, "posture": "high", "on_exit": "forward",
        "automatic": { "posture": "high", "in_place_of": null },
        "interfaces": [
            { "interface": "eth0", "side": "lower", "state": "up", "mtu": 1500, "longest_frame": null, "too_long": 0 },
            { "interface": "eth1", "side": "upper", "state": "no-link", "mtu": 1500, "longest_frame": null, "too_long": 0 },
        ],
        "taken_down": [], "activations": 4, "confirm_left_s": 59.5, "rollback_to": 1, "rollback_posture": null,
        "activating": { "generation": 3, "posture": null, "since_s": 0.25 }, "mixed": ["worker 0 decides by generation 1"],
        "state": { "folder": "/var/lib/weir", "error": "no space left on device", "unread": ["flows"] },
        "updates": {
            "watched": ["bad"], "applied": 6, "refused": 3,
            "last": [{ "table": "bad", "entries_before": 1, "entries": 2, "by": "watch", "ago_s": 10.25 }],
            "refusals": [{ "limits": "customers", "file": "customers.csv", "reason": "it is empty", "since_s": 5.0, "times": 3 }],
        },
        "generations": [
            { "id": 1, "policy": "/etc/weir/edge.weir", "postures": [], "rules": 2 },
            { "id": 2, "policy": "/etc/weir/\"new\".weir", "postures": ["high"], "rules": 2 },
        ],
    }))
}

fn occupancy() -> Occupancy {
    let table = |table: &str, size, refused| TableOccupancy { table: table.to_owned(), entries: 2, size, refused };
    Occupancy {
        tables: vec![table("bad", None, 0), table("blocked", Some(100), 7)],
        buckets: Some([12, 65536]),
        addresses: Some([77, 524_288]),
        limits: Some(LimitsTotal { limits: 10, exceeded: 3 }),
        flows: Some(FlowOccupancy { proven: 1, embryonic: 2, unproven: 3, closing: 4, size: 4096 }),
    }
}

fn action(number: u32, state: &str, dropped: Option<u64>) -> Value {
    json!({
        "number": number, "kind": "udp-flood", "action": "block", "rule": "192.0.2.66", "state": state, "age_s": 1.0,
        "dropped": dropped, "packets": 40, "proven": 2, "sample_attack": 9, "sample_attack_of": 10,
        "sample_legitimate": 0, "sample_legitimate_of": 10,
    })
}

fn attack(number: u32, is_over: bool, actions: Value) -> Value {
    let vector = |kind: &str, is_over: bool| {
        json!({
            "kind": kind, "age_s": 3.0, "seen_s": 0.5, "is_over": is_over, "pps": 1000.5, "peak_pps": 2000.0,
            "evidence": [], "actions": [1],
        })
    };
    json!({
        "attack": number, "victim": "198.51.100.7/32", "kind": "udp-flood", "age_s": 3.0, "seen_s": 0.5,
        "is_over": is_over, "peak_pps": 2000.0, "evidence": [], "actions": actions,
        "vectors": [vector("udp-flood", is_over), vector("syn-flood", true)],
    })
}

fn attacks() -> AttacksListed {
    of(json!({
        "mode": "act",
        "samples": {
            "one_in": 100, "seen": 5000, "lost": 6, "forged": 7, "directions": "both", "unjudged": 0, "windows": 50,
            "blind_windows": 4, "problem": "the policy does not sample",
        },
        "not_carried_out": { "table blocked is full": 2, "192.0.2.66 is protected": 3 },
        "events": {
            "written": 1, "write_failed": 2, "write_lost": 3, "called": 4, "call_failed": 5, "call_lost": 6,
            "exported": 7, "export_failed": 8, "export_lost": 9, "problems": [],
        },
        "attacks": [
            attack(1, true, json!([action(1, "quiet", Some(30))])),
            attack(2, false, json!([action(2, "active", Some(500)), action(3, "proposed", None)])),
            attack(3, false, json!([action(4, "collateral", None)])),
        ],
    }))
}

fn of_tables() -> CardReport {
    of(json!({
        "card": "wire card", "placement": "hybrid", "share": 0.5, "share_blocked": 0.9, "blocked_pps": 10.0, "entries": [],
        "tables": [{ "table": "blocked", "rule": null, "problem": "a rule in front accepts", "unseen": [] }],
        "places": [{
            "place": "table", "capacity": 1000, "entries": 3, "update_ms": 1.0, "updates": 8, "refused": 1,
            "packets": 50, "bytes": 3000,
        }],
    }))
}

fn hybrid() -> CardReport {
    let share = json!({ "frames": 0, "share": 0.0 });
    of(json!({
        "card": "wire", "profile": "p", "epoch": 3, "changes": 4, "reopened": 1, "sealed": true, "alone": "busy",
        "problem": "no answer", "flag_bits": 0, "body_bytes": 0, "trailer_bytes": 0, "lookups": [], "rules": [],
        "packets": 0, "bytes": 0, "share": 0.0, "unsealed": 0,
        "frames": { "answered": share, "alone": share, "control": share, "unsealed": share },
    }))
}

fn shadow() -> ShadowReport {
    of(json!({
        "policy": "/etc/weir/new.weir", "posture": null, "every": 10, "seconds": 9.0, "idle_s": 0.1,
        "decided": 5000, "lost": 3,
        "packets": 500, "changed": 9, "newly_passed": 4, "newly_dropped": 3,
        "by_rule": [], "by_source": [], "more_sources": 0
    }))
}

fn figures() -> Figures {
    let list = |list, modified_s, missing| ListFiles { list, modified_s, missing };
    Figures {
        engine: "xdp",
        polls: false,
        now_s: 1_800_000_000.3,
        status: status(),
        stats: stats(),
        occupancy: occupancy(),
        rules: [vec!["edge.weir:9".to_owned(), "edge.weir:12".to_owned()], vec!["edge.weir:20".to_owned()]],
        lists: vec![
            list(ListName::Table("bad".to_owned()), Some(1_799_990_000.0), 0),
            list(ListName::Limits("customers".to_owned()), None, 1),
        ],
        attacks: Some(attacks()),
        card: Some(of_tables()),
        taps: (2, TapCounts { matched: 90, copied: 70, over: 8, excluded: 5, lost: 7 }),
        shadow: Some(shadow()),
        process: Process {
            cpu_s: 1.25,
            start_s: 1_799_999_899.5,
            virtual_bytes: 4096,
            resident_bytes: 2048,
            open_fds: 20,
            max_fds: Some(1024),
            threads: 12,
            workers: vec![(0, 0.5)],
        },
        own: Own { main_loop_age_s: 0.03, pages: 1, page_s: 0.002, crowded_out: 0 },
    }
}

#[test]
fn every_line_of_a_full_page() {
    insta::assert_snapshot!(page(&figures(), &mut Memory::default()).text());
}

#[test]
fn a_page_names_neither_victims_nor_sources() {
    let text = page(&figures(), &mut Memory::default()).text();
    let listed = serde_json::to_string(&attacks()).expect("it is JSON");
    for address in ["198.51.100.7", "192.0.2.66"] {
        assert!(listed.contains(address) && !text.contains(address), "{address}");
    }
}

/// The names and labels on a page.
fn found(text: &str) -> BTreeSet<(String, Vec<String>)> {
    let sample = |line: &str| {
        let (name, labels) = line
            .rsplit_once(' ')
            .expect("a value")
            .0
            .split_once('{')
            .unwrap_or_else(|| (line.rsplit_once(' ').expect("a value").0, ""));
        let labels = labels.split("=\"").filter_map(|part| part.rsplit([',', '{', '"']).next());
        let labels = labels.filter(|label| !label.is_empty() && *label != "}").map(str::to_owned).collect();
        (name.to_owned(), labels)
    };
    text.lines().filter(|line| !line.starts_with('#')).map(sample).collect()
}

#[test]
fn every_declared_metric_is_on_a_page_with_its_labels() {
    let mut memory = Memory::default();
    let of_a_hybrid_card = Figures { card: Some(hybrid()), ..figures() };
    let found: BTreeSet<_> =
        [figures(), of_a_hybrid_card].iter().flat_map(|figures| found(&page(figures, &mut memory).text())).collect();
    let labels = |metric: &Metric| metric.labels.iter().map(|&label| label.to_owned()).collect::<Vec<_>>();
    let declared: BTreeSet<_> = all().map(|metric| (metric.name(), labels(metric))).collect();
    assert_eq!(found, declared);
}

#[test]
fn a_bare_weir_has_no_metrics_of_what_it_does_not_do() {
    let bare = Figures {
        occupancy: Occupancy::default(),
        lists: Vec::new(),
        attacks: None,
        card: None,
        shadow: None,
        status: Status { confirm_left_s: None, state: None, ..status() },
        stats: Stats { card: None, tracked: None, ..stats() },
        ..figures()
    };
    let text = page(&bare, &mut Memory::default()).text();
    for absent in [
        "weir_table_entries",
        "weir_flows",
        "weir_list_file",
        "weir_attack",
        "weir_card",
        "weir_trial_left",
        "weir_state",
        "weir_shadow",
        "weir_p4",
    ] {
        assert!(!text.contains(absent), "{absent}: {text}");
    }
    assert!(
        text.contains("weir_trial 0\n") && text.contains("weir_list_updates_total{result=\"refused\"} 3\n"),
        "{text}"
    );
}

#[test]
fn counters_do_not_fall_when_attacks_and_rules_are_forgotten() {
    let (mut memory, mut figures) = (Memory::default(), figures());
    let value = |figures: &Figures, memory: &mut Memory, sample: &str| -> u64 {
        let text = page(figures, memory).text();
        let line = text.lines().find(|line| line.starts_with(sample)).unwrap_or_else(|| panic!("{sample}: {text}"));
        line.rsplit_once(' ').expect("a value").1.parse().expect("a count")
    };
    let samples = [
        ("weir_attack_dropped_packets_total ", 530),
        ("weir_attack_sampled_packets_total ", 160),
        ("weir_attack_sampled_proven_packets_total ", 8),
        ("weir_attacks_detected_total ", 3),
        ("weir_rule_packets_total{direction=\"upstream\",rule=\"edge.weir:12\"} ", 220),
    ];
    for (sample, expected) in samples {
        assert_eq!(value(&figures, &mut memory, sample), expected, "{sample}");
    }
    figures.attacks.as_mut().expect("mitigation").attacks.clear();
    figures.stats.upstream.total.rules.remove(1);
    for (sample, expected) in samples {
        assert_eq!(value(&figures, &mut memory, sample), expected, "{sample}");
    }
}

#[test]
fn a_source_reads_a_daemon_and_ends_with_it() {
    let daemon = Daemon::new(
        "table blocked { type ipv4; dynamic; size 10 }\nupstream {\n ip saddr @blocked drop\n accept\n}\n\
         downstream { accept }\nposture high { upstream { drop } downstream { accept } }\n",
    );
    daemon.ask(Request::Posture { name: Some("high".to_owned()) });
    let mut source = Source::new(&daemon.door, Taps::of_workers(), ("xdp", false), Arc::new(Heartbeat::default()));
    let (text, serves) = source.page(3).expect("it runs");
    assert!(serves >= Duration::from_secs(1), "{serves:?}");
    for line in [
        "weir_activations_total 2",
        "weir_table_entries{table=\"blocked\"} 0",
        "weir_table_max_entries{table=\"blocked\"} 10",
        "weir_rule_packets_total{direction=\"upstream\",rule=\"first.weir:3\"} 0",
        "weir_rule_packets_total{direction=\"downstream\",rule=\"first.weir:7\"} 0",
        "weir_metrics_closed_connections_total 3",
        "weir_metrics_pages_total 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}: {text}");
    }
    assert!(text.contains("posture=\"high\",automatic=\"false\"} 1"), "{text}");
    assert!(
        !text.contains("direction=\"downstream\",rule=\"first.weir:3\""),
        "the rule is in the other direction: {text}"
    );
    assert!(source.page(3).expect("it runs").0.contains("weir_metrics_pages_total 2\n"));
    drop(daemon);
    assert!(source.page(3).expect_err("it has ended").to_string().contains("about to end"));
}

fn all() -> impl Iterator<Item = &'static Metric> {
    ALL.into_iter().flat_map(|(_, metrics)| metrics.iter().copied())
}

/// The unit of a metric, by its name.
fn unit(metric: &Metric) -> &'static str {
    let name = metric.name();
    let has = |word: &str| name.split('_').any(|part| part == word);
    match () {
        () if has("timestamp") || has("start") => "Unix time in seconds",
        () if name.contains("per_second") => "packets a second",
        () if has("seconds") => "seconds",
        () if has("bytes") => "bytes",
        () if has("packets") => "packets",
        () => "",
    }
}

#[test]
fn the_reference_lists_every_metric() {
    let mut tables = String::new();
    for (heading, metrics) in ALL {
        writeln!(
            tables,
            "\n## {heading}\n\n| metric | type | labels | unit | meaning |\n| --- | --- | --- | --- | --- |"
        )
        .expect("a string takes all");
        for metric in metrics {
            let kind = if metric.kind == Kind::Counter { "counter" } else { "gauge" };
            let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
            let row = format!(
                "| `{}` | {kind} | {} | {} | {} |",
                metric.name(),
                labels.join(", "),
                unit(metric),
                metric.help
            );
            writeln!(tables, "{}", row.replace("|  |", "| |").replace("|  |", "| |")).expect("a string takes all");
        }
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/metrics.md");
    let before = std::fs::read_to_string(&path).expect("the page is there");
    let (text, _) = before.split_once("\n## ").expect("it has tables");
    let page = format!("{text}{tables}");
    if std::env::var_os("WEIR_BLESS").is_some() {
        std::fs::write(&path, &page).expect("it can be written");
    } else {
        assert!(before == page, "docs/reference/metrics.md has other metrics; WEIR_BLESS=1 writes them");
    }
}
