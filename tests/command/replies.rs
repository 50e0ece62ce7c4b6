//! `replay --replies`: the packets that Weir itself sends, and `--out` with changed packets.

use crate::weir::Sandbox;
use serde_json::json;
use std::fs;

const POLICY: &str = "tracking { pickup off; synproxy mss 1460 }
upstream {
  tcp synproxy
  ct state established accept
  tcp dport 80 ct state new accept
  drop
}
downstream { accept }
";
const SYN: &str = "eth / ip saddr=203.0.113.9 daddr=192.0.2.1 / tcp dport=80 flags=syn seq=100 window=64240";

/// The packets of a classic capture.
fn packets(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut rest = &bytes[24..];
    let mut packets = Vec::new();
    while !rest.is_empty() {
        let length = u32::from_le_bytes([rest[8], rest[9], rest[10], rest[11]]) as usize;
        packets.push(rest[16..16 + length].to_vec());
        rest = &rest[16 + length..];
    }
    packets
}

fn be32(bytes: &[u8]) -> u32 {
    u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

/// Number, acknowledgement and flags of a TCP segment over IPv4 on Ethernet, without IP options.
fn segment(packet: &[u8]) -> (u32, u32, u8) {
    (be32(&packet[38..]), be32(&packet[42..]), packet[47])
}

#[test]
fn what_weir_sends_itself_is_written() {
    let sandbox = Sandbox::new();
    sandbox.put("p.weir", POLICY).put_capture("syn.pcap", SYN);
    let line = "replay p.weir --engine eval --inside 192.0.2.0/24";
    sandbox.run(&format!("{line} --in syn.pcap --replies r.pcap --json")).json();
    let answers = packets(&fs::read(sandbox.path("r.pcap")).expect("it was written"));
    let (cookie, ack, flags) = segment(&answers[0]);
    assert_eq!((answers.len(), ack, flags), (1, 101, 0x12));
    let next = cookie.wrapping_add(1);

    sandbox.put_capture(
        "t.pcap",
        &format!(
            "{SYN}
eth / ip saddr=203.0.113.9 daddr=192.0.2.1 / tcp dport=80 flags=ack seq=101 ack={next} window=64240
eth / ip saddr=192.0.2.1 daddr=203.0.113.9 / tcp sport=80 dport=40000 flags=syn,ack seq=500 ack=101
eth / ip saddr=203.0.113.9 daddr=192.0.2.1 / tcp dport=80 flags=ack seq=101 ack={next} window=64240
eth / ip saddr=192.0.2.1 daddr=203.0.113.9 / tcp sport=80 dport=40000 flags=ack seq=501 ack=101 / payload 7
eth / ip saddr=203.0.113.9 daddr=192.0.2.1 / udp dport=80"
        ),
    );
    let outputs = "--out o.pcap --dropped d.pcap --replies r.pcap";
    let report = sandbox.run(&format!("{line} --in t.pcap {outputs} --json --verdicts")).json();
    assert_eq!(report["verdicts"], json!(["reply", "accept", "accept", "accept", "accept", "drop"]));
    assert_eq!([&report["passed"], &report["dropped"], &report["replied"]], [&json!(4), &json!(1), &json!(1)]);
    assert_eq!(report["reasons"]["syn-cookie"], json!(1));
    let segments = |name: &str| {
        let packets = packets(&fs::read(sandbox.path(name)).expect("it was written"));
        packets.iter().map(|packet| segment(packet)).collect::<Vec<_>>()
    };
    let (syn, keep_alive) = ((100, 0, 2), (cookie, 101, 0x10));
    assert_eq!(segments("r.pcap"), [(cookie, 101, 0x12), syn, keep_alive]);
    assert_eq!(segments("o.pcap"), [syn, keep_alive, (101, 501, 0x10), (next, 101, 0x10)]);
    assert_eq!(packets(&fs::read(sandbox.path("d.pcap")).expect("it was written")).len(), 1);

    let text = sandbox.run(&format!("{line} --in t.pcap")).out;
    assert!(text.contains("answered") && text.contains("Answered by") && text.contains("(syn-cookie)"), "{text}");
}

#[test]
fn what_is_refused() {
    let sandbox = Sandbox::new();
    sandbox.put("p.weir", POLICY).put_capture("t.pcap", SYN);
    let line = |options: &str| format!("replay p.weir --in t.pcap {options}");
    sandbox.run(&line("--out a --replies ./a")).fails(2, &["weir: --out and --replies must be different files"]);
    sandbox.run(&line("--replies - --dropped /dev/stdout")).fails(2, &["--dropped and --replies must be different"]);
    sandbox.run(&line("--replies t.pcap")).fails(2, &["outputs and inputs must be different files"]);
    sandbox.run(&line("--replies - --json")).fails(2, &["name a file with --out, --dropped or --replies"]);
    for engine in ["native", "xdp"] {
        let refused = format!("`synproxy` is not yet supported by this engine ({engine})");
        sandbox.run(&line(&format!("--engine {engine}"))).fails(2, &["E0501", "p.weir:3:3", &refused]);
    }
}
