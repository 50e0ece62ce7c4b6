//! What captures of other tools contain, and what Weir makes of it (`tests/captures/*.txt`).
//!
//! ```text
//! def syn = ip saddr=192.0.2.1 daddr=198.51.100.1 / tcp sport=4000 dport=80 flags=syn seq=100
//!
//! capture loopback of a BSD                      its name
//! pcap link=0                                    the file: `pcap` or `pcapng`, `big`, `ns`, `link=N`, `fcs=N`, `cut=N`
//! 02000000 | $syn                                a packet: bytes, then the notation of `tests/support/src/notation.rs`
//!   = replay: passed 1, new 1                    what `weir replay` says, with rules for the states of packets
//!   = detect: judged 1                           what `weir detect` says
//! ```
//!
//! A pcapng file has `interface link=N` lines, and `1: ` in front of a packet of the second interface; `simple` and
//! `old` are the other kinds of packet blocks. `tracking TEXT` adds a setting. A packet comes 10 ms after the one before
//! it, or at the second that `at=` says. With `WEIR_BLESS=1` the lines with `=` are written anew.

#[path = "../crates/engine/tests/sample/mod.rs"]
mod sample;

#[cfg(feature = "dpdk")]
mod engines;

#[path = "captures/file.rs"]
mod file;

use file::{Case, Content};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Fewest captures of all files.
const CAPTURES_MIN: usize = 60;
/// The protected addresses.
const INSIDE: [&str; 2] = ["198.51.100.0/24", "2001:db8:1::/48"];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/captures")
}

/// The policy of a case. A rule for each state shows the state of a packet.
fn policy(case: &Case) -> String {
    let states: String = ["new", "established", "related", "untracked"]
        .iter()
        .map(|state| format!("  ct state {state} accept\n"))
        .collect();
    let (inside, settings) = (INSIDE.join(", "), case.tracking.join("\n  "));
    let chain = format!("{{\n{states}  drop\n}}\n");
    format!(
        "inside {{ {inside} }}\ntracking {{\n  invalid drop\n  pickup off\n  {settings}\n}}\nupstream {chain}downstream {chain}"
    )
}

/// Runs Weir. Returns its JSON, or what it says instead.
fn weir(arguments: &[&str], folder: &Path) -> Result<Value, String> {
    let output = Command::new(env!("CARGO_BIN_EXE_weir")).args(arguments).current_dir(folder).output();
    let output = output.expect("weir runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let report: Value = serde_json::from_str(&text).unwrap_or_default();
    let error = report["error"]["message"].as_str().filter(|_| report["packets"].is_null());
    match error {
        Some(error) => Err(error.to_owned()),
        None if report.is_null() => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        None => Ok(report),
    }
}

/// `NAME COUNT, ...` of the counts that are not 0.
fn counts<'a>(counts: impl IntoIterator<Item = (&'a str, u64)>) -> String {
    let shown = counts.into_iter().filter(|(_, count)| *count > 0);
    shown.map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", ")
}

fn number(report: &Value, name: &str) -> u64 {
    report[name].as_u64().unwrap_or(0)
}

/// The states of packets that were accepted, and the reasons of the others.
fn reasons(report: &Value) -> BTreeMap<String, u64> {
    let rules = report["rules"].as_array().expect("a report has rules");
    let text_at = |at: &str| rules.iter().find(|rule| rule["at"] == at).and_then(|rule| rule["rule"].as_str());
    let mut reasons = BTreeMap::new();
    for (reason, packets) in report["reasons"].as_object().expect("a report has reasons") {
        let text = text_at(reason).unwrap_or(reason);
        let state = text.strip_prefix("ct state ").and_then(|text| text.strip_suffix(" accept")).unwrap_or(text);
        *reasons.entry(state.to_owned()).or_insert(0) += packets.as_u64().expect("a count");
    }
    reasons
}

/// Notes of a report about the capture.
fn notes(report: &Value) -> Vec<String> {
    let mut notes = Vec::new();
    for (name, packets) in report["left_out"].as_object().into_iter().flatten() {
        notes.push(format!("left out {name} {packets}"));
    }
    let cut = ("cut", number(&report["cut"], "packets"));
    let named = ["segments_completed", "segments_longer", "vlans_differ"].map(|name| (name, number(report, name)));
    notes.extend(Some(counts(named.into_iter().chain([cut]))).filter(|text| !text.is_empty()));
    if let Some(problem) = report["truncated_at"]["problem"].as_str() {
        notes.push(format!("damaged: {problem}"));
    } else if let Some(message) = report["error"]["message"].as_str() {
        notes.push(message.to_owned());
    }
    notes
}

fn replay(folder: &Path) -> String {
    let arguments = ["replay", "policy.weir", "--in", "capture", "--engine", "eval", "--json"];
    match weir(&arguments, folder) {
        Err(said) => format!("refused: {said}"),
        Ok(report) => {
            let sums = ["passed", "dropped", "diverted", "replied"].map(|name| (name, number(&report, name)));
            let reasons = reasons(&report);
            let decided = counts(sums.into_iter().chain(reasons.iter().map(|(name, count)| (name.as_str(), *count))));
            let decided = if decided.is_empty() { "no packets".to_owned() } else { decided };
            [vec![decided], notes(&report)].concat().join("; ")
        }
    }
}

fn detect(folder: &Path) -> String {
    let inside = INSIDE.map(|prefix| format!("--inside={prefix}"));
    let arguments = ["detect", "capture", &inside[0], &inside[1], "--json"];
    match weir(&arguments, folder) {
        Err(said) => format!("refused: {said}"),
        Ok(report) => {
            let named = ["judged", "outside", "forged", "without_header", "cut_short", "times_corrected", "dropped"];
            let seen = counts(named.map(|name| (name, number(&report, name))));
            let seen = if seen.is_empty() { "nothing".to_owned() } else { seen };
            let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
            let attacks = report["attacks"].as_array().expect("a report has attacks").iter();
            let attacks = attacks.map(|one| format!("attack {} on {}", text(&one["kind"]), text(&one["victim"])));
            [vec![seen], attacks.collect(), notes(&report)].concat().join("; ")
        }
    }
}

/// What Weir says of a capture.
fn outcome(case: &Case) -> Vec<String> {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).expect("a file is written");
    write("policy.weir", policy(case).as_bytes());
    write("capture", &case.bytes());
    vec![format!("replay: {}", replay(folder.path())), format!("detect: {}", detect(folder.path()))]
}

/// The text of a file with the outcomes that Weir has.
fn written_anew(content: &Content) -> String {
    let mut text = String::new();
    for (line, is_outcome) in &content.lines {
        if !is_outcome {
            let _ = writeln!(text, "{line}");
        }
        if let Some(case) = content.cases.iter().find(|case| case.ends_with(content, line)) {
            outcome(case).iter().for_each(|line| _ = writeln!(text, "  = {line}"));
        }
    }
    text
}

/// The files of captures in text form.
fn contents() -> Vec<(PathBuf, Content)> {
    let entries = std::fs::read_dir(folder()).expect("tests/captures exists");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("the folder can be read").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|end| end == "txt"));
    paths.sort();
    let read = |path: PathBuf| {
        let content = Content::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        (path, content)
    };
    paths.into_iter().map(read).collect()
}

#[test]
fn captures_of_other_tools_are_judged_as_their_packets_were() {
    let (mut captures, mut wrong) = (0, Vec::new());
    for (path, content) in contents() {
        captures += content.cases.len();
        if std::env::var_os("WEIR_BLESS").is_some() {
            std::fs::write(&path, written_anew(&content)).expect("the file is written");
            continue;
        }
        for case in &content.cases {
            let outcome = outcome(case);
            if outcome != case.expected {
                wrong.push(format!(
                    "{}: {}\n  expected {:#?}\n  it says {outcome:#?}",
                    path.display(),
                    case.name,
                    case.expected
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(captures >= CAPTURES_MIN, "there are {captures} captures");
}

/// The packets of a capture, up to the first damaged one.
#[cfg(feature = "dpdk")]
fn packets(case: &Case) -> Vec<weir_test_support::Packet> {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), case.bytes()).expect("the capture is written");
    let mut packets = Vec::new();
    let Ok(mut reader) = weir_engine::capture::CaptureReader::open(file.path()) else { return packets };
    while let Ok(Some(burst)) = reader.next_burst() {
        let frames = burst.frames();
        let packet = |index| weir_test_support::Packet {
            link: engines::link_from(frames.link()),
            bytes: frames.bytes(index).to_vec(),
            wire: frames.wire_len(index),
            time_ns: frames.time_ns(index),
        };
        packets.extend((0..frames.len()).map(packet));
    }
    packets
}

/// The policies of the captures are few, so each runs once as P4.
#[cfg(feature = "dpdk")]
#[test]
fn p4_decides_captures_as_the_interpreter() {
    let mut by_policy: BTreeMap<String, Vec<(String, Vec<weir_test_support::Packet>)>> = BTreeMap::new();
    for (_, content) in contents() {
        for case in &content.cases {
            by_policy.entry(policy(case)).or_default().push((case.name.clone(), packets(case)));
        }
    }
    let (mut captures, mut decided, as_p4) = (0, 0, engines::AsP4::default());
    for (text, cases) in by_policy {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("policy.weir");
        std::fs::write(&path, text).expect("the policy is written");
        let policy = engines::load(&path).expect("the policy is right");
        let mut engines = engines::Engines::load_p4(&policy).expect("it is compiled");
        as_p4.count(&engines);
        for (name, packets) in cases {
            let agreed = engines.agree(&packets);
            agreed.unwrap_or_else(|problem| panic!("{name}: {problem}"));
            captures += 1;
            decided += packets.len();
        }
    }
    as_p4.tell(1);
    assert!(captures >= CAPTURES_MIN && decided > captures, "{captures} captures with {decided} packets");
}
