//! `weir detect` on a flood of SYNs that look as those of the server's customers: a simulated SYN proxy lets through who
//! completes a handshake.

use crate::detect::number;
use crate::weir::Sandbox;
use serde_json::Value;

const SERVER: [u8; 4] = [192, 0, 2, 80];
const SECONDS: u32 = 20;
/// The flood begins at half of the time.
const ATTACK_S: u32 = SECONDS / 2;
const ATTACK_PPS: u32 = 1000;
const CUSTOMERS_PER_S: u32 = 20;
/// Segments of a connection behind its handshake, half of them of the server.
const SEGMENTS: u32 = 8;
const MICROS: u32 = 1_000_000;

const SYN: u8 = 2;
const ACK: u8 = 16;

/// A packet: microseconds, the frame, whether it is of the attack.
type Record = (u32, Vec<u8>, bool);

/// A segment of TCP in Ethernet, without checksums.
fn segment(
    (source, sport): ([u8; 4], u16),
    (destination, dport): ([u8; 4], u16),
    flags: u8,
    seq: u32,
    ack: u32,
) -> Vec<u8> {
    let options: &[u8] = if flags & SYN != 0 { &[2, 4, 5, 180, 4, 2, 1, 1] } else { &[] };
    let doff = 5 + options.len() as u8 / 4;
    let length = 20 + u16::from(doff) * 4;
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
    frame.extend(length.to_be_bytes());
    frame.extend([0, 0, 0x40, 0, 60, 6, 0, 0]);
    frame.extend(source.into_iter().chain(destination));
    frame.extend(sport.to_be_bytes().into_iter().chain(dport.to_be_bytes()));
    frame.extend(seq.to_be_bytes().into_iter().chain(ack.to_be_bytes()));
    frame.extend([doff << 4, flags, 0xfa, 0xf0, 0, 0, 0, 0]);
    frame.extend(options);
    frame
}

/// An address and a port that are different for each number.
fn source(number: u32) -> ([u8; 4], u16) {
    let [_, first, second, third] = number.wrapping_mul(0x9e37_79b1).to_be_bytes();
    ([100, first, second, third], 32768 + (number % 16_000) as u16)
}

/// The SYN of a source and the server's answer.
fn asks(number: u32, time_us: u32, is_attack: bool) -> [Record; 2] {
    let (client, server) = (source(number), (SERVER, 80));
    let answer = segment(server, client, SYN | ACK, number ^ 0xabcd, number + 1);
    [(time_us, segment(client, server, SYN, number, 0), is_attack), (time_us + 100, answer, false)]
}

/// The connection of a customer.
fn connection(number: u32, begin_us: u32) -> Vec<Record> {
    let (client, server) = (source(number), (SERVER, 80));
    let (own, other) = (number + 1, (number ^ 0xabcd) + 1);
    let mut records = Vec::from(asks(number, begin_us, false));
    records.push((begin_us + 30_000, segment(client, server, ACK, own, other), false));
    for step in 1..=SEGMENTS {
        let is_client = step % 2 == 0;
        let (from, to) = if is_client { (client, server) } else { (server, client) };
        let (seq, ack) = if is_client { (own, other) } else { (other, own) };
        records.push((begin_us + 30_000 + step * 10_000, segment(from, to, ACK, seq, ack), false));
    }
    records
}

/// The recording and its labels.
fn recording() -> (Vec<u8>, String) {
    let customers = CUSTOMERS_PER_S * SECONDS;
    let flood = (0..ATTACK_PPS * ATTACK_S)
        .flat_map(|number| asks(customers + number, ATTACK_S * MICROS + number * (MICROS / ATTACK_PPS), true));
    let mut records: Vec<Record> = (0..customers)
        .flat_map(|number| connection(number, number * (MICROS / CUSTOMERS_PER_S)))
        .chain(flood)
        .collect();
    records.sort_by_key(|(time_us, ..)| *time_us);
    let head = [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65535, 1];
    let mut pcap: Vec<u8> = head.into_iter().flat_map(u32::to_le_bytes).collect();
    let mut labels = String::new();
    for (index, (time_us, frame, is_attack)) in records.into_iter().enumerate() {
        let length = frame.len() as u32;
        pcap.extend([1000 + time_us / MICROS, time_us % MICROS, length, length].into_iter().flat_map(u32::to_le_bytes));
        pcap.extend(frame);
        labels += &format!("{},{}\n", index + 1, u8::from(is_attack));
    }
    (pcap, labels)
}

fn report(options: &str) -> Value {
    let (sandbox, (pcap, labels)) = (Sandbox::new(), recording());
    sandbox.put("c.pcap", pcap).put("labels.csv", labels);
    sandbox.run(&format!("detect c.pcap --labels labels.csv --json {options}")).json()
}

#[test]
fn who_completes_a_handshake_passes_the_simulated_syn_proxy() {
    for options in ["", "--inside 192.0.2.0/24"] {
        let report = report(options);
        let attacks = report["attacks"].as_array().expect("a list");
        assert_eq!(attacks.len(), 1, "{report}");
        let attack = &attacks[0];
        assert_eq!([&attack["kind"], &attack["by"], &attack["action"]], ["syn-flood", "posture", "posture"]);
        let action = &attack["actions"][0];
        assert_eq!(action["rule"], "ip daddr 192.0.2.80 tcp synproxy");
        let left_s = f64::from(SECONDS) - number(attack, "from_s");
        assert!((f64::from(ATTACK_S) - 2.0..f64::from(ATTACK_S)).contains(&left_s), "{attack}");
        let (dropped, later) = (number(&report, "attack_dropped"), left_s * f64::from(ATTACK_PPS));
        assert!((later * 0.95..later * 1.05).contains(&dropped), "{later}: {report}");
        assert_eq!(number(&report, "legitimate_dropped"), 0.0, "{report}");
        assert_eq!(number(&report, "dropped"), dropped, "{report}");
        // New customers came all the time. The last may not have completed their handshakes.
        let customers = left_s * f64::from(CUSTOMERS_PER_S);
        assert!((customers * 0.9..=customers * 1.1).contains(&number(action, "completed")), "{customers}: {report}");
    }
}

#[test]
fn without_the_proxy_such_a_flood_is_only_reported() {
    let report = report("--no-synproxy");
    let attack = &report["attacks"][0];
    assert_eq!([&attack["kind"], &attack["by"]], ["syn-flood", "none"], "{report}");
    assert_eq!(number(&report, "dropped"), 0.0, "{report}");
}
