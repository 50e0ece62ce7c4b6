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
    records(bytes).into_iter().map(|(packet, _)| packet).collect()
}

/// The packets of a classic capture, with their lengths on the wire.
fn records(bytes: &[u8]) -> Vec<(Vec<u8>, u32)> {
    let mut rest = &bytes[24..];
    let mut records = Vec::new();
    while !rest.is_empty() {
        let [captured, wire] =
            [8, 12].map(|at| u32::from_le_bytes([rest[at], rest[at + 1], rest[at + 2], rest[at + 3]]));
        let end = 16 + captured as usize;
        records.push((rest[16..end].to_vec(), wire));
        rest = &rest[end..];
    }
    records
}

/// The capture with at most so many bytes of each packet.
fn cut(bytes: &[u8], snaplen: usize) -> Vec<u8> {
    let mut short = bytes[..24].to_vec();
    for (packet, wire) in records(bytes) {
        let captured = &packet[..packet.len().min(snaplen)];
        short.extend([0; 8]);
        short.extend((captured.len() as u32).to_le_bytes());
        short.extend(wire.to_le_bytes());
        short.extend(captured);
    }
    short
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

/// A SYN that the client sends again becomes the SYN to the server again, unless that is what the client has sent.
#[test]
fn the_syn_in_place_of_a_repeated_one_is_written() {
    let sandbox = Sandbox::new();
    sandbox.put("p.weir", POLICY).put_capture("syn.pcap", SYN);
    let line = "replay p.weir --engine eval --inside 192.0.2.0/24";
    sandbox.run(&format!("{line} --in syn.pcap --replies r.pcap --json")).json();
    let (cookie, ..) = segment(&packets(&fs::read(sandbox.path("r.pcap")).expect("it was written"))[0]);
    let ack = format!(
        "eth / ip saddr=203.0.113.9 daddr=192.0.2.1 / tcp dport=80 flags=ack seq=101 ack={} window=64240",
        cookie.wrapping_add(1)
    );
    sandbox.put_capture("t.pcap", &format!("{SYN}\n{ack}\n{SYN}\n"));
    sandbox.run(&format!("{line} --in t.pcap --out o.pcap --replies r.pcap --json")).json();
    let [passed, own] =
        ["o.pcap", "r.pcap"].map(|name| packets(&fs::read(sandbox.path(name)).expect("it was written")));
    let again = segment(&own[2]);
    assert_eq!((own.len(), again), (3, (100, 0, 2)));
    assert_eq!(own[1..], passed[..], "the SYN has the options of the server's side");

    // The client's SYN is the one that Weir sends, so its repetition passes as it is.
    let same = &own[1];
    let mut capture = fs::read(sandbox.path("t.pcap")).expect("it was put there");
    capture.extend([0; 8]);
    capture.extend([same.len() as u32; 2].iter().flat_map(|length| length.to_le_bytes()));
    capture.extend(same);
    fs::write(sandbox.path("u.pcap"), capture).expect("it can be written");
    sandbox.run(&format!("{line} --in u.pcap --out o.pcap --replies r.pcap --json")).json();
    let [passed, own] =
        ["o.pcap", "r.pcap"].map(|name| packets(&fs::read(sandbox.path(name)).expect("it was written")));
    assert_eq!((own.len(), &passed[2]), (3, same));
}

#[test]
fn packets_of_a_cut_capture_have_the_length_that_leaves() {
    let sandbox = Sandbox::new();
    let outputs = "--in t.pcap --out o.pcap --replies r.pcap --json";
    let run = |engine: &str| {
        sandbox.run(&format!("replay p.weir --engine {engine} --inside 192.0.2.0/24 {outputs}")).json();
    };
    // The SYN-ACK has 58 bytes, as many as were captured of the SYN.
    let syn = format!("{SYN} / payload 100");
    sandbox.put("p.weir", POLICY).put_capture("whole.pcap", &syn);
    let put_cut = || {
        let whole = fs::read(sandbox.path("whole.pcap")).expect("it was put there");
        fs::write(sandbox.path("t.pcap"), cut(&whole, 58)).expect("it can be written");
    };
    let lengths = |name: &str| {
        let records = records(&fs::read(sandbox.path(name)).expect("it was written"));
        records.iter().map(|(packet, wire)| (packet.len() as u32, *wire)).collect::<Vec<_>>()
    };
    put_cut();
    run("eval");
    assert_eq!(lengths("r.pcap"), [(58, 58)]);
    let (cookie, ..) = segment(&packets(&fs::read(sandbox.path("r.pcap")).expect("it was written"))[0]);
    let next = cookie.wrapping_add(1);
    sandbox.put_capture(
        "whole.pcap",
        &format!(
            "{syn}
eth / ip saddr=203.0.113.9 daddr=192.0.2.1 / tcp dport=80 flags=ack seq=101 ack={next} window=64240 / payload 100
eth / ip saddr=192.0.2.1 daddr=203.0.113.9 / tcp sport=80 dport=40000 flags=syn,ack seq=500 ack=101
eth / ip saddr=203.0.113.9 daddr=192.0.2.1 / tcp dport=80 flags=ack seq=101 ack={next} window=64240 / payload 100"
        ),
    );
    put_cut();
    for engine in ["eval", "native"] {
        run(engine);
        assert_eq!(lengths("r.pcap"), [(58, 58), (58, 58), (55, 55)], "{engine}: SYN-ACK, SYN, keep-alive");
        assert_eq!(
            lengths("o.pcap"),
            [(58, 58), (55, 55), (58, 154)],
            "{engine}: a translated packet keeps its length"
        );
    }
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
}
