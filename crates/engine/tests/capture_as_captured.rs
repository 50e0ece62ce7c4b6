//! What captures have that a wire has not: link headers that the datapath does not parse, link types that nothing here
//! reads, and segments without a length. Copies of a capture stay as the capture was.

#![allow(clippy::unwrap_used)] // helpers of tests are tests

use std::io::Cursor;
use std::path::Path;

use weir_abi::Link;
use weir_engine::capture::{CaptureNotes, CaptureReader, CaptureWriter};

mod sample;

use sample::{Order, Sample};

const US: u32 = 0xa1b2_c3d4;

/// Link layer, bytes, length on the wire, and number of a packet.
type Read = (Link, Vec<u8>, u32, u64);

/// The frames of a capture, and what the reader says of them.
fn frames(bytes: &[u8]) -> Result<(Vec<Read>, CaptureNotes), String> {
    let reader = CaptureReader::from_stream(Path::new("sample"), Box::new(Cursor::new(bytes.to_vec())));
    let mut reader = reader.map_err(|error| error.to_string())?.completing_segments();
    let mut frames = Vec::new();
    while let Some(burst) = reader.next_burst().map_err(|error| error.to_string())? {
        for index in 0..burst.frames().len() {
            let (bytes, len) = (burst.frames().bytes(index).to_vec(), burst.frames().wire_len(index));
            frames.push((burst.frames().link(), bytes, len, burst.first_packet() + index as u64));
        }
    }
    let notes = reader.notes().clone();
    Ok((frames, notes))
}

/// A copy of a capture, by a writer.
fn copy(bytes: &[u8]) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("copy");
    let stream = Box::new(Cursor::new(bytes.to_vec()));
    let mut reader = CaptureReader::from_stream(Path::new("sample"), stream).unwrap().completing_segments();
    let mut writer = CaptureWriter::create(&path, reader.form()).unwrap();
    while let Some(burst) = reader.next_burst().unwrap() {
        (0..burst.frames().len()).for_each(|index| writer.write(&burst, index).unwrap());
    }
    writer.finish().unwrap();
    std::fs::read(&path).unwrap()
}

/// An IP packet: a version, and bytes that no header has.
fn ip(version: u8) -> Vec<u8> {
    [&[version << 4 | 5][..], &[0xa5; 39]].concat()
}

/// A segment from `start` bytes in front of IP on, with `data` bytes behind its headers and no IP length.
fn segment(start: &[u8], version: u8, flags: u8, data: usize) -> Vec<u8> {
    let ip = match version {
        4 => [&[0x45, 0, 0, 0, 0, 1, 0x40, 0, 64, 6, 0, 0][..], &[192, 0, 2, 1, 198, 51, 100, 1]].concat(),
        _ => [&[0x60, 0, 0, 0, 0, 0, 6, 64][..], &[0x20; 32]].concat(),
    };
    let tcp = [&[0, 80, 156, 64][..], &[1; 8], &[0x50, flags, 1, 0, 0, 0, 0, 0]].concat();
    [start, &ip, &tcp, &vec![0x79; data]].concat()
}

const ETHERNET_IPV4: [u8; 14] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
const ETHERNET_IPV6: [u8; 14] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x86, 0xdd];
const ACK: u8 = 16;

#[test]
fn link_headers_are_taken_off_and_put_back() {
    let nflog = |payload: &[u8]| {
        let length = (4 + payload.len() as u16).to_le_bytes();
        [&[2, 0, 0, 0][..], &[5, 0, 10, 0, b'x', 0, 0, 0], &length, &[9, 0], payload].concat()
    };
    let pktap = |inner: u32, header: &[u8]| {
        [&44u32.to_le_bytes()[..], &1u32.to_le_bytes(), &inner.to_le_bytes(), &[0; 32], header].concat()
    };
    let headers: Vec<(u32, Vec<u8>, u8)> = vec![
        (0, vec![2, 0, 0, 0], 4),
        (0, vec![0, 0, 0, 2], 4),
        (0, vec![30, 0, 0, 0], 6),
        (0, vec![0, 0, 0, 24], 6),
        (0, vec![23, 0, 0, 0], 6),
        (108, vec![0, 0, 0, 2], 4),
        (108, vec![0, 0, 0, 28], 6),
        (9, vec![0xff, 3, 0, 0x21], 4),
        (9, vec![0, 0x57], 6),
        (9, vec![0x21], 4),
        (50, vec![0xff, 3, 0, 0x57], 6),
        (50, vec![0x0f, 0, 8, 0], 4),
        (8, vec![0; 16], 4),
        (100, vec![0xaa, 0xaa, 3, 0, 0, 0, 8, 0], 4),
        (107, vec![0x08, 0x41, 3, 0xcc], 4),
        (107, vec![0x08, 0x41, 3, 0x8e], 6),
        (107, vec![0x64, 0x41, 0x86, 0xdd], 6),
        (51, vec![0x11, 0, 0, 7, 0, 42, 0, 0x21], 4),
        (104, vec![0x8f, 0, 0x86, 0xdd], 6),
        (109, vec![2, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0], 4),
        (117, [&[61, 2][..], &[0; 62]].concat(), 4),
        (166, vec![1, 3, 0, 0x21], 4),
        (204, vec![0, 0xff, 3, 0, 0x57], 6),
        (205, vec![0, 0x0f, 0, 8, 0], 4),
        (226, [&[1, 26][..], &[0; 22]].concat(), 6),
        (258, pktap(0, &[2, 0, 0, 0]), 4),
        (258, pktap(101, &[]), 6),
    ];
    for (link_type, header, version) in headers {
        let packet = ip(version);
        let mut sample = Sample::pcap(Order::Little, US, link_type);
        let record = [&header[..], &packet].concat();
        sample.record(1, 0, &record, record.len() as u32 + 7);
        let (read, notes) = frames(&sample.bytes).unwrap();
        let expected = vec![(Link::RawIp, packet.clone(), packet.len() as u32 + 7, 1)];
        assert_eq!(read, expected, "{link_type} {header:x?}");
        assert_eq!(notes, CaptureNotes::default());
        assert_eq!(copy(&sample.bytes)[24..], sample.bytes[24..], "{link_type}");
    }
    let packet = ip(4);
    let mut sample = Sample::pcap(Order::Little, US, 239);
    let record = nflog(&packet);
    sample.record(1, 0, &record, record.len() as u32);
    assert_eq!(frames(&sample.bytes).unwrap().0, [(Link::RawIp, packet, 40, 1)]);
    let mut sample = Sample::pcap(Order::Little, US, 240);
    sample.record(1, 0, &[&[0; 4][..], &[7; 60]].concat(), 64);
    assert_eq!(frames(&sample.bytes).unwrap().0, [(Link::Ethernet, vec![7; 60], 60, 1)]);
}

#[test]
fn what_is_not_ip_behind_such_a_header_never_becomes_ip() {
    // AppleTalk, LCP, a family of nobody, bytes that look like IP, a header that is cut, a list that does not end.
    let records: [(u32, &[u8]); 8] = [
        (0, &[16, 0, 0, 0, 0x45, 0, 0, 20]),
        (9, &[0xff, 3, 0xc0, 0x21, 1, 1, 0, 4]),
        (9, &[0x45, 0, 0, 20, 0, 0, 0, 0]),
        (108, &[0, 0, 0, 99, 0x45]),
        (0, &[2, 0, 0]),
        (117, &[0x45]),
        (239, &[2, 0, 0, 0, 0, 0, 1, 0]),
        (258, &[0x45, 0, 0, 0, 1, 0, 0, 0, 2, 1, 0, 0, 0x45]),
    ];
    for (link_type, record) in records {
        let mut sample = Sample::pcap(Order::Little, US, link_type);
        sample.record(1, 0, record, record.len() as u32);
        let (read, _) = frames(&sample.bytes).unwrap();
        let [(link, bytes, _, _)] = &read[..] else { panic!("{link_type}: one packet") };
        assert_eq!(*link, Link::RawIp);
        assert!(bytes.first().is_none_or(|first| !matches!(first >> 4, 4 | 6)), "{link_type} {record:x?}");
        assert_eq!(copy(&sample.bytes)[24..], sample.bytes[24..], "{link_type}");
    }
}

#[test]
fn packets_of_other_link_types_are_left_out_and_counted() {
    for (number, name) in [(105, "IEEE802_11"), (4242, "unknown")] {
        let mut sample = Sample::pcap(Order::Little, US, number);
        sample.record(0, 0, &[0; 8], 8);
        let problem =
            format!("link type {number} ({name}) is not read; docs/reference/captures.md lists those that are");
        assert_eq!(frames(&sample.bytes), Err(format!("sample: packet 1 at byte 0: {problem}")));
    }
    // The others of a capture are read, under the numbers that they have in it.
    let mut sample = Sample::pcapng(Order::Little);
    sample.interface(189, 0, &[]).interface(1, 0, &[]).interface(0, 0, &[]);
    sample.enhanced(0, 0, &[0; 60], 60).enhanced(1, 1, &[7; 60], 60).enhanced(0, 2, &[0; 60], 60);
    sample.enhanced(2, 3, &[&[2, 0, 0, 0][..], &ip(4)].concat(), 44).enhanced(1, 4, &[8; 60], 60);
    let (read, notes) = frames(&sample.bytes).unwrap();
    let expected =
        [(Link::Ethernet, vec![7; 60], 60, 2), (Link::RawIp, ip(4), 40, 4), (Link::Ethernet, vec![8; 60], 60, 5)];
    assert_eq!(read, expected);
    assert_eq!((notes.left_out.get(&189), notes.left_out_packets()), (Some(&2), 2));
    // One without any other is refused at its end.
    let mut sample = Sample::pcapng(Order::Little);
    sample.interface(189, 0, &[]).enhanced(0, 0, &[0; 60], 60);
    assert!(frames(&sample.bytes).unwrap_err().contains("link type 189 (USB_LINUX) is not read"));
}

#[test]
fn check_sequences_are_not_a_part_of_frames() {
    let mut sample = Sample::pcap(Order::Little, US, 1 | 0x2400_0000);
    sample.record(0, 0, &[7; 64], 64).record(0, 0, &[7; 50], 64).record(0, 0, &[7; 62], 64).record(0, 0, &[7; 2], 2);
    let lengths: Vec<_> =
        frames(&sample.bytes).unwrap().0.iter().map(|(_, bytes, len, _)| (bytes.len(), *len)).collect();
    assert_eq!(lengths, [(60, 60), (50, 60), (60, 60), (0, 0)]);
    let written = copy(&sample.bytes);
    assert_eq!((&written[20..24], &written[24..]), (&sample.bytes[20..24], &sample.bytes[24..]));
    let mut sample = Sample::pcapng(Order::Little);
    sample.interface(1, 0, &[(13, &[4])]).enhanced(0, 0, &[7; 64], 64);
    assert_eq!(frames(&sample.bytes).unwrap().0[0].2, 60);
    assert_eq!(frames(&copy(&sample.bytes)).unwrap().0[0].2, 60);
}

#[test]
fn segments_without_a_length_have_that_of_their_frame() {
    let jumbo = |data: usize| {
        let mut segment = segment(&ETHERNET_IPV6, 6, ACK, data);
        segment[20] = 0;
        segment.splice(54..54, [6, 0, 0xc2, 4, 0, 1, 0, 0]);
        segment
    };
    let tagged = [&ETHERNET_IPV4[..12], &[0x81, 0, 0, 5, 8, 0]].concat();
    let cooked = [&[0; 14][..], &[8, 0]].concat();
    let cases: [(u32, Vec<u8>, usize, usize, bool); 7] = [
        (1, segment(&ETHERNET_IPV4, 4, ACK, 2920), 16, 2960, false),
        (1, segment(&tagged, 4, ACK, 2920), 20, 2960, false),
        (101, segment(&[], 4, ACK | 8, 100), 2, 140, false),
        (113, segment(&cooked, 4, ACK | 1, 100), 18, 140, false),
        (1, segment(&ETHERNET_IPV6, 6, ACK, 2920), 18, 2940, false),
        (1, segment(&ETHERNET_IPV4, 4, ACK, 100_000), 16, 65_535, true),
        (1, jumbo(66_000), 18, 65_535, true),
    ];
    for (link_type, record, at, length, is_longer) in cases {
        let mut sample = Sample::pcap(Order::Little, US, link_type);
        sample.record(1, 0, &record, record.len() as u32);
        let (read, notes) = frames(&sample.bytes).unwrap();
        let mut expected = record.clone();
        expected[at..at + 2].copy_from_slice(&(length as u16).to_be_bytes());
        assert_eq!(read[0].1, expected, "{link_type} {length}");
        assert_eq!((notes.completed, notes.longer), (1, u64::from(is_longer)));
        assert_eq!(copy(&sample.bytes)[24..], sample.bytes[24..], "the copy is as captured");
    }
}

#[test]
fn other_packets_without_a_length_stay_malformed() {
    let changed = |at: usize, to: u8| {
        let mut segment = segment(&ETHERNET_IPV4, 4, ACK, 2920);
        segment[at] = to;
        segment
    };
    let records = [
        ("UDP", changed(23, 17)),
        ("a fragment", changed(20, 0x20)),
        ("a later fragment", changed(21, 9)),
        ("a header of 16 bytes", changed(14, 0x44)),
        ("another version", changed(14, 0x55)),
        ("a SYN", segment(&ETHERNET_IPV4, 4, 2, 2920)),
        ("a reset", segment(&ETHERNET_IPV4, 4, 4, 2920)),
        ("no data", segment(&ETHERNET_IPV4, 4, ACK, 0)),
        ("padding", segment(&ETHERNET_IPV4, 4, ACK, 6)),
        ("an EtherType of ARP", changed(13, 6)),
        ("a part of the header", segment(&ETHERNET_IPV4, 4, ACK, 2920)[..50].to_vec()),
    ];
    for (name, record) in records {
        let mut sample = Sample::pcap(Order::Little, US, 1);
        let len = if name == "a part of the header" { 2974 } else { record.len() as u32 };
        sample.record(1, 0, &record, len);
        let (read, notes) = frames(&sample.bytes).unwrap();
        assert_eq!((&read[0].1, notes.completed), (&record, 0), "{name}");
    }
}
