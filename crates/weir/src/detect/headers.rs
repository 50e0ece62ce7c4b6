//! From a frame to the headers that detection knows.

use weir_abi::packet::{Fragment, L3, L4};
use weir_mitigate::header::{Header, PAYLOAD_BYTES};
use weir_policy::ir::eval::packet::{self, Frame};

/// Bytes of a UDP header.
const UDP_BYTES: u16 = 8;
/// Bytes of an ICMP header.
const ICMP_BYTES: u16 = 8;

/// The headers of a frame; `None` if it has no IP header. A malformed packet has the fields that were read.
pub fn of(frame: Frame<'_>) -> Option<Header> {
    let packet = packet::parse(frame).0;
    let is_ipv6 = match packet.l3 {
        L3::Ipv4 => false,
        L3::Ipv6 => true,
        L3::Arp | L3::None => return None,
    };
    let transport = match packet.l4 {
        L4::Tcp => u16::from(packet.doff) * 4,
        L4::Udp => UDP_BYTES,
        L4::Icmp | L4::Icmp6 => ICMP_BYTES,
        L4::None | L4::Ports | L4::Other => 0,
    };
    let payload_at = packet.l4_offset + usize::from(transport);
    let payload_length = packet.l4_length.saturating_sub(transport);
    let payload = frame.bytes.get(payload_at..payload_at + PAYLOAD_BYTES);
    let payload = payload.filter(|_| usize::from(payload_length) >= PAYLOAD_BYTES && packet.l4 == L4::Udp);
    Some(Header {
        is_ipv6,
        saddr: packet.saddr,
        daddr: packet.daddr,
        protocol: packet.proto,
        fragment: packet.fragment,
        has_ports: matches!(packet.l4, L4::Tcp | L4::Udp | L4::Ports) && packet.fragment != Fragment::Later,
        sport: packet.sport,
        dport: packet.dport,
        length: packet.wire_len.saturating_sub(packet.l3_offset as u32),
        ttl: packet.ttl,
        ip_id: packet.ip_id,
        flags: packet.tcp_flags,
        doff: packet.doff,
        window: packet.window,
        seq: packet.seq,
        ack: packet.ack,
        icmp_type: packet.icmp_type,
        icmp_code: packet.icmp_code,
        payload_length,
        payload: payload.and_then(|bytes| bytes.try_into().ok()),
    })
}
