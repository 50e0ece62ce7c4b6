//! Packets that this machine and its neighbour on the way to the operator use to find each other. Without them a
//! connection ends within a minute: ARP (RFC 826), and for IPv6 neighbour solicitation and advertisement (RFC 4861), as
//! hosts send them to check that a neighbour is still there.

use super::packets::{ETHERNET, Passing, checksum, sixteen};
use std::net::{IpAddr, Ipv6Addr};
use weir_policy::ir::Direction;

/// Address of the neighbour on the link: the operator or a router.
const NEIGHBOUR: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;

/// A question and an answer in each direction.
pub fn found(client: IpAddr, here: IpAddr) -> Vec<Passing> {
    let (up, down) = (Direction::Upstream, Direction::Downstream);
    let packet = |direction, question: bool| match (client, here) {
        (IpAddr::V4(client), IpAddr::V4(here)) => {
            let (from, to) = if direction == up { (client, here) } else { (here, client) };
            let frame = arp(if question { 1 } else { 2 }, from.octets(), to.octets());
            Passing { direction, what: "ARP, without which your connection ends,", frame }
        }
        _ => {
            let (here, other) = (sixteen(here), NEIGHBOUR.octets());
            let (from, to) = if direction == up { (other, here) } else { (here, other) };
            let frame = discovery(if question { SOLICITATION } else { ADVERTISEMENT }, from, to);
            Passing { direction, what: "neighbour discovery (ICMPv6), without which your connection ends,", frame }
        }
    };
    vec![packet(up, true), packet(down, false), packet(down, true), packet(up, false)]
}

fn arp(operation: u8, from: [u8; 4], to: [u8; 4]) -> Vec<u8> {
    let [source, destination] = ETHERNET;
    let mut frame = [destination, source].concat();
    // EtherType, then: Ethernet, IPv4, and the lengths of their addresses.
    frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, operation]);
    frame.extend([&source[..], &from, &destination, &to].concat());
    frame
}

fn discovery(kind: u8, from: [u8; 16], to: [u8; 16]) -> Vec<u8> {
    const ICMPV6: u8 = 58;
    let [source, destination] = ETHERNET;
    // Solicited, and overrides what was known.
    let (flags, target) = if kind == ADVERTISEMENT { (0x60, from) } else { (0, to) };
    // The option 1 or 2 with the address of the link, which is one unit of eight bytes.
    let option = [kind - SOLICITATION + 1, 1];
    let mut icmp = [&[kind, 0, 0, 0, flags, 0, 0, 0][..], &target, &option, &source].concat();
    let pseudo = [&from[..], &to, &(icmp.len() as u32).to_be_bytes(), &[0, 0, 0, ICMPV6], &icmp].concat();
    icmp[2..4].copy_from_slice(&checksum(&pseudo).to_be_bytes());
    let mut frame = [destination, source].concat();
    frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
    frame.extend((icmp.len() as u16).to_be_bytes());
    frame.extend([ICMPV6, 255]);
    frame.extend([&from[..], &to, &icmp].concat());
    frame
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_abi::Link;
    use weir_abi::packet::{L3, L4};
    use weir_policy::ir::eval::packet::{Frame, parse};

    #[test]
    fn packets_are_well_formed() {
        for (client, here, l3) in [("198.51.100.7", "192.0.2.1", L3::Arp), ("2001:db8::7", "2001:db8::1", L3::Ipv6)] {
            let (client, here) = (client.parse().expect("an address"), here.parse().expect("an address"));
            let kinds = found(client, here).into_iter().map(|Passing { what, frame, .. }| {
                let wire_len = frame.len() as u32;
                let (packet, _) = parse(Frame { bytes: &frame, wire_len, link: Link::Ethernet, time_ns: 0 });
                assert_eq!(packet.l3, l3, "{what}");
                if l3 == L3::Ipv6 {
                    assert_eq!(packet.l4, L4::Icmp6, "{what}");
                    let sum = [&frame[22..54], &[0, 0, 0, (wire_len - 54) as u8, 0, 0, 0, 58], &frame[54..]].concat();
                    assert_eq!(checksum(&sum), 0, "{what}");
                }
                packet.icmp_type
            });
            let expected = if l3 == L3::Ipv6 { [135, 136, 135, 136] } else { [0; 4] };
            assert_eq!(kinds.collect::<Vec<_>>(), expected);
        }
    }
}
