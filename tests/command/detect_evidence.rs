//! `weir detect` over recordings that show too little: of a fraction of a second, and of one direction.

use crate::detect::number;
use crate::detect_forged::{Hop, Packet, SECOND_US, capture, datagram, ip, of_line, segment};
use crate::weir::Sandbox;
use serde_json::{Value, json};

const CLIENT: u32 = 0xc612_0050;
const SERVERS: u32 = 0x5d00_0007;

/// The report of a recording, and its text.
fn report(packets: Vec<Packet>, options: &str) -> (Value, String) {
    let sandbox = Sandbox::new();
    sandbox.put("c.pcap", capture(packets, of_line));
    let line = format!("detect c.pcap {options}");
    (sandbox.run(&format!("{line} --json")).json(), sandbox.run(&line).out)
}

/// So many packets of a fraction of a second.
fn burst(packets: u64, micros: u64, make: impl Fn(u32) -> Vec<u8>) -> Vec<Packet> {
    (0..packets).map(|number| (SECOND_US + number * micros / packets, Hop::Outside, make(number as u32))).collect()
}

fn attacks(report: &Value) -> &[Value] {
    report["attacks"].as_array().expect("a list")
}

/// Reports of hosts about their groups, all at once because a router has asked.
fn membership(number: u32) -> Vec<u8> {
    let group = 0xe000_0016;
    ip(0x0a00_0001 + number, group, 2, &[0x22, 0, 0, 0, 0, 0, 0, 1])
}

#[test]
fn a_burst_is_too_short_to_judge() {
    for (packets, micros) in [(26, 40_000), (150, 40_000), (150, 300_000), (900, 240_000)] {
        let (report, text) = report(burst(packets, micros, membership), "");
        assert_eq!((attacks(&report), number(&report, "dropped")), (&[] as &[Value], 0.0), "{packets}");
        let short = &report["too_short"];
        assert_eq!((&short["needed_s"], &short["needed_packets"]), (&json!(0.5), &json!(1000)), "{report}");
        assert_eq!((&short["victim"], &short["class"]), (&json!("224.0.0.22"), &json!("other protocols")), "{report}");
        if micros < 250_000 {
            assert_eq!(number(short, "packets"), packets as f64);
            assert!(text.contains(&format!("seen: {packets} packets to 224.0.0.22 without proof")), "{text}");
        }
        assert!(text.contains("too short to judge") && text.contains("an attack shows in 0.5 s"), "{text}");
        assert!(!text.contains("no attack"), "{text}");
    }
}

#[test]
fn very_many_packets_are_an_attack_at_once() {
    let syn_ack = |number: u32| segment((SERVERS + number * 7919, 443), (CLIENT, 4000), 0x12, number, 1, 0);
    let (short, text) = report(burst(8000, 147_000, syn_ack), "");
    let [attack] = attacks(&short) else { panic!("{short}") };
    assert_eq!(attack["kind"], "syn-ack-reflection");
    assert!(number(attack, "from_s") <= number(&short, "seconds") + 0.11, "{attack}");
    assert!(
        text.contains("short: 0.147 s") && text.contains("rates: as if") && !text.contains("too short to judge"),
        "{text}"
    );
    // A recording that is long enough says nothing of its length.
    let (long, text) = report(burst(8000, 2_000_000, syn_ack), "");
    assert_eq!((attacks(&long).len(), &long["too_short"]), (1, &Value::Null));
    assert!(!text.contains("short:"), "{text}");
}

#[test]
fn a_sample_is_never_larger_than_what_was_seen() {
    let syn_ack = |number: u32| segment((SERVERS + number * 7919, 443), (CLIENT, 4000), 0x12, number, 1, 0);
    for (packets, micros) in [(1500, 100_000), (1500, 260_000), (400, 600_000), (900, 1_500_000)] {
        let (report, _) = report(burst(packets, micros, syn_ack), "");
        let actions = attacks(&report).iter().flat_map(|attack| attack["actions"].as_array().expect("a list"));
        for action in actions {
            assert!(number(action, "sample_attack_of") <= packets as f64, "{packets}: {action}");
        }
    }
}

/// Two seconds of quiet, and then a page of ten servers over QUIC.
fn page() -> Vec<Packet> {
    let syn = |number: u64| segment((SERVERS, 40_000), (CLIENT, 80), 2, number as u32, 0, 0);
    let quiet = (0..40).map(|number| (number * SECOND_US / 10, Hop::Outside, syn(number)));
    let answers = (0..1200).map(|number: u32| {
        let server = (SERVERS + number % 10, 443);
        let time_us = 4 * SECOND_US + u64::from(number) * SECOND_US / 200;
        (time_us, Hop::Outside, datagram(server, (CLIENT, 50_000 + (number % 10) as u16), 1200 + number as usize % 30))
    });
    quiet.chain(answers).collect()
}

#[test]
fn a_page_whose_questions_are_not_seen_is_no_attack_and_the_direction_is_said() {
    for options in ["--inside 198.18.0.0/16", ""] {
        let (report, text) = report(page(), options);
        assert_eq!((attacks(&report), number(&report, "dropped")), (&[] as &[Value], 0.0), "{options}");
        assert_eq!(report["directions"], "one", "{report}");
        let unjudged = number(&report, "unjudged");
        assert!((1.0..1200.0).contains(&unjudged), "{report}");
        assert!(text.contains("directions: only one is seen"), "{text}");
        assert!(text.contains(&format!("not judged: {unjudged} packets of UDP")), "{text}");
    }
}

#[test]
fn both_directions_are_said() {
    let answered = |number: u32| {
        let (client, server) = ((SERVERS + number % 3, 50_000), (CLIENT, 443));
        let time_us = u64::from(number) * 10_000;
        [
            (time_us, Hop::Outside, datagram(client, server, 200)),
            (time_us + 9, Hop::Inside, datagram(server, client, 900)),
        ]
    };
    let (both, text) = report((0..400).flat_map(answered).collect(), "--inside 198.18.0.0/16");
    assert_eq!((&both["directions"], &both["unjudged"]), (&json!("both"), &json!(0)));
    assert!(!text.contains("directions:"), "{text}");
    let (unknown, text) = report(burst(3, 2_000_000, membership), "");
    assert_eq!(unknown["directions"], "unknown");
    assert!(!text.contains("directions:"), "{text}");
}
