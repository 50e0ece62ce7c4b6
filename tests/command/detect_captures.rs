//! `weir detect` over captures that are not as they should be, and what its report says about them.

use crate::detect::{PCAP_HEADER_BYTES, example, labels, number, records};
use crate::weir::Sandbox;
use serde_json::{Value, json};

const DAY_US: u64 = 86_400_000_000;
const SECOND_US: u64 = 1_000_000;

/// A packet to be written: microseconds since 1970, captured bytes, and the length on the wire.
type Record = (u64, Vec<u8>, usize);

/// The example, with its records changed by their index and time since the first one.
fn changed(change: impl Fn(usize, u64, Record) -> Record) -> Vec<u8> {
    let pcap = example();
    let all = records(&pcap);
    let mut bytes = pcap[..PCAP_HEADER_BYTES].to_vec();
    for (index, (time_us, frame)) in all.iter().enumerate() {
        let (time_us, frame, wire_len) = change(index, time_us - all[0].0, (*time_us, frame.to_vec(), frame.len()));
        let (seconds, micros) = (time_us / SECOND_US, time_us % SECOND_US);
        let head = [seconds as u32, micros as u32, frame.len() as u32, wire_len as u32];
        bytes.extend(head.into_iter().flat_map(u32::to_le_bytes));
        bytes.extend(frame);
    }
    bytes
}

/// The report of a capture, with the labels of the example.
fn report(pcap: &[u8]) -> Value {
    let sandbox = Sandbox::new();
    sandbox.put("c.pcap", pcap).put("labels.csv", labels(&example()));
    sandbox.run("detect c.pcap --labels labels.csv --json").json()
}

/// The text of a capture's report.
fn text(pcap: &[u8], options: &str) -> String {
    let sandbox = Sandbox::new();
    sandbox.put("c.pcap", pcap);
    let ran = sandbox.run(&format!("detect c.pcap {options}"));
    assert_eq!(ran.code, 0, "{ran:?}");
    ran.out
}

fn attacks(report: &Value) -> usize {
    report["attacks"].as_array().expect("a list").len()
}

#[test]
fn packets_that_are_cut_inside_their_headers_are_not_judged() {
    let cut = |snaplen: usize| {
        changed(|_, _, (time_us, mut frame, wire_len)| {
            frame.truncate(snaplen);
            (time_us, frame, wire_len)
        })
    };
    let whole = report(&example());
    for snaplen in [34, 40, 50] {
        let report = report(&cut(snaplen));
        assert_eq!(number(&report, "legitimate_dropped"), 0.0, "{snaplen}: {report}");
        assert!(number(&report, "cut_short") > 20_000.0, "{snaplen}: {report}");
        let seen = ["judged", "cut_short", "without_header"].map(|field| number(&report, field)).iter().sum::<f64>();
        assert_eq!(seen, number(&whole, "packets"));
    }
    let text = text(&cut(34), "");
    assert!(text.contains("with a header that the capture cuts short (snaplen)"), "{text}");
    // All TCP headers are there, and options are no field.
    let report = report(&cut(96));
    assert_eq!((number(&report, "cut_short"), attacks(&report)), (0.0, 1));
    assert_eq!((&report["attacks"][0]["from_s"], &whole["cut_short"]), (&whole["attacks"][0]["from_s"], &json!(0)));
}

#[test]
fn segmentation_offload_changes_nothing() {
    let without_length = changed(|_, _, (time_us, mut frame, wire_len)| {
        if frame[12..14] == [8, 0] {
            // What is behind the packet is no part of it, unless its length is unknown.
            let length = 14 + usize::from(u16::from_be_bytes([frame[16], frame[17]]));
            if length == wire_len {
                frame[16..18].fill(0);
            }
        }
        (time_us, frame, wire_len)
    });
    assert_ne!(without_length, example());
    let mut completed = report(&without_length);
    let segments = completed.as_object_mut().and_then(|fields| fields.remove("segments_completed"));
    assert!(segments.is_some_and(|segments| segments.as_u64() > Some(1000)), "{completed}");
    assert_eq!(completed, report(&example()));
}

#[test]
fn one_wrong_timestamp_does_not_blind_the_rest() {
    let whole = report(&example());
    for (wrong, ahead_us) in [(3000, DAY_US), (3000, 365 * DAY_US)] {
        let once = changed(|index, _, (time_us, frame, wire_len)| {
            (if index == wrong { time_us + ahead_us } else { time_us }, frame, wire_len)
        });
        let mut report = report(&once);
        assert_eq!(report["times_corrected"].take(), json!(1));
        assert_eq!((&report["seconds"], &report["attacks"]), (&whole["seconds"], &whole["attacks"]));
    }
    let first = changed(|index, _, (time_us, frame, wire_len)| {
        (if index == 0 { time_us + 30 * DAY_US } else { time_us }, frame, wire_len)
    });
    let report = report(&first);
    assert_eq!((number(&report, "times_corrected"), attacks(&report)), (2.0, 1));
    assert!(number(&report, "attack_dropped") > number(&whole, "attack_dropped") * 0.95, "{report}");
    assert!(text(&first, "").contains("time: 2 packets have that of the previous one"));
}

#[test]
fn a_clock_that_is_set_back_does_not_stop_time() {
    let set_back = changed(|_, since_us, (time_us, frame, wire_len)| {
        (if since_us > 10 * SECOND_US { time_us - DAY_US } else { time_us }, frame, wire_len)
    });
    let (report, whole) = (report(&set_back), report(&example()));
    assert_eq!((number(&report, "times_corrected"), attacks(&report)), (2.0, 1));
    assert!((number(&report, "seconds") - number(&whole, "seconds")).abs() < 0.1, "{report}");
}

#[test]
fn a_capture_without_times_is_said() {
    let end_us = 1_800_000_000 * SECOND_US;
    for backwards in [0, 1] {
        let pcap = changed(|_, since_us, (_, frame, wire_len)| (end_us - since_us * backwards, frame, wire_len));
        let report = report(&pcap);
        assert_eq!((&report["without_time"], &report["seconds"]), (&json!(true), &json!(0.0)));
        assert_eq!(number(&report, "times_corrected") > 1000.0, backwards == 1, "{report}");
        let text = text(&pcap, "");
        assert!(text.contains("time: all packets have the same"), "{text}");
    }
    assert_eq!(report(&example())["without_time"], false);
}

#[test]
fn labels_that_do_not_fit_are_said() {
    let (sandbox, pcap) = (Sandbox::new(), example());
    sandbox.put("c.pcap", &pcap);
    let packets = records(&pcap).len();
    let run = |labels: &str, options: &str| {
        sandbox.put("l.csv", labels);
        sandbox.run(&format!("detect c.pcap --labels l.csv {options}"))
    };
    let beyond = format!("1,0\n{},1\n{},1\n{packets},1\n", packets + 1, packets + 3);
    assert_eq!(run(&beyond, "--json").json()["labels_beyond"], 2);
    let out = run(&beyond, "").out;
    assert!(out.contains("l.csv:3: packet 32,884 is behind the last packet") && out.contains("packet: 2\n"), "{out}");
    run("1,0\n2,1\n1,1\n", "").fails(2, &["l.csv:3: packet 1 has the label 0 on an earlier line"]);
    run("99999999999999999999,1\n", "").fails(2, &["l.csv:1: the number of a packet is at most 4,294,967,295"]);
    let marked = run("\u{feff}1,1\n2,1\n2,1\n", "--json").json();
    assert_eq!((&marked["attack_packets"], &marked["labels_beyond"]), (&json!(2), &json!(0)));
}

#[test]
fn what_was_judged_is_said() {
    let sandbox = Sandbox::new();
    sandbox.put("c.pcap", example());
    let report = |options: &str| sandbox.run(&format!("detect c.pcap {options} --json")).json();
    let all = report("");
    assert_eq!((&all["outside"], &all["judged"]), (&json!(0), &json!(number(&all, "packets") as u64 - 2)));
    assert_eq!(all["without_header"], 2);
    for inside in ["198.51.100.0/24", "0.0.0.0/0,::/0"] {
        let report = report(&format!("--inside {inside}"));
        assert_eq!((&report["outside"], &report["judged"]), (&all["judged"], &json!(0)));
        let out = text(&example(), &format!("--inside {inside}"));
        assert!(out.contains("nothing was judged") && out.contains("from --inside, or to other"), "{out}");
        assert!(!out.contains("no attack"), "{out}");
    }
    let report = report("--inside 10.0.0.0/8");
    assert!(number(&report, "judged") > 10_000.0, "{report}");
    assert_eq!(number(&report, "judged") + number(&report, "outside"), number(&all, "judged"));
    // MPLS.
    let tagged = changed(|_, _, (time_us, mut frame, wire_len)| {
        frame.splice(12..14, [0x88, 0x47, 0, 0x10, 0x01, 0xff]);
        (time_us, frame, wire_len + 4)
    });
    let out = text(&tagged, "");
    assert!(out.contains("nothing was judged") && out.contains("32,881 packets without an IP header"), "{out}");
}
