//! Translates the packets of a proxied flow between the numbers that its client knows and the numbers of its server.
//!
//! Sequence numbers of the server, and what acknowledges them, differ by `delta`; its timestamps, and their echoes, by
//! `stamp`; windows by their shifts ([`Proxied`]). The length of a packet stays.

use super::Leaving;
use super::patch::Patch;
use crate::ir::eval::packet::{Frame, Packet, tcp_flag};
use crate::ir::eval::tcp_options::{self, HEADER_BYTES, kind};
use weir_abi::flow::Proxied;

/// Where the fields of a TCP header are (RFC 9293, section 3.1).
const SEQ: usize = 4;
const ACK: usize = 8;
const WINDOW: usize = 14;
const CHECKSUM: usize = 16;
/// Where ICMP has its checksum (RFC 792).
const ICMP_CHECKSUM: usize = 2;

/// A segment of the client, as the server expects it. The server shifts this client's windows by `scale`.
pub fn from_client(packet: &Packet, frame: Frame<'_>, proxied: &Proxied, scale: u8) -> Leaving {
    let mut patch = Patch::new(frame, packet.l4_offset, CHECKSUM);
    if packet.tcp_flags & tcp_flag::ACK != 0 {
        let back = proxied.delta.wrapping_neg();
        // A reset whose only meaningful number is `seq` acknowledges 0.
        if packet.tcp_flags & tcp_flag::RST == 0 || packet.ack != 0 {
            patch.add(ACK, back);
        }
        for option in tcp_options::each(tcp_options::of(packet, frame)) {
            let at = HEADER_BYTES + option.at;
            match (option.kind, option.data.len()) {
                (kind::SACK, length) if length.is_multiple_of(8) => {
                    (at..at + length).step_by(4).for_each(|edge| patch.add(edge, back));
                }
                (kind::TIMESTAMPS, 8) if proxied.agreed().timestamps => {
                    patch.add(at + 4, proxied.stamp.wrapping_neg());
                }
                _ => {}
            }
        }
    }
    if packet.tcp_flags & tcp_flag::SYN == 0 {
        patch.put(WINDOW, &proxied.window_for_server(packet.window, scale).to_be_bytes());
    }
    patch.done()
}

/// A segment of the server, as the client expects it. The server's windows are shifted by `scale`.
pub fn from_server(packet: &Packet, frame: Frame<'_>, proxied: &Proxied, scale: u8) -> Leaving {
    let mut patch = Patch::new(frame, packet.l4_offset, CHECKSUM);
    patch.add(SEQ, proxied.delta);
    if let Some(option) = tcp_options::find(tcp_options::of(packet, frame), kind::TIMESTAMPS, 8)
        && proxied.agreed().timestamps
    {
        patch.add(HEADER_BYTES + option.at, proxied.stamp);
    }
    if packet.tcp_flags & tcp_flag::SYN == 0 {
        patch.put(WINDOW, &proxied.window_for_client(packet.window, scale).to_be_bytes());
    }
    patch.done()
}

/// An ICMP error about a segment of the server that the client's side has seen translated. The quoted sequence number
/// is `at` bytes behind the beginning of the frame.
pub fn quote_from_client(packet: &Packet, frame: Frame<'_>, at: usize, proxied: &Proxied) -> Leaving {
    let mut patch = Patch::new(frame, packet.l4_offset, ICMP_CHECKSUM);
    patch.add(at - packet.l4_offset, proxied.delta.wrapping_neg());
    patch.done()
}
