//! Streams in one direction that begin, legitimate and not, and bots that are many.

use super::traffic::{Packet, Random, SERVER, Traffic, customer, datagram, segment};
use weir_mitigate::header::{Header, tcp};

/// A host without other users.
pub const COLLECTOR: u32 = SERVER + 60;

/// One sender: packets from one port to one port.
#[derive(Clone, Copy)]
pub struct Stream {
    pub saddr: u32,
    pub daddr: u32,
    pub ports: (u16, u16),
    pub pps: f64,
    pub from_s: f64,
}

impl Stream {
    /// A stream to the collector.
    pub const fn to_collector(ports: (u16, u16), pps: f64, from_s: f64) -> Self {
        Stream { saddr: 0x2d10_0305, daddr: COLLECTOR, ports, pps, from_s }
    }

    /// Senders of a fleet, each with a port of its own, that begin one after the other.
    pub fn fleet(count: u32, pps: f64, from_s: f64, seconds: f64) -> Vec<Self> {
        let mut random = Random::new(8);
        let mut one = |number: u32| Stream {
            saddr: customer(7000 + number),
            ports: (32768 + random.below(28_000) as u16, 2055),
            from_s: from_s + seconds * f64::from(number) / f64::from(count),
            ..Stream::to_collector((0, 0), pps, 0.0)
        };
        (0..count).map(&mut one).collect()
    }

    fn headers(self, until_s: f64) -> impl Iterator<Item = (f64, Header)> {
        let mut random = Random::new(self.saddr.into());
        let packets = ((until_s - self.from_s) * self.pps) as u32;
        (0..packets).map(move |number| {
            let (sport, dport) = self.ports;
            let header = datagram(self.saddr, self.daddr, sport, dport, 100 + random.below(400));
            (self.from_s + f64::from(number) / self.pps, header)
        })
    }

    /// Adds its packets until a time.
    pub fn add(self, traffic: &mut Traffic, until_s: f64, is_attack: bool) {
        traffic.add(self.headers(until_s).map(|(time_s, header)| Packet { time_s, header, is_attack }));
    }

    /// Adds some of its packets until a time, as an attack.
    pub fn add_some(self, traffic: &mut Traffic, until_s: f64, is_sent: impl Fn(f64) -> bool) {
        let sent = self.headers(until_s).filter(|&(time_s, _)| is_sent(time_s));
        traffic.add(sent.map(|(time_s, header)| Packet { time_s, header, is_attack: true }));
    }

    /// Adds its packets as packets of a tunnel, with an answer to every tenth.
    pub fn add_tunnel(self, traffic: &mut Traffic, until_s: f64) {
        let esp = |header: Header| Header {
            protocol: 50,
            has_ports: false,
            sport: 0,
            dport: 0,
            payload: None,
            payload_length: 0,
            ..header
        };
        let there: Vec<Packet> = self
            .headers(until_s)
            .map(|(time_s, header)| Packet { time_s, header: esp(header), is_attack: false })
            .collect();
        let back = there.iter().step_by(10).map(|packet| {
            let header = Header { saddr: packet.header.daddr, daddr: packet.header.saddr, ..packet.header };
            Packet { time_s: packet.time_s + 0.01, header, is_attack: false }
        });
        traffic.add(back);
        traffic.add(there.iter().copied());
    }
}

/// Segments of customers' hosts outside of their connections: each sends from one port.
pub fn segments_of_hosts(traffic: &mut Traffic, hosts: u32, pps: f64, from_s: f64, until_s: f64) {
    traffic.attack(from_s, until_s, pps, |random, _| {
        let host = random.below(hosts);
        let (seq, ack, bytes) = (random.below(u32::MAX), random.below(u32::MAX), 100 + random.below(800) as u16);
        let sport = 33_000 + (host * 1117) as u16;
        segment(customer(host), SERVER, sport, 80, tcp::PSH | tcp::ACK, seq, ack, bytes)
    });
}

/// Bots that open a connection each and flood it.
pub fn floods_of_connections(traffic: &mut Traffic, bots: u32, pps: f64, from_s: f64, until_s: f64) {
    let bot = |number: u32| 0x7a00_0000 + number * 7919;
    for number in 0..bots {
        let between = |from_bot: bool, flags, seq, ack| {
            let port = 40_000 + number as u16;
            match from_bot {
                true => segment(bot(number), SERVER, port, 80, flags, seq, ack, 0),
                false => segment(SERVER, bot(number), 80, port, flags, seq, ack, 0),
            }
        };
        let handshake = [
            (0.0, between(true, tcp::SYN, 99, 0)),
            (0.02, between(false, tcp::SYN | tcp::ACK, 499, 100)),
            (0.04, between(true, tcp::ACK, 100, 500)),
        ];
        let packets = handshake.map(|(time_s, header)| Packet { time_s: from_s + time_s, header, is_attack: false });
        traffic.add(packets.into_iter());
    }
    let mut sent = 0;
    traffic.attack(from_s + 0.1, until_s, pps, |_, _| {
        sent += 1;
        let (number, seq) = (sent % bots, 100 + sent / bots * 200);
        segment(bot(number), SERVER, 40_000 + number as u16, 80, tcp::PSH | tcp::ACK, seq, 500, 200)
    });
}

/// Datagrams of all kinds from made-up sources.
pub fn random_datagrams(random: &mut Random, _: f64, victim: u32) -> Header {
    let header = datagram(random.address(), victim, random.port(), random.port(), 40 + random.below(1400));
    super::attacks::with_ttl(header, random)
}
