//! The packets for random policies.
#![allow(dead_code, reason = "each test uses its part")]

use crate::engines::root;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use std::sync::OnceLock;
use weir_abi::packet::L3;
use weir_engine::capture::CaptureReader;
use weir_policy::ir::eval::packet::parse;
use weir_test_support::mutation::{mutated, spliced};
use weir_test_support::strategy::{self, Pool};
use weir_test_support::{Link, Packet};

/// The source of real packets.
pub const CAPTURE: &str = "examples/edge/attack.pcap";
/// One real packet of this many is used.
const STRIDE: usize = 7;
/// Number of addresses of real packets that policies use.
const REAL_ADDRESSES: usize = 6;

/// The time of the first packet, and possible gaps between packets: none, some around a tick of 10 ms, and some after
/// which a limit has room again.
pub const START_NS: u64 = 1_700_000_000_000_000_000;
pub const GAPS_NS: [u64; 9] = [0, 0, 0, 1_000, 3_000_000, 10_000_000, 24_000_000, 250_000_000, 7_000_000_000];

/// The real packets.
pub fn captured() -> &'static [Packet] {
    static PACKETS: OnceLock<Vec<Packet>> = OnceLock::new();
    PACKETS.get_or_init(|| {
        let mut reader = CaptureReader::open(&root().join(CAPTURE)).expect("the example has its capture");
        let mut packets = Vec::new();
        while let Some(burst) = reader.next_burst().expect("the capture is whole") {
            let frames = burst.frames();
            for index in 0..frames.len() {
                let wire = frames.wire_len(index);
                let (bytes, time_ns) = (frames.bytes(index).to_vec(), frames.time_ns(index));
                packets.push(Packet { link: Link::Ethernet, bytes, wire, time_ns });
            }
        }
        packets.into_iter().step_by(STRIDE).collect()
    })
}

/// Documentation addresses, and some addresses of real packets.
pub fn pool() -> &'static Pool {
    static POOL: OnceLock<Pool> = OnceLock::new();
    POOL.get_or_init(|| {
        let mut pool = Pool::default();
        let step = captured().len() / REAL_ADDRESSES;
        for packet in captured().iter().step_by(step.max(1)) {
            let frame = weir_policy::ir::eval::packet::Frame {
                bytes: &packet.bytes,
                wire_len: packet.wire,
                link: weir_abi::Link::Ethernet,
                time_ns: 0,
            };
            let (parsed, _) = parse(frame);
            if parsed.l3 == L3::Ipv4 {
                pool.v4.extend([parsed.saddr as u32, parsed.daddr as u32].map(std::net::Ipv4Addr::from));
            }
        }
        pool
    })
}

/// Packets with correct headers.
pub fn well_formed() -> BoxedStrategy<Packet> {
    strategy::packets(pool()).boxed()
}

/// Mutated packets, or combinations of two packets.
pub fn broken() -> BoxedStrategy<Packet> {
    prop_oneof![3 => mutated(well_formed()), 1 => spliced(well_formed(), well_formed())].boxed()
}

/// Real packets.
pub fn real() -> BoxedStrategy<Packet> {
    proptest::sample::select(captured()).boxed()
}

/// Mutated real packets.
pub fn broken_real() -> BoxedStrategy<Packet> {
    mutated(real()).boxed()
}

/// `count` packets with random gaps.
pub fn in_time(packet: impl Strategy<Value = Packet>, count: usize) -> impl Strategy<Value = Vec<Packet>> {
    vec((packet, select(GAPS_NS.to_vec())), count).prop_map(|packets| {
        let mut time_ns = START_NS;
        let next = |(packet, gap_ns): (Packet, u64)| {
            time_ns += gap_ns;
            Packet { time_ns, ..packet }
        };
        packets.into_iter().map(next).collect()
    })
}
