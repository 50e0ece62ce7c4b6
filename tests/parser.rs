//! Compares the C packet parser with the reference, field by field.
//!
//! A shim writes each `struct packet` to the memory of a filter's counters, 16 bytes each. The test reads it from
//! there. The fields of a malformed packet are unspecified, so only its reason is compared.

mod engines;
#[path = "random/packets.rs"]
mod packets;

use engines::{frame_sets, link_of};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use weir_abi::packet::flag;
use weir_abi::{BURST_MAX, Counter, PacketView, Reason, Verdict};
use weir_engine::clang::Clang;
use weir_engine::cpu::Cpu;
use weir_engine::{Bound, Filter, NativeFilter, ProgramShape};
use weir_policy::ir::eval::packet::{self, Frame, Packet};
use weir_test_support as support;

const SHIM: &str = r#"
#include "core/packet.h"

const uint32_t weir_abi_version = WEIR_ABI_VERSION;

void weir_parse(const struct weir_burst *burst)
{
	struct packet *packets = (struct packet *)burst->counters.reasons;

	for (uint32_t i = 0; i < burst->count; i++) {
		const struct frame frame = burst_frame(burst, i);

		burst->verdicts[i] = parse_packet(&frame, &packets[i]);
	}
}
"#;

/// Number of counters that one `struct packet` occupies.
const COUNTERS: usize = size_of::<PacketView>() / size_of::<Counter>();
/// Return value of `parse_packet` for a well-formed packet: `REASON_NONE`.
const REASON_NONE: u32 = 31;
/// Number of first bytes of a packet. The test flips every bit of them.
const FLIPPED_BYTES: usize = 96;
/// Number of first bytes of a packet. The test truncates the packet after each of them.
const CUT_BYTES: usize = 140;
/// Number of random packets: well formed, real or broken.
const RANDOM_PACKETS: usize = 150_000;

/// The compiled C parser.
fn c_parser() -> NativeFilter {
    let object = Clang::find().expect("clang is there").native("parser", SHIM, Cpu::Native).expect("the shim compiles");
    let rules = BURST_MAX * COUNTERS - usize::from(Reason::RULE_BASE);
    let program = ProgramShape { chains: vec!["parse".to_owned()], rules, ..ProgramShape::default() };
    NativeFilter::load("parser", &object.object, &program, Bound::default()).expect("the shim loads")
}

/// Parses packets with both parsers and compares the results.
fn compare(c: &mut NativeFilter, packets: &[support::Packet]) {
    let mut at = 0;
    for burst in frame_sets(packets).iter().flat_map(|set| set.bursts()) {
        let mut reasons = [Verdict(0); BURST_MAX];
        c.decide(0, &burst, &mut reasons).expect("native code does not fail");
        let counters = c.counters();
        for index in 0..burst.len() {
            let packet = &packets[at + index];
            let frame = Frame { bytes: &packet.bytes, wire_len: packet.wire, link: link_of(packet.link), time_ns: 0 };
            let (expected, malformed) = packet::parse(frame);
            assert_eq!(reasons[index].0, malformed.map_or(REASON_NONE, |reason| reason.0.into()), "{packet}");
            if malformed.is_none() {
                let words = &counters[index * COUNTERS..][..COUNTERS];
                let bytes: Vec<u8> =
                    words.iter().flat_map(|c| [c.packets, c.bytes]).flat_map(u64::to_ne_bytes).collect();
                compare_fields(packet, &bytes, &expected);
            }
        }
        at += burst.len();
    }
    assert_eq!(at, packets.len());
}

/// Compares one `struct packet`, at the offsets that crates/abi asserts, with the reference's fields.
fn compare_fields(packet: &support::Packet, c: &[u8], expected: &Packet) {
    let number = |at: usize, bytes: usize| -> u64 {
        let mut word = [0; 8];
        word[..bytes].copy_from_slice(&c[at..at + bytes]);
        u64::from_le_bytes(word)
    };
    let address = |at: usize| match expected.l3 {
        weir_abi::packet::L3::Ipv6 => u128::from(number(at, 8)) << 64 | u128::from(number(at + 8, 8)),
        _ => number(at, 4).into(),
    };
    assert_eq!((address(16), address(32)), (expected.saddr, expected.daddr), "addresses of {packet}");
    let tag = |index: usize| expected.vlan.get(index).copied().unwrap_or(0);
    let window = expected.window | expected.udp_length;
    let fields: [(&str, usize, usize, u64); 31] = [
        ("cap", 8, 4, packet.bytes.len().min(weir_abi::WINDOW_BYTES) as u64),
        ("len", 12, 4, expected.wire_len.into()),
        ("l3_offset", 48, 2, expected.l3_offset as u64),
        ("l4_offset", 50, 2, expected.l4_offset as u64),
        ("ether_type", 52, 2, expected.ether_type.into()),
        ("vlan_id", 54, 2, (tag(0) & 0xfff).into()),
        ("inner_vlan_id", 56, 2, (tag(1) & 0xfff).into()),
        ("ip_length", 58, 2, expected.ip_length.into()),
        ("ip_id", 60, 2, expected.ip_id.into()),
        ("sport", 62, 2, expected.sport.into()),
        ("dport", 64, 2, expected.dport.into()),
        ("window", 66, 2, window.into()),
        ("seq", 68, 4, expected.seq.into()),
        ("ack", 72, 4, expected.ack.into()),
        ("l3", 76, 1, expected.l3 as u64),
        ("l4", 77, 1, expected.l4 as u64),
        ("proto", 78, 1, expected.proto.into()),
        ("fragment", 79, 1, expected.fragment as u64),
        ("ttl", 80, 1, expected.ttl.into()),
        ("tos", 81, 1, expected.tos.into()),
        ("tcp_flags", 82, 1, expected.tcp_flags.into()),
        ("ext", 83, 1, expected.ext.into()),
        ("vlan_tags", 84, 1, expected.vlan.len() as u64),
        ("vlan_pcp", 85, 1, (tag(0) >> 13).into()),
        ("icmp_type", 86, 1, expected.icmp_type.into()),
        ("icmp_code", 87, 1, expected.icmp_code.into()),
        ("flags", 88, 1, if expected.ip_options { flag::IP_OPTIONS.into() } else { 0 }),
        ("next_header", 89, 1, expected.next_header.into()),
        ("frag_off", 90, 2, expected.frag_off.into()),
        ("l4_length", 92, 2, expected.l4_length.into()),
        ("doff and hdrlength", 94, 2, u64::from(expected.doff) | u64::from(expected.hdrlength) << 8),
    ];
    for (name, at, bytes, expected) in fields {
        assert_eq!(number(at, bytes), expected, "{name} of {packet}");
    }
}

/// The packets of all features.
fn feature_packets() -> Vec<support::Packet> {
    let mut packets = support::cases::packets_of_features();
    packets.sort_by_key(|packet| (packet.link.linktype(), packet.bytes.clone(), packet.wire));
    packets.dedup();
    packets
}

/// Every feature's packet with each bit flipped, truncated after each byte in the capture, and ending after each byte.
#[test]
fn each_bit_and_each_end_of_every_feature_packet() {
    let mut c = c_parser();
    let mut count = 0;
    for packet in feature_packets() {
        let mut broken = vec![packet.clone()];
        for bit in 0..packet.bytes.len().min(FLIPPED_BYTES) * 8 {
            let mut flipped = packet.clone();
            flipped.bytes[bit / 8] ^= 1 << (bit % 8);
            broken.push(flipped);
        }
        for end in 0..packet.bytes.len().min(CUT_BYTES) {
            let captured = packet.bytes[..end].to_vec();
            broken.push(support::Packet { bytes: captured.clone(), ..packet.clone() });
            broken.push(support::Packet::new(packet.link, captured));
        }
        count += broken.len();
        compare(&mut c, &broken);
    }
    assert!(count > 200_000, "only {count} packets");
}

#[test]
fn random_packets() {
    let mut c = c_parser();
    let kinds = [packets::well_formed(), packets::broken(), packets::real(), packets::broken_real()];
    let mut runner = TestRunner::deterministic();
    let mut packets = Vec::with_capacity(RANDOM_PACKETS);
    for kind in kinds.iter().cycle().take(RANDOM_PACKETS) {
        packets.push(kind.new_tree(&mut runner).expect("no strategy rejects everything").current());
    }
    // Sorted by link layer, so that bursts are long.
    packets.sort_by_key(|packet| packet.link.linktype());
    compare(&mut c, &packets);
}
