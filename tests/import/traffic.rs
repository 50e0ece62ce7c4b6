//! The packets that rulesets decide: connections, floods, scans, random packets and captures, IPv4 and IPv6.

use crate::packets;
use crate::rulesets::root;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use weir_abi::packet::{Fragment, ext};
use weir_engine::capture::CaptureReader;
use weir_policy::ir::eval::packet::{self, Frame};
use weir_test_support::{self as support, Link};

/// Number of random packets.
const RANDOM: usize = 1200;
/// Most packets of each capture.
const CAPTURED: usize = 600;
const CAPTURES: [&str; 2] = ["examples/firewall/connections.pcap", "examples/edge/attack.pcap"];
/// Addresses from outside: among them those that rulesets name.
const OUTSIDE: [&str; 6] = ["198.51.100.7", "203.0.113.9", "203.0.113.66", "10.1.2.3", "172.16.5.5", "100.64.1.1"];
const INSIDE: [&str; 3] = ["192.0.2.1", "192.0.2.25", "192.0.2.80"];
const OUTSIDE6: [&str; 3] = ["2001:db8:f::7", "2001:db8:bad::1", "2001:db8:f::9"];
const INSIDE6: [&str; 2] = ["2001:db8:1::1", "2001:db8:1::80"];
/// Ports of services, and others.
const PORTS: [u16; 16] = [22, 25, 53, 80, 123, 443, 1900, 3306, 5060, 8080, 9001, 11211, 23, 137, 33434, 6000];
/// Flags that a SYN, an answer, data and scans have.
const FLAGS: [&str; 12] = [
    "syn",
    "ack",
    "rst",
    "fin",
    "syn|ack",
    "fin|ack",
    "fin|syn",
    "syn|rst",
    "fin|psh|urg",
    "0",
    "fin|syn|rst|psh|ack|urg",
    "psh|ack",
];

/// The packets, with the side from which they come: `true` is outside.
pub fn packets() -> Vec<(bool, Vec<u8>)> {
    let mut all = Vec::new();
    for line in lines() {
        let packet = support::packet(&line).unwrap_or_else(|error| panic!("{line}: {error}"));
        all.push(packet.bytes);
    }
    all.extend(random());
    all.extend(CAPTURES.iter().flat_map(|path| captured(path)));
    all.into_iter()
        .filter(|packet| is_plain(packet))
        .filter_map(|packet| Some((is_outside(&packet)?, packet)))
        .collect()
}

/// Whether a packet comes from outside. Of two ends that are both no addresses from inside, the one with the smaller
/// address is outside, so answers come from the other side than their questions. `None` if both are from inside.
fn is_outside(packet: &[u8]) -> Option<bool> {
    let (source, destination, inside): (&[u8], &[u8], &[u8]) = match packet[0] >> 4 {
        6 => (&packet[8..24], &packet[24..40], &[0x20, 0x01, 0x0d, 0xb8, 0, 1]),
        _ => (&packet[12..16], &packet[16..20], &[192, 0, 2]),
    };
    match (source.starts_with(inside), destination.starts_with(inside)) {
        (true, true) => None,
        (true, false) => Some(false),
        (false, true) => Some(true),
        (false, false) => Some(source < destination),
    }
}

/// Whether it is well-formed IP in one piece, with a header that a kernel forwards as it is.
fn is_plain(packet: &[u8]) -> bool {
    let frame = Frame { bytes: packet, wire_len: packet.len() as u32, link: weir_abi::Link::RawIp, time_ns: 0 };
    let (parsed, malformed) = packet::parse(frame);
    // nftables treats these two as protocols, Weir as extension headers.
    let is_walked = parsed.ext & (ext::MH | ext::AH) != 0;
    malformed.is_none() && !is_walked && parsed.fragment == Fragment::None && packet.len() < 9000
}

fn lines() -> Vec<String> {
    let mut lines = Vec::new();
    let families = [("ip", &OUTSIDE[..], &INSIDE[..]), ("ip6", &OUTSIDE6[..], &INSIDE6[..])];
    for (family, outside, inside) in families {
        let mut port = 20_000;
        for (at, source) in outside.iter().enumerate() {
            for (service, dport) in PORTS.iter().enumerate() {
                let target = inside[(at + service) % inside.len()];
                port += 1;
                let up = format!("{family} saddr={source} daddr={target}");
                let down = format!("{family} saddr={target} daddr={source}");
                let ports = format!("sport={port} dport={dport}");
                let back = format!("sport={dport} dport={port}");
                lines.push(format!("{up} / tcp {ports} flags=syn seq=100 window=4000 options=020405b4"));
                lines.push(format!("{down} / tcp {back} flags=syn|ack seq=500 ack=101 window=4000"));
                lines.push(format!("{up} / tcp {ports} flags=ack seq=101 ack=501 window=4000"));
                lines.push(format!("{up} / tcp {ports} flags=psh|ack seq=101 ack=501 window=4000 / payload 20"));
                lines.push(format!("{down} / tcp {back} flags=ack seq=501 ack=121 window=4000 / payload 30"));
                lines.push(format!("{up} / udp {ports} / payload {}", 20 + service * 60));
                lines.push(format!("{down} / udp {back} / payload 40"));
                lines.push(format!("{down} / udp sport={} dport={dport} / payload 12", port + 2000));
                lines.push(format!(
                    "{up} / tcp sport={} dport={dport} flags={} window=0",
                    port + 3000,
                    FLAGS[service % 12]
                ));
            }
        }
        lines.extend(messages(family, outside, inside));
    }
    lines
}

fn messages(family: &str, outside: &[&str], inside: &[&str]) -> Vec<String> {
    let (word, kinds) = match family {
        "ip" => ("icmp", &[0u8, 3, 5, 8, 9, 11, 12, 13, 17][..]),
        _ => ("icmp6", &[1u8, 2, 3, 4, 128, 129, 140, 200][..]),
    };
    let mut lines = Vec::new();
    for source in outside {
        for kind in kinds {
            lines.push(format!(
                "{family} saddr={source} daddr={} / {word} type={kind} code=0 id=7 seq=1 / payload 40",
                inside[0]
            ));
        }
        for protocol in ["sctp sport=5000 dport=80", "udplite sport=5000 dport=80", "dccp sport=5000 dport=80"] {
            lines.push(format!("{family} saddr={source} daddr={} / {protocol} / payload 20", inside[0]));
        }
        for (at, flags) in FLAGS.iter().enumerate() {
            let ports = format!("sport={} dport=80", 900 + at);
            lines.push(format!("{family} saddr={source} daddr={} / tcp {ports} flags={flags}", inside[0]));
        }
    }
    lines
}

fn random() -> Vec<Vec<u8>> {
    let mut runner = TestRunner::deterministic();
    let mut found = Vec::new();
    for kind in [packets::well_formed(), packets::real()].iter().cycle().take(RANDOM) {
        let packet = kind.new_tree(&mut runner).expect("no strategy rejects everything").current();
        found.extend(ip(&packet));
    }
    found
}

/// The IP packet in a frame without tags.
fn ip(packet: &support::Packet) -> Option<Vec<u8>> {
    let bytes = match packet.link {
        Link::RawIp => &packet.bytes[..],
        Link::Ethernet if matches!(packet.bytes.get(12..14)?, [0x08, 0] | [0x86, 0xdd]) => packet.bytes.get(14..)?,
        _ => return None,
    };
    (bytes.len() >= 20 && packet.bytes.len() == packet.wire as usize).then(|| bytes.to_vec())
}

fn captured(path: &str) -> Vec<Vec<u8>> {
    let mut reader = CaptureReader::open(&root().join(path)).expect("a shipped capture");
    let mut found = Vec::new();
    while let Ok(Some(burst)) = reader.next_burst() {
        for index in 0..burst.frames().len() {
            let frame = weir_loading::eval::frame(burst.frames(), index);
            let start = if frame.link == weir_abi::Link::Ethernet { 14 } else { 0 };
            found.extend(frame.bytes.get(start..).filter(|ip| ip.len() >= 20).map(<[u8]>::to_vec));
        }
        if found.len() >= CAPTURED {
            break;
        }
    }
    found.truncate(CAPTURED);
    found
}
