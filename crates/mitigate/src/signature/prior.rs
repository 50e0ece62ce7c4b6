//! What legitimate traffic looks like everywhere: groups of headers that a signature must not cover.
//!
//! The reference of a short peace knows little. Without general knowledge, a signature such as "all UDP" would have hit
//! nothing in it. The groups are the everyday packets of TCP, DNS, NTP, QUIC and ICMP, with the spread of values that
//! real hosts have. Resets are missing: they carry no data, and without one a connection ends by a timeout.

use crate::header::{Header, protocol, tcp};
use crate::measure::hash;

/// Bytes of the shortest packet in an Ethernet frame with its padding.
const PADDED: u32 = 46;
/// Headers of each group.
const HEADERS: usize = 60;

/// Everyday packets, in groups of one kind.
pub fn groups() -> Vec<Vec<Header>> {
    type Make = fn(&mut Draw) -> Header;
    let makers: [Make; 12] = [
        |draw| segment(draw, tcp::SYN, &[52, 60], true),
        |draw| segment(draw, tcp::SYN | tcp::ACK, &[52, 60], false),
        |draw| segment(draw, tcp::ACK, &[40, 52], true),
        |draw| segment(draw, tcp::ACK, &[40, 52, 1400, 1500], false),
        |draw| segment(draw, tcp::PSH | tcp::ACK, &[120, 300, 560, 900, 1400], true),
        |draw| segment(draw, tcp::PSH | tcp::ACK, &[120, 300, 560, 900, 1400], false),
        |draw| segment(draw, tcp::FIN | tcp::ACK, &[40, 52], true),
        |draw| datagram(draw, 53, &[80, 110, 150, 200, 280, 400, 512], false),
        |draw| datagram(draw, 53, &[56, 60, 66, 72, 90], true),
        |draw| datagram(draw, 123, &[76], false),
        |draw| datagram(draw, 443, &[60, 64, 80, 300, 1228, 1280], false),
        echo,
    ];
    let group = |(seed, make): (u64, Make)| {
        let mut draw = Draw { state: seed };
        (0..HEADERS).map(|_| make(&mut draw)).collect()
    };
    (1..).zip(makers).map(group).collect()
}

/// Draws values, the same in each run.
struct Draw {
    state: u64,
}

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.state = hash(self.state, &[1]);
        self.state % bound
    }

    fn of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len() as u64) as usize]
    }

    fn high_port(&mut self) -> u16 {
        32768 + self.below(28000) as u16
    }

    /// The usual initial values less the length of the path.
    fn ttl(&mut self) -> u8 {
        let hops = self.below(20) as u8;
        self.of(&[64, 64, 128, 255]) - hops
    }

    fn base(&mut self) -> Header {
        Header { ttl: self.ttl(), ip_id: self.below(1 << 16) as u16, ..Header::between(self.below(1 << 32) as u32, 0) }
    }
}

fn segment(draw: &mut Draw, flags: u8, lengths: &[u32], to_service: bool) -> Header {
    let service = draw.of(&[80, 443, 443, 22, 25, 8080, 993, 8443]);
    let high = draw.high_port();
    let (sport, dport) = if to_service { (high, service) } else { (service, high) };
    let mut length = draw.of(lengths);
    let header_length = if length < 80 { length - 20 } else { 32 };
    let window = draw.of(&[64240, 65535, 29200, 8192, 501, 229, 1024]);
    let doff = (header_length / 4) as u8;
    let (seq, payload_length) = (draw.below(1 << 32) as u32, (length - 20 - header_length) as u16);
    // Ethernet pads a packet of 40 bytes where it is received, and not where it is sent.
    if length < PADDED && draw.below(2) == 0 {
        length = PADDED;
    }
    Header {
        protocol: protocol::TCP,
        has_ports: true,
        sport,
        dport,
        flags,
        doff,
        window,
        seq,
        length,
        payload_length,
        ..draw.base()
    }
}

fn datagram(draw: &mut Draw, service: u16, lengths: &[u32], to_service: bool) -> Header {
    let high = draw.high_port();
    let (sport, dport) = if to_service { (high, service) } else { (service, high) };
    let length = draw.of(lengths) + draw.below(6) as u32;
    let payload = Some((draw.below(1 << 32) as u32).to_be_bytes());
    let payload_length = length as u16 - 28;
    Header { protocol: protocol::UDP, has_ports: true, sport, dport, length, payload, payload_length, ..draw.base() }
}

fn echo(draw: &mut Draw) -> Header {
    let (icmp_type, length) = (draw.of(&[0, 8]), draw.of(&[60, 84]));
    Header { protocol: protocol::ICMP, icmp_type, length, ..draw.base() }
}
