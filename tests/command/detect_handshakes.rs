//! `weir detect` on a flood of SYNs that look like the SYNs of the server's customers: a simulated SYN proxy lets
//! through clients that complete a handshake.

use crate::detect::number;
use crate::weir::Sandbox;
use serde_json::Value;

const SERVER: &str = "192.0.2.80";
const SECONDS: u32 = 20;
/// The flood begins at half of the time.
const ATTACK_S: u32 = SECONDS / 2;
const ATTACK_PPS: u32 = 1000;
const CUSTOMERS_PER_S: u32 = 20;
/// Segments of a connection behind its handshake, half of them of the server.
const SEGMENTS: u32 = 8;
const MICROS: u32 = 1_000_000;

/// A packet: microseconds, its text, whether it is of the attack.
type Record = (u32, String, bool);

/// A segment between a client, a different one for each number, and the server.
fn segment(number: u32, is_client: bool, tcp: &str, time_us: u32) -> String {
    let [_, first, second, third] = number.wrapping_mul(0x9e37_79b1).to_be_bytes();
    let (client, port) = (format!("100.{first}.{second}.{third}"), 32768 + number % 16_000);
    let ends = match is_client {
        true => format!("ip saddr={client} daddr={SERVER} / tcp sport={port} dport=80"),
        false => format!("ip saddr={SERVER} daddr={client} / tcp sport=80 dport={port}"),
    };
    format!("eth / {ends} {tcp} / at={}.{:06}", 1000 + time_us / MICROS, time_us % MICROS)
}

/// The SYN of a client and the server's answer.
fn asks(number: u32, time_us: u32, is_attack: bool) -> [Record; 2] {
    let syn = segment(number, true, &format!("flags=syn seq={number}"), time_us);
    let answer = format!("flags=syn,ack seq={} ack={}", number ^ 0xabcd, number + 1);
    let answer = segment(number, false, &answer, time_us + 100);
    [(time_us, syn, is_attack), (time_us + 100, answer, false)]
}

/// The connection of a customer.
fn connection(number: u32, begin_us: u32) -> Vec<Record> {
    let (own, other) = (number + 1, (number ^ 0xabcd) + 1);
    let mut records = Vec::from(asks(number, begin_us, false));
    for step in 0..=SEGMENTS {
        let is_client = step % 2 == 0;
        let (seq, ack) = if is_client { (own, other) } else { (other, own) };
        let time_us = begin_us + 30_000 + step * 10_000;
        records.push((time_us, segment(number, is_client, &format!("flags=ack seq={seq} ack={ack}"), time_us), false));
    }
    records
}

/// The recording in the notation of packets, and its labels.
fn recording() -> (String, String) {
    let customers = CUSTOMERS_PER_S * SECONDS;
    let flood = (0..ATTACK_PPS * ATTACK_S)
        .flat_map(|number| asks(customers + number, ATTACK_S * MICROS + number * (MICROS / ATTACK_PPS), true));
    let mut records: Vec<Record> = (0..customers)
        .flat_map(|number| connection(number, number * (MICROS / CUSTOMERS_PER_S)))
        .chain(flood)
        .collect();
    records.sort_by_key(|(time_us, ..)| *time_us);
    let labels =
        records.iter().enumerate().map(|(index, (.., is_attack))| format!("{},{}\n", index + 1, u8::from(*is_attack)));
    let labels = labels.collect();
    let packets: Vec<String> = records.into_iter().map(|(_, packet, _)| packet).collect();
    (packets.join("\n"), labels)
}

fn report(options: &str) -> Value {
    let (sandbox, (packets, labels)) = (Sandbox::new(), recording());
    sandbox.put_capture("c.pcap", &packets).put("labels.csv", labels);
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
