//! Fuzz targets for packets and captures.

use std::io::Cursor;
use std::path::Path;
use weir_abi::{Link, Reason, WINDOW_BYTES};
use weir_engine::capture::CaptureReader;
use weir_policy::ir::eval::packet::{Frame, parse};

/// Captures in pcap and pcapng: every frame is inside the file, and no frame follows an error.
pub(crate) fn capture(data: &[u8]) {
    let source = Box::new(Cursor::new(data.to_vec()));
    let Ok(reader) = CaptureReader::from_stream(Path::new("fuzz.pcap"), source) else { return };
    let mut reader = reader.completing_segments();
    let mut frames = 0;
    while let Ok(Some(burst)) = reader.next_burst() {
        let all = burst.frames();
        assert!(!all.is_empty(), "a burst has frames");
        for index in 0..all.len() {
            assert!(all.bytes(index).len() <= all.wire_len(index) as usize, "captured more than was there");
            let (record, len) = burst.record(index);
            assert!(record.starts_with(burst.header(index)), "a header is the beginning of its record");
            assert!(record.len() <= len as usize, "captured more than was there");
            let _ = (burst.stamp_ns(index), &burst.interfaces()[burst.interface_id(index) as usize]);
        }
        frames += all.len();
    }
    assert!(frames <= data.len(), "every frame has a record");
}

/// The reference parser. The input is a link type, how much longer the packet was on the wire, and the frame.
/// `packet_parser.c` runs the same inputs through the C parser.
pub(crate) fn packet_reference(data: &[u8]) {
    let [link, longer, bytes @ ..] = data else { return };
    let link = [Link::Ethernet, Link::RawIp, Link::Cooked, Link::Cooked2][usize::from(link % 4)];
    let wire_len = bytes.len() as u32 + u32::from(*longer);
    let (packet, reason) = parse(Frame { bytes, wire_len, link, time_ns: 0 });
    assert!(reason.is_none_or(|reason| reason.0 < Reason::RULE_BASE), "a parser finds no rule");
    assert!(packet.l3_offset <= bytes.len().min(WINDOW_BYTES), "the network header starts in the frame");
    if reason.is_none() {
        let end = packet.l4_offset + usize::from(packet.l4_length);
        assert!(end <= wire_len as usize, "the packet ends in the frame");
    }
}
