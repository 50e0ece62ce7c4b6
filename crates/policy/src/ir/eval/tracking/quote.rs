//! The packet that an ICMP error quotes (RFC 792; RFC 4443, section 2.4).

use crate::ir::eval::packet::{Frame, Packet, be16, be32};
use weir_abi::WINDOW_BYTES;
use weir_abi::flow::{Arrival, FlowKey, Prompt};
use weir_abi::packet::L3;

/// A quoted packet.
pub(super) struct Quoted {
    /// The key of its flow.
    pub(super) key: FlowKey,
    /// Its source address.
    pub(super) source: u128,
    /// Its sequence number, if it is TCP.
    pub(super) seq: Option<u32>,
    /// Where that number is in the frame.
    pub(super) seq_at: usize,
}

/// Bytes of the ICMP header in front of the quoted packet.
const ICMP_HEADER: usize = 8;
/// Bytes of the transport header that every error quotes.
const TRANSPORT_MIN: usize = 8;

/// Reads the quoted packet of an error in a VLAN, which had come from a side: an IP header without IPv6 extension
/// headers, and eight bytes behind it. Its checksums and lengths are not checked, because routers cut it. `None` if it
/// is no such packet, or a later fragment.
pub(super) fn read(packet: &Packet, vlan: [u16; 2], frame: Frame<'_>, arrival: Arrival) -> Option<Quoted> {
    let end = (packet.l4_offset + usize::from(packet.l4_length)).min(frame.bytes.len()).min(WINDOW_BYTES);
    let bytes = frame.bytes.get(packet.l4_offset + ICMP_HEADER..end)?;
    let is_ipv6 = packet.l3 == L3::Ipv6;
    let (protocol, addresses, header) = if is_ipv6 { ipv6(bytes)? } else { ipv4(bytes)? };
    let transport = bytes.get(header..header + TRANSPORT_MIN)?;
    let [source, destination] = addresses;
    let key = match (protocol, is_ipv6) {
        (1, false) | (58, true) => {
            let (request, is_reply) = icmp(transport[0])?;
            let prompt = Prompt { identifier: be16(&transport[4..]), request, is_reply };
            FlowKey::of_icmp(arrival, addresses, prompt, protocol, vlan, is_ipv6)
        }
        _ => {
            let has_ports = matches!(protocol, 6 | 17 | 33 | 132 | 136);
            let ports = if has_ports { [be16(transport), be16(&transport[2..])] } else { [0; 2] };
            FlowKey::of(arrival, (source, ports[0]), (destination, ports[1]), protocol, vlan, is_ipv6)
        }
    };
    let seq = (protocol == 6).then(|| be32(&transport[4..]));
    let seq_at = packet.l4_offset + ICMP_HEADER + header + 4;
    Some(Quoted { key, source, seq, seq_at })
}

/// The protocol, source and destination, and the length of the header.
type Header = (u8, [u128; 2], usize);

fn ipv4(bytes: &[u8]) -> Option<Header> {
    let header = bytes.get(..20).filter(|header| header[0] >> 4 == 4)?;
    let length = usize::from(header[0] & 15) * 4;
    let is_later = be16(&header[6..]) & 0x1fff != 0;
    let address = |at: usize| u128::from(be32(&header[at..]));
    (length >= 20 && !is_later).then_some((header[9], [address(12), address(16)], length))
}

fn ipv6(bytes: &[u8]) -> Option<Header> {
    let header = bytes.get(..40).filter(|header| header[0] >> 4 == 6)?;
    let address = |at: usize| header[at..at + 16].iter().fold(0, |number, &byte| number << 8 | u128::from(byte));
    Some((header[6], [address(8), address(24)], 40))
}

/// The type of the request to which a quoted message belongs, and whether it is the reply.
fn icmp(kind: u8) -> Option<(u8, bool)> {
    match kind {
        8 | 13 | 15 | 17 | 128 => Some((kind, false)),
        0 => Some((8, true)),
        14 | 16 | 18 | 129 => Some((kind - 1, true)),
        _ => None,
    }
}
