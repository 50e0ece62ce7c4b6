//! Legitimate traffic of several kinds of protected hosts, in both directions or only towards them.

use super::traffic::{Packet, Random, SERVER, Traffic, customer, datagram, segment};
use weir_mitigate::header::{Header, protocol, tcp};

/// A server of QUIC, one of a game, and the resolver and mail relay of the network.
pub const QUIC: u32 = SERVER + 1;
pub const GAME: u32 = SERVER + 2;
pub const RELAY: u32 = SERVER + 3;
/// A resolver outside.
const RESOLVER: u32 = 0x0909_0909;

/// What is in the traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// Customers of the web server.
    Web,
    /// Web, QUIC, a game, DNS, NTP, pings, and uploads.
    Varied,
    /// As `Varied`, but only packets towards the protected hosts are seen.
    OneWay,
}

/// Legitimate traffic of some seconds.
pub fn legitimate(mix: Mix, seconds: f64, seed: u32) -> Traffic {
    let mut traffic = Traffic::of_customers(80, seconds);
    if mix == Mix::Web {
        return traffic;
    }
    let mut random = Random::new(u64::from(seed));
    let mut packets = Vec::new();
    for client in 0..30 {
        let mut at_s = random.below(3000) as f64 / 1000.0;
        while at_s < seconds {
            quic(&mut packets, &mut random, customer(2000 + client), at_s);
            at_s += 2.0 + random.below(4000) as f64 / 1000.0;
        }
    }
    (0..12).for_each(|player| game(&mut packets, &mut random, customer(3000 + player), seconds));
    let mut at_s = 0.0;
    while at_s < seconds {
        dns(&mut packets, &mut random, at_s);
        if random.below(4) == 0 {
            ping(&mut packets, customer(4000 + random.below(20)), at_s);
        }
        if random.below(8) == 0 {
            let client = customer(5000 + random.below(50));
            upload(&mut packets, &mut random, client, at_s);
        }
        at_s += 0.05 + random.below(100) as f64 / 1000.0;
    }
    traffic.add(packets.into_iter().map(|(time_s, header)| Packet { time_s, header, is_attack: false }));
    if mix == Mix::OneWay {
        traffic.keep(|packet| packet.header.daddr as u32 & 0xffff_0000 == SERVER & 0xffff_0000);
    }
    traffic
}

type Packets = Vec<(f64, Header)>;

/// A connection of QUIC: a long handshake, then data in turn.
fn quic(packets: &mut Packets, random: &mut Random, client: u32, begin_s: f64) {
    let port = random.port();
    let mut time_s = begin_s;
    packets.push((time_s, datagram(client, QUIC, port, 443, 1228 + random.below(40))));
    for _ in 0..2 + random.below(20) {
        time_s += 0.01;
        packets.push((time_s, datagram(QUIC, client, 443, port, 1200 + random.below(50))));
        time_s += 0.012;
        packets.push((time_s, datagram(client, QUIC, port, 443, 52 + random.below(90))));
    }
}

/// A player, whose host and the server send an update 20 times a second.
fn game(packets: &mut Packets, random: &mut Random, player: u32, seconds: f64) {
    let (port, mut time_s) = (random.port(), f64::from(random.below(10_000)) / 1000.0);
    while time_s < seconds {
        packets.push((time_s, datagram(player, GAME, port, 27015, 60 + random.below(60))));
        packets.push((time_s + 0.02, datagram(GAME, player, 27015, port, 120 + random.below(300))));
        time_s += 0.05;
    }
}

/// A question of the relay, with its answer. Some answers are long, and few are fragmented.
fn dns(packets: &mut Packets, random: &mut Random, time_s: f64) {
    let (port, length) = (random.port(), 80 + random.below(400));
    packets.push((time_s, datagram(RELAY, RESOLVER, port, 53, 70)));
    packets.push((time_s + 0.02, datagram(RESOLVER, RELAY, 53, port, length)));
    if random.below(20) == 0 {
        packets.push((time_s, datagram(RELAY, RESOLVER, 123, 123, 76)));
        packets.push((time_s + 0.02, datagram(RESOLVER, RELAY, 123, 123, 76)));
    }
}

fn ping(packets: &mut Packets, client: u32, time_s: f64) {
    let echo = |saddr, daddr, icmp_type| Header {
        protocol: protocol::ICMP,
        icmp_type,
        length: 84,
        ttl: 55,
        ..Header::between(saddr, daddr)
    };
    packets.push((time_s, echo(client, SERVER, 8)));
    packets.push((time_s + 0.001, echo(SERVER, client, 0)));
}

/// A mail: a handshake and full segments, each with an acknowledgement.
fn upload(packets: &mut Packets, random: &mut Random, client: u32, begin_s: f64) {
    let (port, mut seq, answer) = (random.port(), random.below(1 << 30), random.below(1 << 30));
    let to = |flags, seq, ack, bytes| segment(client, RELAY, port, 25, flags, seq, ack, bytes);
    let back = |flags, seq, ack| segment(RELAY, client, 25, port, flags, seq, ack, 0);
    packets.push((begin_s, to(tcp::SYN, seq, 0, 0)));
    packets.push((begin_s + 0.01, back(tcp::SYN | tcp::ACK, answer, seq + 1)));
    seq += 1;
    let mut time_s = begin_s + 0.03;
    packets.push((time_s, to(tcp::ACK, seq, answer + 1, 0)));
    for _ in 0..20 + random.below(60) {
        time_s += 0.004;
        packets.push((time_s, to(tcp::ACK, seq, answer + 1, 1448)));
        seq += 1448;
        packets.push((time_s + 0.01, back(tcp::ACK, answer + 1, seq)));
    }
    packets.push((time_s + 0.02, to(tcp::FIN | tcp::ACK, seq, answer + 1, 0)));
}
