//! `weir detect` over recordings of an attacker who forges proof, with and without the side of arrival of packets.

use crate::detect::number;
use crate::weir::Sandbox;
use serde_json::{Value, json};

const SERVER: u32 = 0xc612_0050;
const CUSTOMER: u32 = 0x5d00_0007;
const NAMES: u32 = SERVER + 9;
pub const SECOND_US: u64 = 1_000_000;
const BEGIN_S: u64 = 10;
const END_S: u64 = 20;
const SYN: u8 = 2;
const PSH: u8 = 8;
const ACK: u8 = 16;
const ETHERNET_BYTES: usize = 14;

/// Routers whose packets are recorded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Hop {
    Outside,
    Inside,
}

/// A packet with its time, and the router that has sent it.
pub type Packet = (u64, Hop, Vec<u8>);

pub fn ip(saddr: u32, daddr: u32, protocol: u8, transport: &[u8]) -> Vec<u8> {
    let length = (20 + transport.len()) as u16;
    let mut bytes = vec![0x45, 0];
    bytes.extend(length.to_be_bytes());
    bytes.extend([0, 0, 0, 0, 60, protocol, 0, 0]);
    bytes.extend([saddr, daddr].iter().flat_map(|address| address.to_be_bytes()));
    bytes.extend(transport);
    bytes
}

pub fn datagram((saddr, sport): (u32, u16), (daddr, dport): (u32, u16), payload: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = [sport, dport, 8 + payload as u16, 0].iter().flat_map(|word| word.to_be_bytes()).collect();
    bytes.extend((0..payload).map(|at| (at as u32 ^ saddr) as u8));
    ip(saddr, daddr, 17, &bytes)
}

pub fn segment(
    (saddr, sport): (u32, u16),
    (daddr, dport): (u32, u16),
    flags: u8,
    seq: u32,
    ack: u32,
    payload: usize,
) -> Vec<u8> {
    let mut bytes: Vec<u8> = [sport, dport].iter().flat_map(|port| port.to_be_bytes()).collect();
    bytes.extend([seq, ack].iter().flat_map(|number| number.to_be_bytes()));
    bytes.extend([0x50, flags, 1, 0xf5, 0, 0, 0, 0]);
    bytes.extend(vec![7; payload]);
    ip(saddr, daddr, 6, &bytes)
}

/// Customers of a web server: each opens a connection every second, and sends a request.
fn customers() -> Vec<Packet> {
    let mut packets = Vec::new();
    for number in 0..20u32 * END_S as u32 {
        let at_us = u64::from(number) * SECOND_US / 20;
        let (client, server) = ((CUSTOMER + number % 20, 30_000 + (number % 20_000) as u16), (SERVER, 80));
        let (seq, answer) = (number * 7919, number * 104_729);
        let steps = [
            (Hop::Outside, segment(client, server, SYN, seq, 0, 0)),
            (Hop::Inside, segment(server, client, SYN | ACK, answer, seq + 1, 0)),
            (Hop::Outside, segment(client, server, ACK, seq + 1, answer + 1, 0)),
            (Hop::Outside, segment(client, server, ACK | PSH, seq + 1, answer + 1, 200)),
            (Hop::Inside, segment(server, client, ACK | PSH, answer + 1, seq + 201, 900)),
            (Hop::Outside, segment(client, server, ACK, seq + 201, answer + 901, 0)),
        ];
        packets.extend((0..).zip(steps).map(|(step, (hop, bytes))| (at_us + step * 5_000, hop, bytes)));
    }
    packets
}

/// What the attacker sends, at a rate from his begin on.
fn attack(pps: u64, make: impl Fn(u64) -> Vec<u8>) -> impl Iterator<Item = Packet> {
    let packets = (END_S - BEGIN_S) * pps;
    (0..packets).map(move |number| (BEGIN_S * SECOND_US + number * SECOND_US / pps, Hop::Outside, make(number)))
}

/// A capture of packets. `macs` are the Ethernet addresses, source first, of what a router sends.
pub fn capture(mut packets: Vec<Packet>, macs: impl Fn(Hop) -> [u8; 2]) -> Vec<u8> {
    packets.sort_by_key(|(time_us, ..)| *time_us);
    let words = [0xa1b2_c3d4, 0x0004_0002, 0, 0, 0x0004_0000, 1_u32];
    let mut pcap: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    for (time_us, hop, bytes) in packets {
        let length = (ETHERNET_BYTES + bytes.len()) as u32;
        let head = [(time_us / SECOND_US) as u32, (time_us % SECOND_US) as u32, length, length];
        pcap.extend(head.iter().flat_map(|word| word.to_le_bytes()));
        let [from, to] = macs(hop);
        pcap.extend([2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from, 8, 0]);
        pcap.extend(bytes);
    }
    pcap
}

/// Runs `weir detect` over packets.
fn detect(packets: Vec<Packet>, macs: impl Fn(Hop) -> [u8; 2]) -> (Value, String) {
    let sandbox = Sandbox::new();
    sandbox.put("c.pcap", capture(packets, macs));
    let line = "detect c.pcap --inside 198.18.0.0/16";
    (sandbox.run(&format!("{line} --json")).json(), sandbox.run(line).out)
}

/// The addresses of a line between two routers.
pub fn of_line(hop: Hop) -> [u8; 2] {
    match hop {
        Hop::Outside => [1, 2],
        Hop::Inside => [2, 1],
    }
}

/// One forged question of the server before fifteen packets.
fn forged_question(number: u64) -> Vec<u8> {
    let source = (0x3a00_0000 + (number / 16) as u32 * 7919, 1024 + (number / 16 % 60_000) as u16);
    match number % 16 {
        0 => datagram((SERVER, 9999), source, 30),
        turn => datagram(source, (SERVER, 9999), 900 + turn as usize),
    }
}

#[test]
fn the_line_says_that_a_question_of_the_server_is_forged() {
    let packets: Vec<Packet> = customers().into_iter().chain(attack(5000, forged_question)).collect();
    let (report, text) = detect(packets, of_line);
    assert_eq!((&report["sides_by"], &report["forged"]), (&json!("link"), &json!(3125)));
    assert_eq!(report["attacks"][0]["victim"], "198.18.0.80", "{report}");
    assert!(number(&report, "dropped") > 40_000.0, "{report}");
    assert!(text.contains("3,125 packets from --inside that came from outside: forged"), "{text}");
    assert!(text.contains("sides: by the link layer"), "{text}");
}

#[test]
fn where_the_line_says_nothing_addresses_decide_and_the_flood_is_found() {
    let packets: Vec<Packet> = customers().into_iter().chain(attack(5000, forged_question)).collect();
    let (report, text) = detect(packets, |_| [1, 2]);
    assert_eq!((&report["sides_by"], &report["forged"]), (&json!("address"), &json!(0)));
    assert_eq!(report["attacks"][0]["victim"], "198.18.0.80", "{report}");
    // Two packets for each question belong to a client that takes turns.
    assert!(number(&report, "dropped") > 0.8 * 13.0 / 16.0 * 50_000.0, "{report}");
    assert!(text.contains("sides: by addresses, which can be forged"), "{text}");
}

/// Two questions with a customer's address, their answers, and garbage with its addresses and ports.
#[test]
fn forged_questions_do_not_get_a_customer_blocked() {
    let (client, server) = ((CUSTOMER + 3, 4444), (NAMES, 53));
    let mut packets = customers();
    for number in 0..2 {
        let at_us = BEGIN_S * SECOND_US - 50_000 + number * 10_000;
        packets.push((at_us, Hop::Outside, datagram(client, server, 30)));
        packets.push((at_us + 1000, Hop::Inside, datagram(server, client, 90)));
    }
    packets.extend(attack(3000, |number| datagram(client, server, 800 + (number * 31 % 200) as usize)));
    let (report, _) = detect(packets, of_line);
    let attacks = report["attacks"].as_array().expect("a list");
    assert!(!attacks.is_empty() && attacks.iter().all(|attack| attack["sources"] == json!([])), "{report}");
    assert!(number(&report, "dropped") > 20_000.0, "{report}");
}

/// Three hundred made-up sources that the server has answered, at 60 packets/s each.
#[test]
fn sources_that_were_answered_do_not_hide_a_flood() {
    let source = |number: u64| (0x2d00_0000 + number as u32 * 7919, 10_000 + number as u16);
    let mut packets = customers();
    for number in 0..600 {
        let at_us = BEGIN_S * SECOND_US - 900_000 + number * 1000;
        packets.push((at_us, Hop::Outside, datagram(source(number % 300), (NAMES, 53), 30)));
        packets.push((at_us + 500, Hop::Inside, datagram((NAMES, 53), source(number % 300), 90)));
    }
    packets.extend(attack(18_000, |number| {
        datagram(source(number % 300), (NAMES, 53), 800 + (number * 31 % 200) as usize)
    }));
    let (report, _) = detect(packets, of_line);
    assert_eq!(report["attacks"][0]["victim"], "198.18.0.89", "{report}");
    assert!(number(&report, "dropped") > 0.8 * 180_000.0, "{report}");
}

/// A flood of forged sources. 27 in 1,000 packets are from forty sources that the server answers.
#[test]
fn sources_that_were_answered_do_not_undo_a_rule() {
    let source = |number: u64| (0x2d00_0000 + number as u32 * 7919, 10_000 + number as u16);
    let mut packets = customers();
    for number in 0..40 * 12 * 2 {
        let at_us = (BEGIN_S - 2) * SECOND_US + number * 12_500;
        packets.push((at_us, Hop::Outside, datagram(source(number % 40), (NAMES, 53), 30)));
        packets.push((at_us + 500, Hop::Inside, datagram((NAMES, 53), source(number % 40), 90)));
    }
    packets.extend(attack(3000, |number| {
        let made_up = ((number as u32).wrapping_mul(0x9e37_79b1) >> 1, 1024 + (number * 7919 % 60_000) as u16);
        let of = if number % 1000 < 27 { source(number % 40) } else { made_up };
        datagram(of, (NAMES, 53), 800 + (number * 31 % 200) as usize)
    }));
    let (report, _) = detect(packets, of_line);
    assert!(number(&report, "dropped") > 0.8 * 30_000.0, "{report}");
    let actions = report["attacks"][0]["actions"].as_array().expect("a list");
    assert!(actions.iter().all(|action| action["state"] != "collateral"), "{report}");
}
