//! Runs `weir-bench` like a user.

use serde_json::Value;
use std::fs;
use std::process::{Command, Output};

fn bench(words: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir-bench"));
    command.args(words.split_whitespace()).output().expect("the program was built")
}

/// Checks that the command is refused, and that its message contains all the given words.
fn refused(words: &str, expected: &[&str]) {
    let output = bench(words);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{words}: {stderr}");
    assert!(expected.iter().all(|word| stderr.contains(word)), "{words}: {stderr}");
}

#[test]
fn scenarios_are_named() {
    let output = bench("--list");
    let listed = String::from_utf8_lossy(&output.stdout);
    assert!(
        ["rfpf-three-tables", "moonpol", "live", "smartnic", "tables"].iter().all(|name| listed.contains(name)),
        "{listed}"
    );
    let help = bench("--help");
    assert!(String::from_utf8_lossy(&help.stdout).contains("Usage: weir bench"), "{help:?}");
}

#[test]
fn what_no_scenario_takes_is_refused() {
    refused("", &["Usage: weir bench"]);
    refused("no-such-scenario", &["no-such-scenario", "--list"]);
    refused("live --only no-such-engine", &["no-such-engine", "xdp-drop-all", "afpacket"]);
    refused("smartnic --only no-such-blocker", &["no-such-blocker", "growth", "weir-card-hybrid", "ipset"]);
    refused("line-costs --only memory", &["--only"]);
    let output = bench("no-such-scenario --json");
    let report: Value = serde_json::from_slice(&output.stdout).expect("an object");
    let message = report["error"]["message"].as_str();
    assert!(message.is_some_and(|text| text.contains("no-such-scenario") && !text.contains("Usage:")), "{report:#}");
}

#[test]
fn figures_replace_the_section_of_their_scenario() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let page = folder.path().join("figures.md");
    fs::write(&page, "# Figures\n\n## line-costs\n\nMeaning: here.\n\nold\n\n## live\n\nold\n").expect("it is written");
    let output = bench(&format!("line-costs --quick --figures {}", page.display()));
    assert!(output.status.success(), "{output:?}");
    let text = fs::read_to_string(&page).expect("it is there");
    let (own, rest) = text.split_once("## live\n").expect("the other section is there");
    assert!(own.starts_with("# Figures\n\n## line-costs\n\nMeaning: here.\n\n*Measured* on "), "{text}");
    assert!(
        own.contains("`weir bench line-costs --quick`") && own.contains("| 64 KiB | ") && !own.contains("old"),
        "{text}"
    );
    assert_eq!(rest, "\nold\n");
    refused("live --only afxdp --figures no.md", &["--figures", "--only"]);
    refused("live --smoke --figures no.md", &["--figures", "--smoke"]);
}

/// Needs root. Every sent packet must arrive and be dropped, because the figures would be meaningless otherwise.
#[test]
fn what_a_dropped_packet_costs_is_measured_of_all_packets() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let plot = folder.path().join("live.svg");
    let lists = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/edge/lists");
    let contenders = "--only xdp-drop-all --only weir-xdp --only xdp-lpm-trie";
    let output = bench(&format!("live {contenders} --json --data {lists} --plot {}", plot.display()));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let rows = report["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 3, "{report:#}");
    for row in rows {
        let number = |field: &str| row[field].as_f64().unwrap_or_else(|| panic!("{field}: {row:#}"));
        assert_eq!((number("lost_share"), number("passed_share")), (0.0, 0.0), "{row:#}");
        assert_eq!(number("packets_sent"), number("packets_received"), "{row:#}");
        assert!(number("cpu_ns_per_packet_min") > 0.0 && number("packets_sent") > 1e6, "{row:#}");
    }
    assert_eq!(rows[0]["times_drop_all"], 1.0);
    assert!(fs::read_to_string(plot).expect("it was drawn").contains("weir-xdp"));
}

/// Needs root and two cores. Before the measurement, a host without blocked sources must pass its packets, else the
/// scenario fails. From then on every packet must be dropped.
#[test]
fn hosts_drop_whatever_attacks_them() {
    let lists = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/edge/lists");
    let blockers = "--only xdp-drop-all --only weir-host-counters --only nft-netdev";
    let output = bench(&format!("smartnic --quick --only growth {blockers} --json --data {lists}"));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let rows = report["rows"].as_array().unwrap_or_else(|| panic!("rows: {report:#}"));
    let measured: Vec<&Value> = rows.iter().filter(|row| row["part"] == "growth").collect();
    assert_eq!(measured.len(), 6, "{report:#}");
    for row in measured {
        let number = |field: &str| row[field].as_f64().unwrap_or_else(|| panic!("{field}: {row:#}"));
        assert_eq!(number("passed_packets"), 0.0, "{row:#}");
        assert!(number("dropped_packets") > 1000.0 && number("cpu_ns_per_packet_128k_min") > 0.0, "{row:#}");
    }
    assert!(rows.iter().any(|row| row["blocker"] == "paper: xdp host"), "{report:#}");
}
