//! The examples have no errors, and all engines decide their captures alike.

mod engines;

use engines::{Engines, load, root};
use std::path::{Path, PathBuf};
use weir_engine::capture::CaptureReader;
use weir_test_support::{Link, Packet};

/// Files below examples/ with an extension, sorted.
fn files(ending: &str) -> Vec<PathBuf> {
    let mut folders = vec![root().join("examples")];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("the examples can be read") {
            let path = entry.expect("the examples can be read").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == ending) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn packets(capture: &Path) -> Vec<Packet> {
    let mut reader = CaptureReader::open(capture).expect("an example's capture opens");
    let mut packets = Vec::new();
    while let Some(burst) = reader.next_burst().expect("an example's capture is whole") {
        let frames = burst.frames();
        assert_eq!(frames.link(), weir_abi::Link::Ethernet);
        let packet = |index| Packet {
            link: Link::Ethernet,
            bytes: frames.bytes(index).to_vec(),
            wire: frames.wire_len(index),
            time_ns: frames.time_ns(index),
        };
        packets.extend((0..frames.len()).map(packet));
    }
    packets
}

#[test]
fn examples_check_without_a_warning() {
    let policies = files("weir");
    assert!(policies.len() >= 2);
    for path in policies {
        let policy = load(&path).unwrap_or_else(|problem| panic!("{}: {problem}", path.display()));
        let text = policy.text().expect("examples are text");
        assert!(text.checked.warnings.is_empty(), "{}: {:#?}", path.display(), text.checked.warnings);
    }
}

#[test]
fn engines_agree_on_the_captures_of_the_examples() {
    let captures = files("pcap");
    assert!(!captures.is_empty());
    for path in files("weir") {
        let policy = load(&path).unwrap_or_else(|problem| panic!("{problem}"));
        let mut engines = Engines::load(&policy).unwrap_or_else(|problem| panic!("{}: {problem}", path.display()));
        for capture in captures.iter().filter(|capture| capture.parent() == path.parent()) {
            let agreed = engines.agree(&packets(capture));
            agreed.unwrap_or_else(|problem| panic!("{} over {}: {problem}", path.display(), capture.display()));
        }
    }
}

/// Each policy has its own code, tables and counters. The dynamic loader and the kernel must not confuse them.
#[test]
fn policies_that_are_loaded_together_do_not_mix() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let packets =
        weir_test_support::packets("eth / ip / udp dport=1\neth / ip / udp dport=2\neth / ip / udp dport=3").unwrap();
    let policies: Vec<_> = (0..4)
        .map(|port| {
            let path = folder.path().join(format!("same{port}.weir"));
            let text = format!(
                "table t {{ type ipv4; elements = {{ 192.0.2.{port} }} }}\n\
                 upstream {{ udp dport {port} counter drop; ip saddr @t divert; accept }}\ndownstream {{ accept }}\n"
            );
            std::fs::write(&path, text).unwrap();
            load(&path).unwrap()
        })
        .collect();
    let mut loaded: Vec<_> = policies.iter().map(|policy| Engines::load(policy).unwrap()).collect();
    for _ in 0..2 {
        let agreed: Vec<_> = loaded.iter_mut().map(|engines| engines.agree(&packets).unwrap()).collect();
        assert!(
            agreed.iter().enumerate().all(|(at, one)| agreed[..at].iter().all(|other| other.verdicts != one.verdicts))
        );
        // One policy is unloaded, another one takes its place.
        drop(loaded.remove(1));
        loaded.insert(1, Engines::load(&policies[1]).unwrap());
    }
}
