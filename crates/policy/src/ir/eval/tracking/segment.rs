//! What the tracker reads of a TCP segment.

use crate::ir::eval::packet::tcp_flag::{ACK, FIN, RST, SYN, URG};
use crate::ir::eval::packet::{Frame, Packet, be32};
use crate::ir::eval::tcp_options::{self, kind};
use weir_abi::flow::Side;

/// What a segment does (RFC 9293, section 3.1). A reset counts before SYN, SYN before FIN, FIN before ACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Syn,
    SynAck,
    Fin,
    Ack,
    Reset,
}

/// A segment with valid flags.
#[derive(Clone, Debug)]
pub(super) struct Segment<'a> {
    pub(super) kind: Kind,
    pub(super) seq: u32,
    /// The sequence number behind the segment. SYN and FIN count one each.
    pub(super) end: u32,
    /// `None` without the flag.
    pub(super) ack: Option<u32>,
    /// The window as written.
    pub(super) window: u32,
    pub(super) options: &'a [u8],
}

/// The flags that have a meaning for the state. PSH, ECE and CWR may always be set.
const MEANT: u8 = FIN | SYN | RST | ACK | URG;

/// `a` comes after `b` (RFC 9293, section 3.4).
pub(super) fn after(a: u32, b: u32) -> bool {
    (b.wrapping_sub(a) as i32) < 0
}

impl<'a> Segment<'a> {
    /// Reads a segment. `None` if no TCP sends such flags.
    pub(super) fn read(packet: &Packet, frame: Frame<'a>) -> Option<Self> {
        let flags = packet.tcp_flags & MEANT;
        let kind = match flags & !URG {
            SYN => Kind::Syn,
            flags if flags == SYN | ACK => Kind::SynAck,
            flags if flags == FIN | ACK => Kind::Fin,
            ACK => Kind::Ack,
            flags if flags & !ACK == RST => Kind::Reset,
            _ => return None,
        };
        if flags & URG != 0 && matches!(kind, Kind::SynAck | Kind::Reset) {
            return None;
        }
        let header = usize::from(packet.doff) * 4;
        let payload = u32::from(packet.l4_length) - header as u32;
        let controls = u32::from(flags & SYN != 0) + u32::from(flags & FIN != 0);
        Some(Segment {
            kind,
            seq: packet.seq,
            end: packet.seq.wrapping_add(payload).wrapping_add(controls),
            ack: (flags & ACK != 0).then_some(packet.ack),
            window: packet.window.into(),
            options: tcp_options::of(packet, frame),
        })
    }

    pub(super) fn has_syn(&self) -> bool {
        matches!(self.kind, Kind::Syn | Kind::SynAck)
    }

    /// The shift that a SYN offers, or [`Side::NO_SCALE`] (RFC 7323, section 2.2).
    pub(super) fn scale(&self) -> u8 {
        let mut found = Side::NO_SCALE;
        for option in tcp_options::each(self.options) {
            if let (kind::WINDOW_SCALE, &[shift]) = (option.kind, option.data) {
                found = shift.min(Side::SCALE_MAX);
            }
        }
        found
    }

    /// Whether a SYN permits selective acknowledgements (RFC 2018, section 2).
    pub(super) fn permits_sack(&self) -> bool {
        tcp_options::each(self.options).any(|option| option.kind == kind::SACK_PERMITTED && option.data.is_empty())
    }

    /// The highest right edge among the acknowledgement and the blocks of selective ones (RFC 2018, section 3).
    pub(super) fn highest_ack(&self, ack: u32) -> u32 {
        let blocks = tcp_options::each(self.options)
            .filter(|option| option.kind == kind::SACK && option.data.len().is_multiple_of(8))
            .flat_map(|option| option.data.chunks_exact(8));
        let edges = blocks.map(|block| be32(&block[4..]));
        edges.fold(ack, |highest, edge| if after(edge, highest) { edge } else { highest })
    }
}
