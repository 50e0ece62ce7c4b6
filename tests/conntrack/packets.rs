//! IP packets of generated flows.

use crate::flows::Segment;

/// A host: client and server have the flows, routers send errors, and a stranger forges some.
pub type Host = usize;

pub const HOSTS: [Host; 2] = [0, 1];
pub const ROUTER: Host = 2;
pub const STRANGER: Host = 3;

pub const ICMP: u8 = 1;
pub const TCP: u8 = 6;
pub const UDP: u8 = 17;
pub const ICMP6: u8 = 58;
/// The destination options of IPv6.
pub const OPTIONS: u8 = 60;
pub const UDP_LITE: u8 = 136;
/// For experiments (RFC 3692).
pub const EXPERIMENT: u8 = 253;

/// The IP packet of a flow with a number, between two hosts. Flows with odd numbers are IPv6.
pub fn ip(number: u32, [source, destination]: [Host; 2], protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = if is_ipv6(number) {
        let mut header = vec![0x60, 0, 0, 0];
        header.extend((payload.len() as u16).to_be_bytes());
        header.extend([protocol, 64]);
        header
    } else {
        let mut header = vec![0x45, 0];
        header.extend((20 + payload.len() as u16).to_be_bytes());
        header.extend([0, 0, 0, 0, 64, protocol, 0, 0]);
        header
    };
    for host in [source, destination] {
        packet.extend(address(number, host));
    }
    packet.extend(payload);
    packet
}

/// The client of each flow has an address of its own.
fn address(number: u32, host: Host) -> Vec<u8> {
    if is_ipv6(number) {
        let last = if host == 0 { number } else { 1 };
        let address = 0x2001_0db8 << 96 | (host as u128) << 64 | u128::from(last);
        return address.to_be_bytes().into();
    }
    let address = [0x0a00_0000 | number, 0xc633_6401, 0xc000_0201, 0xcb00_7109][host];
    address.to_be_bytes().into()
}

pub fn is_ipv6(number: u32) -> bool {
    number % 2 == 1
}

/// Whether the client has sent a packet.
pub fn is_client(number: u32, packet: &[u8]) -> bool {
    let source = if is_ipv6(number) { &packet[8..24] } else { &packet[12..16] };
    source == address(number, 0)
}

/// The packet of a generated segment.
pub fn of_segment(number: u32, segment: &Segment) -> Vec<u8> {
    match is_ipv6(number) {
        true => ip(number, [segment.from, 1 - segment.from], TCP, &segment.bytes(number)),
        false => segment.packet(number),
    }
}
