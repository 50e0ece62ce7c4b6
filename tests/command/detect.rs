//! `weir detect` over the attacks of examples/edge: what it finds, what it would do, and what that would have hit.

use crate::weir::Sandbox;
use serde_json::Value;
use std::fs;
use std::path::Path;

/// The victim of all four attacks in the capture. Everything else in it is legitimate.
const VICTIM: [u8; 4] = [10, 10, 10, 10];
pub const PCAP_HEADER_BYTES: usize = 24;
pub const RECORD_HEADER_BYTES: usize = 16;

pub fn example() -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/edge/attack.pcap");
    fs::read(path).expect("the example is there")
}

/// The records of a little-endian pcap file: microseconds since 1970 and the frame.
pub fn records(pcap: &[u8]) -> Vec<(u64, &[u8])> {
    let number = |at: usize| u32::from_le_bytes(pcap[at..at + 4].try_into().expect("four bytes"));
    let (mut at, mut records) = (PCAP_HEADER_BYTES, Vec::new());
    while at < pcap.len() {
        let (seconds, micros, length) = (number(at), number(at + 4), number(at + 8) as usize);
        at += RECORD_HEADER_BYTES;
        records.push((u64::from(seconds) * 1_000_000 + u64::from(micros), &pcap[at..at + length]));
        at += length;
    }
    records
}

/// Without an IPv4 header, a frame of this capture belongs to an attack too.
pub fn is_attack(frame: &[u8]) -> bool {
    let ether_type = &frame[12..14];
    ether_type == [0x86, 0xdd] || ether_type == [8, 0] && frame[30..34] == VICTIM
}

pub fn labels(pcap: &[u8]) -> String {
    let label =
        |(number, (_, frame)): (usize, &(u64, &[u8]))| format!("{},{}\n", number + 1, u8::from(is_attack(frame)));
    records(pcap).iter().enumerate().map(label).collect()
}

fn sandbox() -> (Sandbox, Vec<u8>) {
    let (sandbox, pcap) = (Sandbox::new(), example());
    sandbox.put("attack.pcap", &pcap).put("labels.csv", labels(&pcap));
    (sandbox, pcap)
}

pub fn number(report: &Value, field: &str) -> f64 {
    report[field].as_f64().unwrap_or_else(|| panic!("no {field}: {report}"))
}

#[test]
fn real_attacks_are_dropped_and_legitimate_traffic_is_not() {
    let (sandbox, pcap) = sandbox();
    let report = sandbox.run("detect attack.pcap --labels labels.csv --json").json();
    let attacks = report["attacks"].as_array().expect("a list");
    assert_eq!(attacks.len(), 1, "{report}");
    let attack = &attacks[0];
    assert_eq!((attack["victim"].as_str(), attack["by"].as_str()), (Some("10.10.10.10"), Some("signature")));
    // The attack begins at 4 s and grows. Its SYNs pass the lowest rate that counts before 5 s.
    let from_s = number(attack, "from_s");
    assert!((4.0..6.0).contains(&from_s), "{attack}");
    let all = records(&pcap);
    let since = |(time, frame): &&(u64, &[u8])| is_attack(frame) && (time - all[0].0) as f64 / 1e6 > from_s;
    let later = all.iter().filter(since).count() as f64;
    assert!(number(&report, "attack_dropped") >= later * 0.95, "{later}: {report}");
    assert!(number(&report, "legitimate_dropped") <= number(&report, "legitimate_packets") * 0.001, "{report}");
    let packets = number(&report, "attack_packets") + number(&report, "legitimate_packets");
    assert_eq!((packets, number(&report, "packets")), (all.len() as f64, all.len() as f64));
}

#[test]
fn what_it_would_do_is_a_policy() {
    let (sandbox, _) = sandbox();
    let report = sandbox.run("detect attack.pcap --json").json();
    assert!(report.get("attack_packets").is_none());
    let actions = report["attacks"][0]["actions"].as_array().expect("a list");
    let rules: Vec<&str> = actions.iter().filter_map(|action| action["rule"].as_str()).collect();
    assert!(rules.len() >= 2, "{report}");
    sandbox.put("p.weir", format!("upstream {{\n  {}\n  accept\n}}\n", rules.join("\n  ")));
    let replayed = sandbox.run("replay p.weir --in attack.pcap --engine eval --json").json();
    // All rules from the first packet on drop at least what they dropped one after the other.
    assert!(number(&replayed, "dropped") >= number(&report, "dropped") * 0.99, "{replayed}");
}

#[test]
fn the_text_explains_each_decision() {
    let (sandbox, _) = sandbox();
    let text = sandbox.run("detect attack.pcap --labels labels.csv").out;
    for part in [
        "on 10.10.10.10",
        "without proof, packets/s",
        "threshold 100",
        "entropy of sources",
        "counter drop",
        "would have hit",
        "attack packets",
        "legitimate packets",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn the_page_shows_what_is_printed() {
    let (sandbox, _) = sandbox();
    let printed = sandbox.run("detect attack.pcap").out;
    let page = include_str!("../../docs/guide/mitigation.md");
    let (_, example) = page.split_once("$ weir detect examples/edge/attack.pcap\n").expect("the page has the example");
    let (example, _) = example.split_once("```").expect("it ends");
    let lines: Vec<&str> = example.lines().map(str::trim).filter(|line| !matches!(*line, "" | "...")).collect();
    assert!(lines.len() > 5, "{example}");
    for line in lines {
        let line = line.replace("examples/edge/", "");
        assert!(printed.contains(&line), "{line}\n{printed}");
    }
}

#[test]
fn captures_are_parts_of_one_recording() {
    let (sandbox, pcap) = sandbox();
    let all = records(&pcap);
    let middle = all.len() / 2;
    let split =
        PCAP_HEADER_BYTES + all[..middle].iter().map(|(_, frame)| RECORD_HEADER_BYTES + frame.len()).sum::<usize>();
    sandbox.put("first.pcap", &pcap[..split]).put("second.pcap", [&pcap[..PCAP_HEADER_BYTES], &pcap[split..]].concat());
    let whole = sandbox.run("detect attack.pcap --labels labels.csv --json").json();
    let parts = sandbox.run("detect first.pcap second.pcap --labels labels.csv --json").json();
    assert_eq!(whole, parts);
    // A capture that begins in the past begins at the end of the previous one.
    let twice = sandbox.run("detect attack.pcap attack.pcap --json").json();
    assert!((number(&twice, "seconds") - 2.0 * number(&whole, "seconds")).abs() < 0.01, "{twice}");
}

#[test]
fn outgoing_packets_are_answers() {
    let (sandbox, _) = sandbox();
    let report = sandbox.run("detect attack.pcap --inside 192.0.2.0/24 --json").json();
    assert_eq!((number(&report, "dropped"), report["attacks"].as_array().map(Vec::len)), (0.0, Some(0)));
    let report = sandbox.run("detect attack.pcap --inside 10.0.0.0/8 --json").json();
    assert_eq!(report["attacks"][0]["victim"], "10.10.10.10");
}

#[test]
fn a_damaged_capture_is_reported_up_to_the_damage() {
    let (sandbox, pcap) = sandbox();
    sandbox.put("cut.pcap", &pcap[..pcap.len() - 5]);
    let run = sandbox.run("detect cut.pcap --json");
    assert_eq!(run.code, 1);
    let report: Value = serde_json::from_str(&run.out).expect("JSON");
    assert_eq!(number(&report, "packets") as usize, records(&pcap[..]).len() - 1);
    assert_eq!(number(&report["truncated_at"], "packet") as usize, records(&pcap).len());
    assert_eq!((&report["truncated"], &report["error"]["exit_code"]), (&true.into(), &1.into()));
    sandbox.run("detect cut.pcap").fails(1, &["cut.pcap", "packet"]);
    assert_eq!(sandbox.run("detect attack.pcap --json").json()["truncated"], false);
}

#[test]
fn packets_that_cannot_be_judged_are_said() {
    let (sandbox, pcap) = sandbox();
    // Frames that end inside their Ethernet header, behind a good one.
    let (header, good) = (&pcap[..PCAP_HEADER_BYTES], &pcap[PCAP_HEADER_BYTES..]);
    let good = &good[..RECORD_HEADER_BYTES + records(&pcap)[0].1.len()];
    let mut short = good[..RECORD_HEADER_BYTES + 13].to_vec();
    short[8..12].copy_from_slice(&13u32.to_le_bytes());
    sandbox.put("short.pcap", [header, good, &short, &short].concat());
    let report = sandbox.run("detect short.pcap --json").json();
    assert_eq!((number(&report, "packets"), number(&report, "without_header")), (3.0, 2.0));
    let text = sandbox.run("detect short.pcap").out;
    assert!(text.contains("not judged: 2 packets without an IP header"), "{text}");
    sandbox.put("good.pcap", [header, good].concat());
    assert!(!sandbox.run("detect good.pcap").out.contains("not judged"));
}

#[test]
fn detection_sees_what_the_policy_passes() {
    let (sandbox, _) = sandbox();
    sandbox.put("p.weir", "upstream {\n  ip daddr 10.10.10.10 drop\n  accept\n}\n");
    let report = sandbox.run("detect attack.pcap --policy p.weir --labels labels.csv --json").json();
    assert_eq!(report["attacks"].as_array().map(Vec::len), Some(0), "{report}");
    assert!(number(&report, "attack_dropped") > number(&report, "attack_packets") * 0.99);
    assert_eq!(number(&report, "legitimate_dropped"), 0.0);
    sandbox.run("detect attack.pcap --policy none.weir").fails(2, &["none.weir"]);
}
