//! The flow of a packet.

use std::net::{Ipv4Addr, Ipv6Addr};
use weir_abi::packet::{Fragment, L3, L4};
use weir_export::flows::{Addition, Addresses, Key};
use weir_policy::ir::eval::packet::{self, Frame, Packet};

use super::packets::DecidedPacket;

/// Bytes of an IPv6 header, which its length does not count.
const IPV6_BYTES: u32 = 40;

/// What is done with a packet, as flows have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fate {
    /// Number of the interface that received it.
    pub input: u32,
    /// Number of the interface that sent it, or 0.
    pub output: u32,
    /// `forwardingStatus`.
    pub status: u8,
}

/// The flow that a packet belongs to, and what it adds. `None` if it has no IP header that can be read.
///
/// Of a malformed packet, and of one whose headers are longer than the copy, the fields that were read count. Others
/// are 0.
pub fn of(decided: &DecidedPacket<'_>, fate: Fate) -> Option<(Key, Addition)> {
    let DecidedPacket { bytes, wire_len, link, at_ms, .. } = *decided;
    let (packet, _) = packet::parse(Frame { bytes, wire_len, link, time_ns: 0 });
    let addresses = match packet.l3 {
        L3::Ipv4 => Addresses::V4(
            Ipv4Addr::from_bits(packet.saddr as u32).octets(),
            Ipv4Addr::from_bits(packet.daddr as u32).octets(),
        ),
        L3::Ipv6 => {
            Addresses::V6(Ipv6Addr::from_bits(packet.saddr).octets(), Ipv6Addr::from_bits(packet.daddr).octets())
        }
        _ => return None,
    };
    let is_icmp = matches!(packet.l4, L4::Icmp | L4::Icmp6) && packet.fragment != Fragment::Later;
    let key = Key {
        addresses,
        protocol: packet.proto,
        source_port: packet.sport,
        destination_port: packet.dport,
        icmp: if is_icmp { u16::from(packet.icmp_type) << 8 | u16::from(packet.icmp_code) } else { 0 },
        input: fate.input,
        output: fate.output,
        status: fate.status,
    };
    let tcp_flags = if packet.l4 == L4::Tcp { packet.tcp_flags } else { 0 };
    Some((key, Addition { at_ms, bytes: length(&packet).into(), tcp_flags }))
}

/// The length of the IP packet, without padding of Ethernet. What the header claims beyond the frame does not count.
fn length(packet: &Packet) -> u32 {
    let in_frame = packet.wire_len.saturating_sub(packet.l3_offset as u32);
    let claimed = match (packet.l3, packet.ip_length) {
        // Hosts that leave segmentation to the card write 0.
        (_, 0) => in_frame,
        (L3::Ipv6, payload) => IPV6_BYTES + u32::from(payload),
        (_, total) => total.into(),
    };
    claimed.min(in_frame)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_abi::Link;
    use weir_abi::verdict::Sampled;
    use weir_abi::{Action, Reason, Verdict};
    use weir_engine::live::Side;

    const FATE: Fate = Fate { input: 3, output: 4, status: 64 };

    fn of_bytes(bytes: &[u8], wire_len: u32) -> Option<(Key, Addition)> {
        let verdict = Verdict::new(Action::Accept, Reason::rule(0), Sampled::No);
        let decided =
            DecidedPacket { bytes, link: Link::Ethernet, wire_len, from: Side::Lower, verdict, at: None, at_ms: 9 };
        of(&decided, FATE)
    }

    fn bytes(notation: &str) -> Vec<u8> {
        weir_test_support::packets(notation).expect("the test's packet reads").remove(0).bytes
    }

    #[test]
    fn a_packet_has_the_flow_of_its_headers_and_its_ip_length() {
        let mut tcp = bytes("eth / ip saddr=192.0.2.1 daddr=198.51.100.7 / tcp sport=1024 dport=443 flags=syn");
        let ip_bytes = tcp.len() as u64 - 14;
        tcp.resize(60, 0);
        let (key, addition) = of_bytes(&tcp, 60).expect("it has a flow");
        assert_eq!(key.addresses, Addresses::V4([192, 0, 2, 1], [198, 51, 100, 7]));
        assert_eq!((key.protocol, key.source_port, key.destination_port, key.icmp), (6, 1024, 443, 0));
        assert_eq!((key.input, key.output, key.status), (3, 4, 64));
        assert_eq!(addition, Addition { at_ms: 9, bytes: ip_bytes, tcp_flags: 2 });
        // Without the length that a card would write.
        tcp[16..18].fill(0);
        assert_eq!(of_bytes(&tcp, 60).map(|(_, addition)| addition.bytes), Some(46));
        // With a length beyond the frame.
        tcp[16..18].fill(0xff);
        assert_eq!(of_bytes(&tcp, 60).map(|(_, addition)| addition.bytes), Some(46));
    }

    #[test]
    fn ipv6_counts_its_header_and_icmp_has_type_and_code() {
        let udp = bytes("eth / ip6 / udp dport=53 / payload 100");
        let (key, addition) = of_bytes(&udp, udp.len() as u32).expect("it has a flow");
        assert!(matches!(key.addresses, Addresses::V6(..)));
        assert_eq!((key.destination_port, addition.bytes, addition.tcp_flags), (53, 40 + 8 + 100, 0));
        let echo = bytes("eth / ip / icmp type=8 code=3");
        let (key, _) = of_bytes(&echo, echo.len() as u32).expect("it has a flow");
        assert_eq!((key.icmp, key.source_port, key.destination_port), (0x0803, 0, 0));
    }

    #[test]
    fn packets_without_a_network_header_have_no_flow() {
        let udp = bytes("eth / ip / udp");
        for length in 0..34 {
            assert_eq!(of_bytes(&udp[..length], udp.len() as u32), None, "{length}");
        }
        assert!(of_bytes(&udp[..34], udp.len() as u32).is_some());
    }
}
