//! Packets of a TCP connection between an operator and this machine, as the interpreter of policies decides them.

use std::net::{IpAddr, SocketAddr};
use weir_policy::ir::Direction;

/// A packet with the direction in which it passes.
pub struct Passing {
    pub direction: Direction,
    /// What it is, for messages.
    pub what: &'static str,
    pub frame: Vec<u8>,
}

/// Flags of TCP (RFC 9293, section 3.1).
const SYN: u8 = 0x02;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;
/// Addresses of Ethernet: locally administered ones.
pub const ETHERNET: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
/// A keystroke of ssh and its echo.
const DATA_BYTES: usize = 36;
/// The first numbers of both sides.
const CLIENT_SEQ: u32 = 1000;
const SERVER_SEQ: u32 = 5000;
const DATA: u32 = DATA_BYTES as u32;

/// A connection that stands already, from the middle.
pub fn standing(client: SocketAddr, server: SocketAddr) -> Vec<Passing> {
    let (up, down) = both_ways(client, server);
    vec![
        up.passes("a packet from you", PSH | ACK, CLIENT_SEQ, SERVER_SEQ, DATA_BYTES),
        down.passes("a packet to you", PSH | ACK, SERVER_SEQ, CLIENT_SEQ + DATA, DATA_BYTES),
        up.passes("a packet from you", ACK, CLIENT_SEQ + DATA, SERVER_SEQ + DATA, 0),
    ]
}

/// A connection from its beginning.
pub fn opened(client: SocketAddr, server: SocketAddr) -> Vec<Passing> {
    let (up, down) = both_ways(client, server);
    let (client, server) = (CLIENT_SEQ + 1, SERVER_SEQ + 1);
    vec![
        up.passes("the SYN of a new connection from you", SYN, CLIENT_SEQ, 0, 0),
        down.passes("the answer to a new connection from you", SYN | ACK, SERVER_SEQ, client, 0),
        up.passes("the ACK of a new connection from you", ACK, client, server, 0),
        up.passes("data of a new connection from you", PSH | ACK, client, server, DATA_BYTES),
        down.passes("data to a new connection from you", PSH | ACK, server, client + DATA, DATA_BYTES),
    ]
}

/// The ends of packets of one direction.
struct Ends {
    from: SocketAddr,
    to: SocketAddr,
    direction: Direction,
}

/// From the client to this machine is upstream.
fn both_ways(client: SocketAddr, server: SocketAddr) -> (Ends, Ends) {
    let up = Ends { from: client, to: server, direction: Direction::Upstream };
    (up, Ends { from: server, to: client, direction: Direction::Downstream })
}

impl Ends {
    fn passes(&self, what: &'static str, flags: u8, seq: u32, ack: u32, data: usize) -> Passing {
        let mut tcp = Vec::new();
        tcp.extend(self.from.port().to_be_bytes());
        tcp.extend(self.to.port().to_be_bytes());
        tcp.extend(seq.to_be_bytes());
        tcp.extend(ack.to_be_bytes());
        // 64,240 bytes of window, as Linux offers. A SYN offers a maximum segment size.
        let options: &[u8] = if flags & SYN != 0 { &[2, 4, 5, 180] } else { &[] };
        tcp.extend([(20 + options.len()) as u8 / 4 * 16, flags, 0xfa, 0xf0, 0, 0, 0, 0]);
        tcp.extend(options);
        tcp.resize(tcp.len() + data, 0);
        Passing { direction: self.direction, what, frame: frame(self.from.ip(), self.to.ip(), &tcp) }
    }
}

/// An Ethernet frame with a TCP segment. Its checksums are right.
fn frame(from: IpAddr, to: IpAddr, tcp: &[u8]) -> Vec<u8> {
    const TCP: u8 = 6;
    let mut frame: Vec<u8> = ETHERNET.concat();
    let addresses = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => [from.octets(), to.octets()].concat(),
        (from, to) => [from, to].map(sixteen).concat(),
    };
    let mut tcp = tcp.to_vec();
    let pseudo = [&addresses[..], &(tcp.len() as u32).to_be_bytes(), &[0, 0, 0, TCP], &tcp].concat();
    tcp[16..18].copy_from_slice(&checksum(&pseudo).to_be_bytes());
    if from.is_ipv4() {
        frame.extend([8, 0]);
        let mut header = vec![0x45, 0];
        header.extend((20 + tcp.len() as u16).to_be_bytes());
        header.extend([0, 1, 0x40, 0, 64, TCP, 0, 0]);
        header.extend(&addresses);
        let sum = checksum(&header).to_be_bytes();
        header[10..12].copy_from_slice(&sum);
        frame.extend(header);
    } else {
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        frame.extend((tcp.len() as u16).to_be_bytes());
        frame.extend([TCP, 64]);
        frame.extend(&addresses);
    }
    frame.extend(tcp);
    frame
}

/// The bytes of an IPv6 address.
pub fn sixteen(addr: IpAddr) -> [u8; 16] {
    match addr {
        IpAddr::V4(addr) => addr.to_ipv6_mapped().octets(),
        IpAddr::V6(addr) => addr.octets(),
    }
}

/// The Internet checksum (RFC 1071).
pub fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_abi::Link;
    use weir_abi::packet::{L3, L4};
    use weir_policy::ir::eval::packet::{Frame, parse};

    #[test]
    fn packets_are_well_formed() {
        for (client, here, l3) in
            [("198.51.100.7:50000", "192.0.2.1:22", L3::Ipv4), ("[2001:db8::7]:50000", "[2001:db8::1]:22", L3::Ipv6)]
        {
            let (client, here) = (client.parse().expect("an end"), here.parse().expect("an end"));
            for Passing { direction, what, frame } in standing(client, here).into_iter().chain(opened(client, here)) {
                let wire_len = frame.len() as u32;
                let (packet, _) = parse(Frame { bytes: &frame, wire_len, link: Link::Ethernet, time_ns: 0 });
                let ports = if direction == Direction::Upstream { (50000, 22) } else { (22, 50000) };
                assert_eq!((packet.l3, packet.l4, (packet.sport, packet.dport)), (l3, L4::Tcp, ports), "{what}");
                let header = if l3 == L3::Ipv4 { 34 } else { 54 };
                // The sum of what is right is all ones.
                assert!(l3 == L3::Ipv6 || checksum(&frame[14..header]) == 0, "{what}");
                let from_addresses = &frame[header - if l3 == L3::Ipv4 { 8 } else { 32 }..];
                let length = (frame.len() - header) as u32;
                let sum = [&length.to_be_bytes()[..], &[0, 0, 0, 6], from_addresses].concat();
                assert_eq!(checksum(&sum), 0, "{what}");
            }
        }
    }
}
