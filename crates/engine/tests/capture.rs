//! Captures are read as specified and written back unchanged. Errors in damaged ones contain the position.

#![allow(clippy::unwrap_used)] // helpers of tests are tests

use std::io::{self, Cursor, Read};
use std::path::Path;

use weir_abi::{BURST_MAX, Link};
use weir_engine::EngineError;
use weir_engine::capture::{CaptureForm, CaptureReader, CaptureWriter, Resolution};

mod sample;

use sample::{Order, Sample};

const US: u32 = 0xa1b2_c3d4;
const NS: u32 = 0xa1b2_3c4d;

/// A packet that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Packet {
    number: u64,
    stamp_ns: u64,
    link: Link,
    interface: u32,
    len: u32,
    bytes: Vec<u8>,
}

fn open(bytes: &[u8]) -> Result<CaptureReader, EngineError> {
    CaptureReader::from_stream(Path::new("sample"), Box::new(Cursor::new(bytes.to_vec())))
}

/// All packets, and the error after them.
fn read(bytes: &[u8]) -> (Vec<Packet>, Option<EngineError>) {
    match open(bytes) {
        Ok(reader) => drain(reader),
        Err(error) => (Vec::new(), Some(error)),
    }
}

fn drain(mut reader: CaptureReader) -> (Vec<Packet>, Option<EngineError>) {
    let mut packets = Vec::new();
    loop {
        let burst = match reader.next_burst() {
            Ok(Some(burst)) => burst,
            Ok(None) => return (packets, None),
            Err(error) => {
                let again = reader.next_burst().err().map(|error| error.to_string());
                assert_eq!(again, Some(error.to_string()), "an error stays");
                return (packets, Some(error));
            }
        };
        let frames = burst.frames();
        assert!(!frames.is_empty() && frames.len() <= BURST_MAX);
        assert_eq!(frames.now_ns(), burst.stamp_ns(0));
        packets.extend((0..frames.len()).map(|index| Packet {
            number: burst.first_packet() + index as u64,
            stamp_ns: burst.stamp_ns(index),
            link: frames.link(),
            interface: burst.interface_id(index),
            len: frames.wire_len(index),
            bytes: frames.bytes(index).to_vec(),
        }));
    }
}

fn read_whole(bytes: &[u8]) -> Vec<Packet> {
    let (packets, error) = read(bytes);
    assert!(error.is_none(), "{}", error.unwrap());
    packets
}

fn error_of(bytes: &[u8]) -> String {
    read(bytes).1.expect("the capture is damaged").to_string()
}

#[test]
fn pcap_of_both_byte_orders_and_resolutions() {
    for order in [Order::Little, Order::Big] {
        for (magic, ns_per_unit) in [(US, 1000), (NS, 1)] {
            let mut sample = Sample::pcap(order, magic, 1);
            sample.record(1_700_000_000, 5, &[1, 2, 3], 3).record(1_700_000_001, 999_999, &[4; 60], 1500);
            let packets = read_whole(&sample.bytes);
            assert_eq!(packets.len(), 2);
            let stamp_ns = 1_700_000_000_000_000_000 + 5 * ns_per_unit;
            let first =
                Packet { number: 1, stamp_ns, link: Link::Ethernet, interface: 0, len: 3, bytes: vec![1, 2, 3] };
            assert_eq!(packets[0], first);
            assert_eq!((packets[1].number, packets[1].len, packets[1].bytes.len()), (2, 1500, 60));
            assert_eq!(packets[1].stamp_ns, 1_700_000_001_000_000_000 + 999_999 * ns_per_unit);
        }
    }
}

#[test]
fn every_link_type_that_is_parsed() {
    let types = [
        (1, Link::Ethernet),
        (12, Link::RawIp),
        (14, Link::RawIp),
        (101, Link::RawIp),
        (228, Link::RawIp),
        (229, Link::RawIp),
        (113, Link::Cooked),
        (276, Link::Cooked2),
    ];
    for (link_type, link) in types {
        // The upper bits contain the length of the frame check sequence.
        let mut sample = Sample::pcap(Order::Little, US, link_type | 0x2400_0000);
        sample.record(0, 0, &[0x45], 1);
        assert_eq!(read_whole(&sample.bytes)[0].link, link);
    }
}

#[test]
fn a_captured_length_over_the_wire_length_counts() {
    let mut sample = Sample::pcap(Order::Little, US, 1);
    sample.record(0, 0, &[7; 64], 60).record(0, 0, &[], 0);
    let packets = read_whole(&sample.bytes);
    assert_eq!((packets[0].len, packets[1].len), (64, 0));
    assert!(packets[1].bytes.is_empty());
}

#[test]
fn bursts_are_full_and_numbered() {
    let mut sample = Sample::pcap(Order::Little, US, 1);
    for packet in 0..150u32 {
        sample.record(packet, 0, &packet.to_be_bytes(), 4);
    }
    let mut reader = open(&sample.bytes).unwrap();
    for (first, count) in [(1, 64), (65, 64), (129, 22)] {
        let burst = reader.next_burst().unwrap().unwrap();
        assert_eq!((burst.first_packet(), burst.frames().len()), (first, count));
        assert_eq!(burst.frames().bytes(3), (first as u32 + 2).to_be_bytes());
    }
    assert!(reader.next_burst().unwrap().is_none());
    assert!(reader.next_burst().unwrap().is_none());
    assert_eq!(reader.position_bytes(), sample.bytes.len() as u64);
}

/// Two sections with different byte orders, three interfaces, all packet blocks, and unknown blocks.
fn many_blocks() -> Sample {
    let mut sample = Sample::pcapng(Order::Big);
    sample
        .interface(1, 100, &[(2, b"outside")])
        .enhanced(0, 1_700_000_000_000_001, &[1; 61], 61)
        .block(0x7777, |s| {
            s.raw(&[0xee; 33]);
        })
        .interface(101, 0, &[(9, &[9]), (14, &100i64.to_be_bytes())])
        .enhanced(1, 1_700_000_000_000_003_000, &[0x45; 20], 40)
        .simple(&[2; 100], 1500)
        .old_packet(1, 4, &[0x60; 41], 41)
        .section(Order::Little)
        .interface(276, 0, &[(9, &[0x80 | 10])])
        .enhanced(0, 3 << 10 | 512, &[3; 22], 22);
    sample
}

#[test]
fn pcapng_with_all_its_blocks() {
    let packets = read_whole(&many_blocks().bytes);
    let seen: Vec<_> = packets.iter().map(|p| (p.number, p.interface, p.link, p.bytes.len(), p.len)).collect();
    let expected = [
        (1, 0, Link::Ethernet, 61, 61),
        (2, 1, Link::RawIp, 20, 40),
        (3, 0, Link::Ethernet, 100, 1500),
        (4, 1, Link::RawIp, 41, 41),
        (5, 2, Link::Cooked2, 22, 22),
    ];
    assert_eq!(seen, expected);
    let stamps: Vec<u64> = packets.iter().map(|packet| packet.stamp_ns).collect();
    let second = 1_700_000_000_000_003_000 + 100_000_000_000;
    // A simple packet block has no time. It gets the time of the previous packet.
    assert_eq!(stamps, [1_700_000_000_000_001_000, second, second, 100_000_000_004, 3_500_000_000]);
}

#[test]
fn interfaces_are_described() {
    let bytes = many_blocks().bytes;
    let mut reader = open(&bytes).unwrap();
    assert_eq!(reader.form(), CaptureForm::Pcapng);
    let mut last = Vec::new();
    while let Some(burst) = reader.next_burst().unwrap() {
        last = burst.interfaces().to_vec();
    }
    assert_eq!(last.len(), 3);
    assert_eq!((last[0].name.as_deref(), last[0].snap_bytes), (Some(&b"outside"[..]), 100));
    assert_eq!((last[1].resolution, last[1].offset_s), (Resolution::NANOSECONDS, 100));
    assert_eq!((last[2].link_type, last[2].resolution), (276, Resolution::Binary(10)));
}

#[test]
fn time_stamps_of_any_resolution() {
    let cases: [(u8, u64, u64); 9] = [
        (0, 7, 7_000_000_000),
        (3, 7, 7_000_000),
        (9, u64::MAX, u64::MAX),
        (6, u64::MAX, u64::MAX),
        (12, 5_999, 5),
        (28, u64::MAX, 1),
        (127, u64::MAX, 0),
        (0x80, 3, 3_000_000_000),
        (0xff, u64::MAX, 0),
    ];
    for (resolution, stamp, ns) in cases {
        let mut sample = Sample::pcapng(Order::Little);
        sample.interface(1, 0, &[(9, &[resolution])]).enhanced(0, stamp, &[0; 4], 4);
        assert_eq!(read_whole(&sample.bytes)[0].stamp_ns, ns, "if_tsresol {resolution:#x}");
    }
    for (offset, ns) in [(i64::MIN, 0), (i64::MAX, u64::MAX), (-1, 1_000_000_000)] {
        let mut sample = Sample::pcapng(Order::Little);
        sample.interface(1, 0, &[(14, &offset.to_le_bytes())]).enhanced(0, 2_000_000, &[0; 4], 4);
        assert_eq!(read_whole(&sample.bytes)[0].stamp_ns, ns, "if_tsoffset {offset}");
    }
}

/// A source that returns one byte per read.
struct Slow(Cursor<Vec<u8>>);

impl Read for Slow {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let one = buffer.len().min(1);
        self.0.read(&mut buffer[..one])
    }
}

#[test]
fn a_slow_source_gives_the_same_bursts() {
    let bytes = many_blocks().bytes;
    let slow = CaptureReader::from_stream(Path::new("slow"), Box::new(Slow(Cursor::new(bytes.clone())))).unwrap();
    assert_eq!(drain(slow).0, read_whole(&bytes));
}

#[test]
fn records_across_the_window_are_read_whole() {
    let mut sample = Sample::pcap(Order::Little, NS, 1);
    let sizes: Vec<usize> = (0..200).map(|packet| packet * 7919 % 65_000).collect();
    for (packet, &size) in sizes.iter().enumerate() {
        sample.record(packet as u32, 0, &vec![packet as u8; size], size as u32);
    }
    assert!(sample.bytes.len() > 4 << 20);
    let packets = read_whole(&sample.bytes);
    assert_eq!(packets.len(), sizes.len());
    for (packet, (read, &size)) in packets.iter().zip(&sizes).enumerate() {
        assert!(read.bytes.len() == size && read.bytes.iter().all(|&byte| byte == packet as u8), "packet {packet}");
    }
}

#[test]
fn unknown_blocks_larger_than_the_window_are_skipped() {
    let mut sample = Sample::pcapng(Order::Little);
    sample.interface(1, 0, &[]).enhanced(0, 1, &[1; 60], 60);
    sample.block(0x7777, |s| {
        s.raw(&vec![0xab; 5 << 20]);
    });
    sample.enhanced(0, 2, &[2; 60], 60);
    let packets = read_whole(&sample.bytes);
    assert_eq!((packets.len(), packets[1].bytes[0]), (2, 2));
    sample.bytes.truncate(3 << 20);
    assert_eq!(error_of(&sample.bytes), "sample: packet 2 at byte 3145728: the file ends inside an unknown block");
}

#[test]
fn what_is_not_a_capture() {
    let starts: [(&[u8], &str); 9] = [
        (b"", "the file is empty"),
        (b"abc", "the file ends inside the file header"),
        (b"GET / HTTP", "neither pcap nor pcapng (starts with 47455420)"),
        (b"\x1f\x8b\x08\x00", "compressed with gzip: decompress it first"),
        (b"\x28\xb5\x2f\xfd", "compressed with zstd: decompress it first"),
        (b"\xfd7zXZ\0", "compressed with xz: decompress it first"),
        (b"\x04\x22\x4d\x18", "compressed with lz4: decompress it first"),
        (b"BZh9", "compressed with bzip2: decompress it first"),
        (b"\xd4\xc3\xb2\xa1\x02\x00", "the file ends inside the file header"),
    ];
    for (start, problem) in starts {
        assert_eq!(error_of(start), format!("sample: packet 1 at byte 0: {problem}"));
    }
    let sample = Sample::pcap(Order::Big, 0xa1b2_cd34, 1);
    let problem = "pcap variant Kuznetzov's is not supported, convert it with `editcap -F pcap`";
    assert_eq!(error_of(&sample.bytes), format!("sample: packet 1 at byte 0: {problem}"));
    let mut sample = Sample::pcap(Order::Big, US, 1);
    sample.bytes[5] = 1;
    assert_eq!(error_of(&sample.bytes), "sample: packet 1 at byte 0: pcap version 1.4 is not supported, only 2.x is");
}

#[test]
fn damage_is_reported_after_the_packets_before_it() {
    let mut sample = Sample::pcap(Order::Little, US, 1);
    for _ in 0..70 {
        sample.record(1, 1, &[9; 60], 60);
    }
    let at = 24 + 70 * 76;
    let truncated = |extra: &[u8]| {
        let mut bytes = sample.bytes.clone();
        bytes.extend_from_slice(extra);
        let (packets, error) = read(&bytes);
        assert_eq!(packets.len(), 70);
        error.unwrap().to_string()
    };
    let place = format!("sample: packet 71 at byte {at}:");
    assert_eq!(truncated(&[0; 5]), format!("{place} the file ends inside a packet header"));
    let header = [0, 0, 100u32, 100].map(u32::to_le_bytes).concat();
    assert_eq!(truncated(&header), format!("{place} the file ends inside a packet"));
    let header = [0, 0, 262_145u32, 100].map(u32::to_le_bytes).concat();
    assert_eq!(truncated(&header), format!("{place} captured length 262145 is over the limit of 262144 bytes"));
}

#[test]
fn damaged_pcapng_blocks() {
    let damaged = |build: &dyn Fn(&mut Sample)| {
        let mut sample = Sample::pcapng(Order::Little);
        sample.interface(1, 0, &[]).enhanced(0, 0, &[0; 60], 60);
        let at = sample.bytes.len();
        build(&mut sample);
        let (packets, error) = read(&sample.bytes);
        assert_eq!(packets.len(), 1);
        let message = error.expect("it is damaged").to_string();
        let place = format!("sample: packet 2 at byte {at}: ");
        message.strip_prefix(&place).unwrap_or_else(|| panic!("{message}, not {place}")).to_owned()
    };
    let body = |words: &'static [u32]| {
        move |s: &mut Sample| {
            words.iter().for_each(|&word| {
                s.u32(word);
            });
        }
    };
    assert_eq!(damaged(&body(&[6])), "the file ends inside a block header");
    assert_eq!(damaged(&body(&[6, 100])), "the file ends inside an enhanced packet block");
    assert_eq!(damaged(&body(&[99, 8])), "an unknown block of 8 bytes has a wrong length");
    assert_eq!(damaged(&body(&[99, 17])), "an unknown block of 17 bytes has a wrong length");
    assert_eq!(damaged(&body(&[6, 28, 0, 0, 0, 0, 28])), "an enhanced packet block of 28 bytes has a wrong length");
    assert_eq!(damaged(&body(&[6, 32, 0, 0, 0, 0, 0, 36])), "an enhanced packet block of 32 bytes has a wrong length");
    assert_eq!(damaged(&body(&[6, 32, 0, 0, 0, 1, 1, 32])), "an enhanced packet block of 32 bytes has a wrong length");
    assert_eq!(
        damaged(&body(&[6, 32, 0, 0, 0, 1 << 20, 1, 32])),
        "captured length 1048576 is over the limit of 262144 bytes"
    );
    assert_eq!(
        damaged(&body(&[6, 32, 7, 0, 0, 0, 0, 32])),
        "the packet's interface 7 is not described, the section has 1"
    );
    assert_eq!(
        damaged(&body(&[6, 1 << 20])),
        "an enhanced packet block of 1048576 bytes is over the limit of 327680 bytes"
    );
    assert_eq!(damaged(&body(&[1, 16, 1, 0, 16])), "an interface description of 16 bytes has a wrong length");
    assert_eq!(
        damaged(&body(&[0x0a0d_0d0a, 28, 0x1234_5678, 1, 0, 0, 28])),
        "section header with byte order magic 12345678"
    );
    assert_eq!(
        damaged(&body(&[0x0a0d_0d0a, 28, 0x1a2b_3c4d, 2, 0, 0, 28])),
        "pcapng version 2.0 is not supported, only 1.x is"
    );
}

#[test]
fn captures_are_written_as_they_were() {
    let mut pcap = Sample::pcap(Order::Little, NS, 113);
    pcap.record(1, 999_999_999, &[5; 33], 99).record(u32::MAX, 1, &[], 4);
    let mut big = Sample::pcap(Order::Big, US, 1);
    big.record(3, 5, &[1; 7], 7);
    for bytes in [pcap.bytes, big.bytes, many_blocks().bytes] {
        let (form, copy) = copied(&bytes);
        let copy_form = open(&copy).unwrap().form();
        assert_eq!(form, copy_form);
        assert_eq!(read_whole(&copy), read_whole(&bytes));
        assert_eq!(copied(&copy).1, copy, "a copy of a copy is the same file");
    }
}

/// Reads a capture and writes all its packets to another one.
fn copied(bytes: &[u8]) -> (CaptureForm, Vec<u8>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("copy");
    let mut reader = open(bytes).unwrap();
    let form = reader.form();
    let mut writer = CaptureWriter::create(&path, form).unwrap();
    while let Some(burst) = reader.next_burst().unwrap() {
        (0..burst.frames().len()).for_each(|index| writer.write(&burst, index).unwrap());
    }
    writer.finish().unwrap();
    (form, std::fs::read(&path).unwrap())
}

#[test]
fn an_empty_copy_is_a_capture() {
    for bytes in [Sample::pcap(Order::Little, US, 1).bytes, Sample::pcapng(Order::Little).bytes] {
        let (_, copy) = copied(&bytes);
        assert!(read_whole(&copy).is_empty());
    }
}

#[test]
fn files_are_named_in_errors() {
    let error = CaptureReader::open(Path::new("/nonexistent/a.pcap")).err().unwrap();
    assert_eq!(error.to_string(), "/nonexistent/a.pcap: No such file or directory (os error 2)");
    let error = CaptureWriter::create(Path::new("/nonexistent/b.pcap"), CaptureForm::Pcapng).err().unwrap();
    assert_eq!(error.to_string(), "/nonexistent/b.pcap: No such file or directory (os error 2)");
    let folder = tempfile::tempdir().unwrap();
    let error = CaptureReader::open(folder.path()).err().unwrap().to_string();
    assert!(error.ends_with("Is a directory (os error 21)"), "{error}");
}
