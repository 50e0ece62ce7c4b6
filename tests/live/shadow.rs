//! `weir ctl shadow`: a second policy judges live packets as `weir diff` judges a capture of them, and changes nothing.

use crate::captures::Capture;
use crate::check_account;
use crate::device_under_test::Running;
use crate::hosts::Hosts;
use crate::put;
use crate::traffic::{frames, send};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use weir_control::{GivenEntries, Request, ShadowOperation, ShadowReport, ShadowShown, TableOperation};

const ACTIVE: &str = "slot attacks { size 4 }\nupstream {\n  slot attacks\n  tcp dport 443 drop\n  udp dport 53 drop\n  \
                      accept\n}\ndownstream { accept }\n";
/// The same rules on other lines.
const MOVED: &str = "slot attacks { size 4 }\n\n\nupstream {\n  slot attacks\n  tcp dport 443 drop\n  udp dport 53 drop\n  \
                     accept\n}\ndownstream { accept }\n";
const SHADOW: &str = "slot attacks { size 4 }\nupstream {\n  slot attacks\n  udp dport 53 accept\n  udp dport 54 drop\n  \
                      accept\n}\ndownstream { accept }\n";

fn shadow(running: &Running, operation: ShadowOperation) -> Option<ShadowReport> {
    let value = running.ask(&Request::Shadow { operation }).unwrap_or_else(|failure| panic!("{failure}"));
    weir_control::read::<ShadowShown>(value).expect("it is one").shadow
}

/// Loads the shadow.
fn load(running: &Running, folder: &Path, every: u32) -> ShadowReport {
    let operation = ShadowOperation::Load { policy: folder.join("shadow.weir"), every, posture: None };
    shadow(running, operation).expect("it was loaded")
}

/// The report of the shadow when it has judged all packets so far.
fn judged(running: &Running, least: u64) -> ShadowReport {
    let mut report = None;
    running.wait_until("all are judged", |running| {
        report = shadow(running, ShadowOperation::Show);
        report.as_ref().is_some_and(|report| report.comparison.packets >= least)
    });
    report.expect("there is one")
}

fn to_ports(ports: &[u16], saddr: &str) -> Vec<Vec<u8>> {
    let frame = |port: &u16| {
        format!("eth / ip saddr={saddr} daddr=10.9.0.2 / udp sport=9 dport={port} / payload {port} fill=7\n")
    };
    frames(&ports.iter().map(frame).collect::<String>())
}

/// What `weir diff` says about a capture.
fn diff(folder: &Path, capture: &str) -> Value {
    let mut weir = Command::new(env!("CARGO_BIN_EXE_weir"));
    let ran = weir.args(["diff", "edge.weir", "shadow.weir", "--json", "--in"]);
    let ran = ran.arg(capture).current_dir(folder).output().expect("the program was built");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    serde_json::from_slice(&ran.stdout).expect("it is JSON")
}

each_engine_and_host!(a_shadow_finds_what_diff_finds_and_changes_nothing);
fn a_shadow_finds_what_diff_finds_and_changes_nothing(engine: &str, hosts: &Hosts, folder: &Path) {
    put(folder, "edge.weir", ACTIVE);
    put(folder, "shadow.weir", SHADOW);
    let running = Running::start(&hosts.weir, folder, "edge.weir", engine, 1);
    assert_eq!(shadow(&running, ShadowOperation::Show), None);
    put_rule(&running, "udp dport 55 drop");
    let begun = load(&running, folder, 1);
    assert_eq!((begun.every, begun.comparison.changed, begun.failed), (1, 0, None));

    let ports = [53, 54, 55, 56, 53];
    let packets = [to_ports(&ports, "10.9.0.1"), to_ports(&ports[..2], "10.9.0.7")].concat();
    let seen = folder.join("seen.pcapng").display().to_string();
    let capture = Capture::begin(&running, &["--where", "udp", "--count", "7", "-o", &seen]);
    send(&hosts.client, "c", &packets);
    capture.ends();
    let stats = running.wait_for("all are decided", |stats| stats.upstream.total.packets >= 7);
    let report = judged(&running, stats.upstream.total.packets);
    assert_eq!((report.lost, report.failed.as_deref()), (0, None), "{report:?}");
    assert!(report.idle_s.is_some() && report.decided >= report.comparison.packets, "{report:?}");

    let expected = diff(folder, "seen.pcapng");
    let found = serde_json::to_value(&report.comparison).expect("it is JSON");
    for field in ["changed", "newly_passed", "newly_dropped", "by_rule", "by_source", "more_sources"] {
        assert_eq!(found[field], expected[field], "{engine}, {field}: {found} {expected}");
    }
    assert_eq!(expected["changed"], 5, "{expected}");
    let drops = |stats: &weir_control::Stats| stats.upstream.total.dropped;
    assert_eq!(drops(&running.settled()), 4, "{engine}: the active policy decides, with its slot");

    // The rules are named as they stood when they decided.
    put(folder, "edge.weir", MOVED);
    let second = running.load(&folder.join("edge.weir"));
    running.ask(&Request::Activate { generation: second, confirm_s: None }).expect("it is ready");
    send(&hosts.client, "c", &to_ports(&[53], "10.9.0.1"));
    let stats = running.wait_for("it is decided", |stats| drops(stats) >= 5);
    let report = judged(&running, stats.upstream.total.packets);
    let by: Vec<_> = report.comparison.by_rule.iter().map(|change| (&*change.old.reason, change.packets)).collect();
    assert_eq!(by, [("edge.weir:5", 3), ("edge.weir:6", 2), ("edge.weir:7", 1)], "{engine}");

    let last = shadow(&running, ShadowOperation::End).expect("it is shown for the last time");
    assert_eq!(last.comparison.changed, 6, "{engine}");
    assert_eq!(shadow(&running, ShadowOperation::Show), None);
    check_account(&running.settled());
    assert_eq!(running.stop(), 0);
}

fn put_rule(running: &Running, rule: &str) {
    let operation = weir_control::SlotOperation::Add { rule: rule.to_owned(), timeout_ms: None };
    running.ask(&Request::Slot { slot: "attacks".to_owned(), operation }).expect("there is room");
}

const TABLES: &str = "table bad { type ipv4; dynamic; size 16; timeout 1h; elements = { 10.9.0.50 } }\n\
                      table other { type ipv4; dynamic; size 16; elements = { 10.9.0.51 } }\n\
                      upstream { ip saddr @bad drop; ip saddr @other drop; accept }\ndownstream { accept }\n";
/// One table has another name, so it begins as declared.
const SHADOW_TABLES: &str = "table bad { type ipv4; dynamic; size 16; timeout 1h; elements = { 10.9.0.50 } }\n\
                             table mine { type ipv4; dynamic; size 16; elements = { 10.9.0.51 } }\n\
                             upstream { ip saddr @bad drop; ip saddr @mine drop; accept }\ndownstream { accept }\n";

fn change(running: &Running, table: &str, operation: TableOperation) {
    running.ask(&Request::Table { table: table.to_owned(), operation }).expect("there is room");
}

fn entry(entry: &str) -> GivenEntries {
    GivenEntries { entries: vec![entry.to_owned()], ..GivenEntries::default() }
}

each_kind!(tables_of_a_shadow_begin_with_those_of_the_policy_and_follow_their_changes);
fn tables_of_a_shadow_begin_with_those_of_the_policy_and_follow_their_changes(
    engine: &str,
    hosts: &Hosts,
    folder: &Path,
) {
    put(folder, "edge.weir", TABLES);
    put(folder, "shadow.weir", SHADOW_TABLES);
    let running = Running::start(&hosts.weir, folder, "edge.weir", engine, 1);
    change(&running, "bad", TableOperation::Add(entry("10.9.0.60")));
    change(&running, "bad", TableOperation::Del(entry("10.9.0.50")));
    change(&running, "other", TableOperation::Add(entry("10.9.0.61")));
    let begun = load(&running, folder, 1);
    assert_eq!((&begun.tables[..], begun.table_changes_missed), (&["bad".to_owned()][..], 0), "{begun:?}");
    let all = |packets: &[&str]| packets.iter().flat_map(|saddr| to_ports(&[9], saddr)).collect::<Vec<_>>();
    let changed = |packets: &[&str]| {
        let before = running.settled().upstream.total.packets;
        send(&hosts.client, "c", &all(packets));
        let least = before + packets.len() as u64;
        let stats = running.wait_for("all are decided", |stats| stats.upstream.total.packets >= least);
        let sources = judged(&running, stats.upstream.total.packets).comparison.by_source;
        sources.into_iter().map(|change| (change.source.to_string(), change.newly_passed)).collect::<Vec<_>>()
    };
    let expected = [("10.9.0.61".to_owned(), 1)];
    assert_eq!(changed(&["10.9.0.60", "10.9.0.50", "10.9.0.51", "10.9.0.61", "10.9.0.62"]), expected, "{engine}");
    change(&running, "bad", TableOperation::Del(entry("10.9.0.60")));
    change(&running, "bad", TableOperation::Add(entry("10.9.0.62")));
    change(&running, "other", TableOperation::Add(entry("10.9.0.63")));
    assert_eq!(changed(&["10.9.0.60", "10.9.0.62"]), expected, "{engine}: changes are followed");
    change(&running, "bad", TableOperation::Flush);
    assert_eq!(changed(&["10.9.0.62"]), expected, "{engine}");
    let last = shadow(&running, ShadowOperation::End).expect("it is shown for the last time");
    assert_eq!((last.table_changes_missed, last.failed), (0, None), "{engine}");
    assert_eq!(running.stop(), 0);
}

each_kind!(a_shadow_of_some_packets_says_of_how_many);
fn a_shadow_of_some_packets_says_of_how_many(engine: &str, hosts: &Hosts, folder: &Path) {
    put(folder, "edge.weir", ACTIVE);
    put(folder, "shadow.weir", SHADOW);
    put(folder, "wrong.weir", "upstream { udp sprot 53 drop }\n");
    let running = Running::start(&hosts.weir, folder, "edge.weir", engine, 1);
    load(&running, folder, 10);
    send(&hosts.client, "c", &to_ports(&[53; 2000], "10.9.0.1"));
    let stats = running.wait_for("all are decided", |stats| stats.upstream.total.packets >= 2000);
    let mut report = None;
    running.wait_until("the last copy is judged", |running| {
        let before = report.take();
        report = shadow(running, ShadowOperation::Show);
        let judged = |report: &Option<ShadowReport>| report.as_ref().map(|report| report.comparison.packets);
        report.as_ref().is_some_and(|report| report.decided >= stats.upstream.total.packets)
            && judged(&before) == judged(&report)
    });
    let report = report.expect("there is one");
    let judged = report.comparison.changed + report.lost;
    assert!((100..400).contains(&judged), "{engine}: about one in ten of 2000: {report:?}");

    let wrong = ShadowOperation::Load { policy: folder.join("wrong.weir"), every: 1, posture: None };
    let refused = running.ask(&Request::Shadow { operation: wrong }).expect_err("it does not compile").to_string();
    assert!(refused.contains("sprot"), "{refused}");
    let after = shadow(&running, ShadowOperation::Show).expect("the shadow before it judges on");
    assert_eq!(after.comparison.changed, report.comparison.changed);
    assert_eq!(running.stop(), 0);
}
