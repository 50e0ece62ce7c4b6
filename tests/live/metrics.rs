//! `weir run --metrics`: what a scrape finds while packets pass is what `weir ctl stats` says.

#[path = "metrics/prometheus.rs"]
mod prometheus;

use crate::device_under_test::{Running, Setup, wait_until};
use crate::hosts::{Host, Hosts};
use crate::put;
use crate::traffic::{flows, frames, send};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use weir_control::{Request, RuleCount, Stats, Tally};

/// Has something of each kind that has metrics, except a card.
const POLICY: &str = "
table bad { type ipv4; file \"bad.txt\" }
table blocked { type ipv4; dynamic; size 100 }
limits customers { elements = { 10.20.0.0/16 : 1000000pps burst 1000000 }; log exceeded }
tracking { size 4096 }
slot attacks { size 8 }
upstream {
  sample 1/1
  ip saddr @bad drop
  ip saddr @blocked drop
  slot attacks
  udp dport 53 counter drop
  ip saddr limit @customers
  tcp track
  accept
}
downstream { sample 1/1; tcp track; accept }
";
const OTHER_POLICY: &str = "upstream {\n  udp dport 53 drop\n  accept\n}\ndownstream { accept }\n";
const PORT: u16 = 9464;

fn metrics_at(address: &str) -> [String; 2] {
    ["--metrics".to_owned(), address.to_owned()]
}

/// Asks over HTTP in the namespace of a host. Returns the status and the body.
fn get(host: &Host, port: u16, path: &str) -> Option<(u16, String)> {
    let request = format!("GET {path} HTTP/1.0\r\n\r\n");
    let answer = host.run(move || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    });
    let answer = answer.ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
}

fn scrape(host: &Host) -> String {
    let (status, page) = get(host, PORT, "/metrics").expect("it answers");
    assert_eq!(status, 200, "{page}");
    page
}

/// The samples of a page: values by name and labels.
fn samples(page: &str) -> HashMap<&str, f64> {
    let sample = |line: &'_ str| -> Option<(usize, f64)> {
        let (name, value) = line.rsplit_once(' ')?;
        Some((name.len(), value.parse().ok()?))
    };
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (length, value) = sample(line).unwrap_or_else(|| panic!("no sample: {line}"));
            (&line[..length], value)
        })
        .collect()
}

/// What a page must say about a direction, as lines.
fn of_direction(lines: &mut String, direction: &str, total: &Tally) {
    let mut line = |name: &str, labels: &str, value: u64| {
        writeln!(lines, "{name}{{direction=\"{direction}\"{labels}}} {value}").expect("a string takes all");
    };
    let verdicts =
        [("accept", total.passed), ("drop", total.dropped), ("divert", total.diverted), ("reply", total.replied)];
    verdicts.iter().for_each(|(verdict, n)| line("weir_packets_total", &format!(",verdict=\"{verdict}\""), *n));
    line("weir_bytes_total", "", total.bytes);
    line("weir_sampled_packets_total", "", total.sampled);
    let mut rules: HashMap<&str, [u64; 2]> = HashMap::new();
    for RuleCount { at, packets, bytes, .. } in total.rules.iter().filter(|rule| rule.packets > 0) {
        let sum = rules.entry(at).or_default();
        *sum = [sum[0] + packets, sum[1] + bytes];
    }
    for (at, [packets, bytes]) in &rules {
        line("weir_rule_packets_total", &format!(",rule=\"{at}\""), *packets);
        line("weir_rule_bytes_total", &format!(",rule=\"{at}\""), *bytes);
    }
    let by_rules = total.reasons.iter().filter(|(reason, _)| reason.contains(':')).map(|(_, packets)| packets).sum();
    line("weir_reason_packets_total", ",reason=\"rule\"", by_rules);
    for (reason, packets) in total.reasons.iter().filter(|(reason, _)| !reason.contains(':')) {
        line("weir_reason_packets_total", &format!(",reason=\"{reason}\""), *packets);
    }
    for table in &total.tables {
        line("weir_table_packets_total", &format!(",table=\"{}\"", table.table), table.packets);
    }
}

/// What a page must say about stats, as lines.
fn expected(stats: &Stats) -> String {
    let mut lines = String::new();
    of_direction(&mut lines, "upstream", &stats.upstream.total);
    of_direction(&mut lines, "downstream", &stats.downstream.total);
    for port in &stats.interfaces {
        let of = format!("{{interface=\"{}\",side=\"{}\"", port.interface, port.side);
        for (name, value) in [
            ("receive_packets_total", port.rx_packets),
            ("receive_bytes_total", port.rx_bytes),
            ("transmit_packets_total", port.tx_packets),
            ("transmit_bytes_total", port.tx_bytes),
        ] {
            writeln!(lines, "weir_interface_{name}{of}}} {value}").expect("a string takes all");
        }
        let lost = [("tx-full", port.tx_dropped.tx_full), ("link-down", port.tx_dropped.link_down)];
        for (reason, value) in lost {
            writeln!(lines, "weir_interface_transmit_lost_packets_total{of},reason=\"{reason}\"}} {value}")
                .expect("a string takes all");
        }
    }
    for worker in &stats.workers {
        let packets = worker.upstream.total.packets;
        writeln!(lines, "weir_worker_packets_total{{worker=\"{}\",direction=\"upstream\"}} {packets}", worker.worker)
            .expect("a string takes all");
    }
    lines
}

/// Scrapes until a page has the counts of all packets, and compares it with the stats.
#[track_caller]
fn compare(hosts: &Hosts, running: &Running) -> String {
    let stats = running.settled();
    let expected = expected(&stats);
    let mut page = String::new();
    // A page may be a second old.
    wait_until("a page has all packets", || {
        page = scrape(&hosts.weir);
        let of = |labels: &str| samples(&page).get(labels).copied().unwrap_or(-1.0) as u64;
        of("weir_bytes_total{direction=\"upstream\"}") == stats.upstream.total.bytes
            && of("weir_bytes_total{direction=\"downstream\"}") == stats.downstream.total.bytes
    });
    let found = samples(&page);
    let missing: Vec<&str> = expected
        .lines()
        .filter(|line| {
            let (labels, value) = line.rsplit_once(' ').expect("a value");
            found.get(labels) != Some(&value.parse().expect("a number"))
        })
        .collect();
    assert!(missing.is_empty(), "{missing:#?}\n{page}");
    page
}

/// Packets of each kind of verdict and reason, from both sides.
fn traffic(hosts: &Hosts) {
    let mut upstream = flows(7, 3, 53);
    upstream.extend(flows(5, 2, 9));
    let one = |saddr: &str| format!("eth / ip saddr={saddr} daddr=10.9.0.2 / udp sport=7 dport=9 / payload 20\n");
    upstream.extend(frames(&(one("192.0.2.7") + &one("192.0.2.8") + &one("10.20.1.1"))));
    upstream.extend(frames("eth / ip saddr=10.9.0.1 daddr=10.9.0.2 / tcp sport=1 dport=80 flags=syn\n"));
    send(&hosts.client, "c", &upstream);
    send(&hosts.server, "s", &frames("eth / ip saddr=10.9.0.2 daddr=10.9.0.1 / udp sport=9 dport=7 / payload 30\n"));
}

fn started(engine: &str, hosts: &Hosts, folder: &Path) -> Running {
    put(folder, "edge.weir", POLICY);
    put(folder, "other.weir", OTHER_POLICY);
    put(folder, "bad.txt", "192.0.2.7\n192.0.2.8\n");
    hosts.weir.ip("link set dev lo up");
    let state = folder.join("state");
    let state = state.to_str().expect("a path");
    let more = [
        "--mitigate",
        "act",
        "--inside",
        "10.9.0.2/32",
        "--mitigate-table",
        "blocked",
        "--confirm",
        "1h",
        "--state",
        state,
    ];
    let more = more.map(str::to_owned).into_iter().chain(metrics_at(&format!("127.0.0.1:{PORT}"))).collect();
    Running::start_as(&hosts.weir, folder, "edge.weir", &Setup { more, ..Setup::new(engine) })
}

each_kind!(a_page_says_what_ctl_stats_says_over_generations);
fn a_page_says_what_ctl_stats_says_over_generations(engine: &str, hosts: &Hosts, folder: &Path) {
    let running = started(engine, hosts, folder);
    assert!(running.log().contains("weir: metrics at http://127.0.0.1:9464/metrics"), "{}", running.log());
    traffic(hosts);
    running
        .wait_for("all are decided", |stats| stats.upstream.total.packets >= 35 && stats.downstream.total.packets >= 1);
    let page = compare(hosts, &running);
    let found = samples(&page);
    for (sample, value) in [
        ("weir_table_entries{table=\"bad\"}", 2.0),
        ("weir_table_max_entries{table=\"blocked\"}", 100.0),
        ("weir_table_packets_total{direction=\"upstream\",table=\"bad\"}", 2.0),
        ("weir_rule_packets_total{direction=\"upstream\",rule=\"edge.weir:12\"}", 21.0),
        ("weir_flows{class=\"embryonic\"}", 1.0),
        ("weir_interface_up{interface=\"lower\",side=\"lower\"}", 1.0),
        ("weir_mitigation_mode{mode=\"act\"}", 1.0),
        ("weir_trial", 1.0),
        ("weir_list_files_missing{kind=\"table\",list=\"bad\"}", 0.0),
        ("weir_state_problem", 0.0),
        ("weir_metrics_left_out_samples", 0.0),
    ] {
        assert_eq!(found.get(sample), Some(&value), "{engine}: {sample}: {page}");
    }
    assert!(found["weir_flows{class=\"unproven\"}"] >= 5.0 && found["weir_main_loop_age_seconds"] < 30.0, "{page}");
    let is_user = engine == "afpacket";
    assert_eq!(found.contains_key("weir_worker_cpu_seconds_total{worker=\"0\"}"), is_user, "{engine}: {page}");
    // Another policy counts on, and what the first one has counted stays.
    let other = running.load(&folder.join("other.weir"));
    running.ask(&Request::Confirm).expect("it is on trial");
    running.ask(&Request::Activate { generation: other, confirm_s: None }).expect("it is ready");
    traffic(hosts);
    running.wait_for("all are decided", |stats| stats.upstream.total.packets >= 70);
    let page = compare(hosts, &running);
    let found = samples(&page);
    for (sample, value) in [
        ("weir_rule_packets_total{direction=\"upstream\",rule=\"edge.weir:12\"}", 21.0),
        ("weir_rule_packets_total{direction=\"upstream\",rule=\"other.weir:2\"}", 21.0),
        ("weir_activations_total", 2.0),
        ("weir_generation", 2.0),
        ("weir_trial", 0.0),
    ] {
        assert_eq!(found.get(sample), Some(&value), "{engine}: {sample}: {page}");
    }
    assert!(!page.contains("weir_flows{") && !page.contains("weir_trial_left"), "the policy does not track: {page}");
    assert_eq!(get(&hosts.weir, PORT, "/").map(|(status, _)| status), Some(404));
    assert_eq!(running.stop(), 0);
    assert!(get(&hosts.weir, PORT, "/metrics").is_none(), "nobody listens any more");
}

#[test]
fn addresses_that_others_reach_or_use_are_refused() {
    let (hosts, folder) = (Hosts::new(), tempfile::tempdir().expect("a temporary folder"));
    let folder = folder.path();
    put(folder, "all.weir", "upstream { accept }\ndownstream { accept }\n");
    hosts.weir.ip("link set dev lo up");
    let setup = |address: &str| Setup { more: metrics_at(address).to_vec(), ..Setup::new("afpacket") };
    let (code, said) = Running::refused_as(&hosts.weir, folder, "all.weir", &setup("0.0.0.0:9464"));
    assert!(code == 2 && said.contains("--metrics 0.0.0.0:9464: other machines reach this address"), "{code}: {said}");
    let (code, said) = Running::refused_as(&hosts.weir, folder, "all.weir", &setup("localhost"));
    assert!(code == 2 && said.contains("--metrics"), "{code}: {said}");
    let taken = hosts.weir.run(|| std::net::TcpListener::bind(("127.0.0.1", PORT)).expect("it is free"));
    let (code, said) = Running::refused_as(&hosts.weir, folder, "all.weir", &setup("127.0.0.1:9464"));
    assert!(code == 1 && said.contains("--metrics 127.0.0.1:9464: Address already in use"), "{code}: {said}");
    assert!(!fs::exists(folder.join("control.sock")).expect("the folder is there"), "{said}");
    drop(taken);
}
