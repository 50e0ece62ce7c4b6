//! The options of a TCP header (RFC 9293, section 3.2).

use super::packet::{Frame, Packet, be16, be32};
use weir_abi::WINDOW_BYTES;

/// Bytes of the header in front of its options.
pub(super) const HEADER_BYTES: usize = 20;

/// Kinds of options: RFC 9293, section 3.2; RFC 7323, section 2.2; RFC 2018, sections 2 and 3; RFC 7323, section 3.2.
pub(super) mod kind {
    pub(in crate::ir::eval) const MSS: u8 = 2;
    pub(in crate::ir::eval) const WINDOW_SCALE: u8 = 3;
    pub(in crate::ir::eval) const SACK_PERMITTED: u8 = 4;
    pub(in crate::ir::eval) const SACK: u8 = 5;
    pub(in crate::ir::eval) const TIMESTAMPS: u8 = 8;
}

/// An option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TcpOption<'a> {
    pub(super) kind: u8,
    /// Where its data begins among the options.
    pub(super) at: usize,
    pub(super) data: &'a [u8],
}

/// The captured options of a segment.
pub(super) fn of<'a>(packet: &Packet, frame: Frame<'a>) -> &'a [u8] {
    let captured = &frame.bytes[..frame.bytes.len().min(WINDOW_BYTES)];
    let header = usize::from(packet.doff) * 4;
    captured.get(packet.l4_offset + HEADER_BYTES..packet.l4_offset + header).unwrap_or_default()
}

/// The options up to the first that is cut off.
pub(super) fn each(options: &[u8]) -> impl Iterator<Item = TcpOption<'_>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        while options.get(at) == Some(&1) {
            at += 1;
        }
        let &kind = options.get(at).filter(|&&kind| kind != 0)?;
        let length = usize::from(*options.get(at + 1)?);
        let data = options.get(at + 2..at + length)?;
        let option = TcpOption { kind, at: at + 2, data };
        at += length;
        Some(option)
    })
}

/// The first option of a kind that has so many bytes of data.
pub(super) fn find(options: &[u8], kind: u8, bytes: usize) -> Option<TcpOption<'_>> {
    each(options).find(|option| option.kind == kind && option.data.len() == bytes)
}

/// The value and the echo of the timestamps option.
pub(super) fn timestamps(options: &[u8]) -> Option<[u32; 2]> {
    let found = find(options, kind::TIMESTAMPS, 8)?;
    Some([0, 4].map(|at| be32(&found.data[at..])))
}

/// The largest segment that a SYN names.
pub(super) fn mss(options: &[u8]) -> Option<u16> {
    find(options, kind::MSS, 2).map(|option| be16(option.data))
}
