//! Random captures are read like by another reader. Mutated captures never cause a panic, and all packets before the
//! damage are read.

#![allow(clippy::unwrap_used)] // helpers of tests are tests

use std::io::Cursor;
use std::path::Path;

use pcap_parser::{Block, PcapBlockOwned, PcapError};
use proptest::prelude::*;
use weir_engine::capture::{CAPTURED_BYTES_MAX, CaptureReader};

mod sample;

use sample::{Order, Sample};

/// Captured bytes and length on the wire.
type Packet = (Vec<u8>, u32);

/// The packets before the first error, and whether there was one.
fn read(bytes: &[u8]) -> (Vec<Packet>, bool) {
    let (mut packets, mut last) = (Vec::new(), 0);
    let Ok(reader) = CaptureReader::from_stream(Path::new("random"), Box::new(Cursor::new(bytes.to_vec()))) else {
        return (packets, true);
    };
    let mut reader = reader.completing_segments();
    loop {
        match reader.next_burst() {
            Ok(Some(burst)) => {
                let frames = burst.frames();
                packets.extend((0..frames.len()).map(|index| (frames.bytes(index).to_vec(), frames.wire_len(index))));
                assert!(burst.first_packet() > last && !frames.is_empty());
                last = burst.first_packet() + frames.len() as u64 - 1;
                for index in 0..frames.len() {
                    let (record, len) = burst.record(index);
                    assert!(record.starts_with(burst.header(index)));
                    assert!(record.len() >= frames.bytes(index).len() && len >= frames.wire_len(index));
                }
                assert!(frames.frames().iter().all(|frame| frame.cap <= frame.len && frame.cap <= CAPTURED_BYTES_MAX));
            }
            Ok(None) => return (packets, false),
            Err(_) => return (packets, true),
        }
    }
}

/// The packets according to an independent reader.
fn read_by_pcap_parser(bytes: &[u8]) -> Vec<Packet> {
    let mut reader = pcap_parser::create_reader(1 << 20, Cursor::new(bytes.to_vec())).unwrap();
    let mut packets = Vec::new();
    loop {
        match reader.next() {
            Ok((consumed, block)) => {
                match block {
                    PcapBlockOwned::Legacy(packet) => {
                        packets.push((packet.data[..packet.caplen as usize].to_vec(), packet.origlen));
                    }
                    PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
                        packets.push((packet.data[..packet.caplen as usize].to_vec(), packet.origlen));
                    }
                    _ => {}
                }
                reader.consume(consumed);
            }
            Err(PcapError::Eof) => return packets,
            Err(PcapError::Incomplete(_)) => reader.refill().unwrap(),
            Err(error) => panic!("{error}"),
        }
    }
}

fn order() -> impl Strategy<Value = Order> {
    prop_oneof![Just(Order::Little), Just(Order::Big)]
}

fn packets() -> impl Strategy<Value = Vec<(Vec<u8>, u32)>> {
    let packet = (prop::collection::vec(any::<u8>(), 0..200), 0u32..2000);
    prop::collection::vec(packet, 0..150).prop_map(|packets| {
        packets.into_iter().map(|(bytes, more)| (bytes.clone(), bytes.len() as u32 + more)).collect()
    })
}

/// Link types that are read, and two that are not.
const LINK_TYPES: [u32; 23] =
    [0, 1, 8, 9, 12, 50, 51, 100, 101, 104, 107, 108, 109, 113, 117, 166, 189, 204, 226, 239, 258, 276, 4242];

/// Captures of any link type. Half of the packets begin with a byte that headers have.
fn links() -> impl Strategy<Value = Vec<u8>> {
    let first = prop::sample::select(vec![None, Some([2, 0, 0, 0]), Some([0xff, 3, 0, 0x21]), Some([0x0f, 0, 8, 0])]);
    (prop::sample::select(LINK_TYPES.to_vec()), first, packets()).prop_map(|(link_type, first, packets)| {
        let mut sample = Sample::pcapng(Order::Little);
        sample.interface(link_type as u16, 0, &[(13, &[4])]).interface(1, 0, &[]);
        for (index, (bytes, len)) in packets.iter().enumerate() {
            let head: &[u8] = if index % 2 == 0 { &[] } else { first.as_ref().map_or(&[], |first| &first[..]) };
            let bytes = [head, bytes].concat();
            sample.enhanced(u32::from(index % 3 == 0), 0, &bytes, *len + head.len() as u32);
        }
        sample.bytes
    })
}

fn pcap() -> impl Strategy<Value = Vec<u8>> {
    (order(), packets(), any::<bool>()).prop_map(|(order, packets, ns)| {
        let mut sample = Sample::pcap(order, if ns { 0xa1b2_3c4d } else { 0xa1b2_c3d4 }, 1);
        for (index, (bytes, len)) in packets.iter().enumerate() {
            sample.record(index as u32, 0, bytes, *len);
        }
        sample.bytes
    })
}

fn pcapng() -> impl Strategy<Value = Vec<u8>> {
    let blocks = prop::collection::vec(0u8..8, 0..150);
    (order(), packets(), blocks).prop_map(|(order, packets, blocks)| {
        let mut sample = Sample::pcapng(order);
        sample.interface(1, 0, &[(9, &[9])]).interface(1, 0, &[(2, b"two")]);
        for ((bytes, len), block) in packets.iter().zip(blocks) {
            match block {
                0 => sample.block(0x7777, |s| {
                    s.raw(bytes);
                }),
                1 => sample.section(order).interface(1, 0, &[]).interface(1, 0, &[]),
                2 => sample.interface(101, 0, &[]),
                _ => sample.enhanced(u32::from(block & 1), u64::from(*len), bytes, *len),
            };
        }
        sample.bytes
    })
}

/// Overwrites, removes or repeats bytes.
fn mutate(mut bytes: Vec<u8>, mutations: &[(u8, prop::sample::Index, u8)]) -> Vec<u8> {
    for (kind, at, value) in mutations {
        if bytes.is_empty() {
            break;
        }
        let at = at.index(bytes.len());
        match kind {
            0 => bytes[at] = *value,
            1 => bytes[at] ^= 1 << (value & 7),
            2 => bytes.truncate(at),
            3 => drop(bytes.drain(at..(at + usize::from(*value)).min(bytes.len()))),
            _ => bytes.extend_from_within(at..(at + usize::from(*value)).min(bytes.len())),
        }
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn pcap_reads_as_by_another_reader(bytes in pcap()) {
        prop_assert_eq!(read(&bytes), (read_by_pcap_parser(&bytes), false));
    }

    #[test]
    fn pcapng_reads_as_by_another_reader(bytes in pcapng()) {
        prop_assert_eq!(read(&bytes), (read_by_pcap_parser(&bytes), false));
    }

    #[test]
    fn truncation_loses_nothing_before_it(bytes in prop_oneof![pcap(), pcapng()], at in any::<prop::sample::Index>()) {
        let whole = read(&bytes).0;
        let cut = read(&bytes[..at.index(bytes.len())]).0;
        prop_assert_eq!(&cut[..], &whole[..cut.len()]);
    }

    #[test]
    fn mutated_captures_never_panic(
        bytes in prop_oneof![pcap(), pcapng(), links()],
        mutations in prop::collection::vec((0u8..5, any::<prop::sample::Index>(), any::<u8>()), 1..12),
    ) {
        read(&mutate(bytes, &mutations));
    }

    #[test]
    fn packets_of_any_link_type_are_read_or_left_out(bytes in links()) {
        let left_out = bytes[36..38] == [189, 0] || bytes[36..38] == 4242u16.to_le_bytes();
        let expected = read_by_pcap_parser(&bytes).len();
        let of_other = expected.div_ceil(3);
        let read = read(&bytes).0.len();
        prop_assert_eq!(read, if left_out { of_other } else { expected });
    }

    #[test]
    fn noise_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..400), head in 0u8..4) {
        let start: &[u8] = match head {
            0 => &[],
            1 => &[0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0],
            2 => &[0xa1, 0xb2, 0x3c, 0x4d, 0, 2, 0, 4],
            _ => &[0x0a, 0x0d, 0x0d, 0x0a, 28, 0, 0, 0, 0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0],
        };
        read(&[start, &bytes].concat());
    }
}
