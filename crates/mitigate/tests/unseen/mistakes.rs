//! Attacks that once cost customers more than they should, and traffic that once looked like an attack.

use super::attacks::{Attack, attack, raw_segment, with_ttl};
use super::legitimate::Mix::{Varied, Web};
use super::legitimate::RELAY;
use super::traffic::{Packet, Random, SERVER, Traffic, datagram, segment};
use weir_mitigate::header::{Header, tcp};

/// A server of names. Only this file uses it.
pub const NAMES: u32 = SERVER + 9;

/// Answers of all lengths to a web server that asks no questions, beside a relay that does.
pub const ANSWERS: [Attack; 3] = [
    attack("short dns answers", Varied, SERVER, 1800.0, |random, _, victim| answers(random, victim, 180, 900)),
    attack("dns answers of any length", Web, SERVER, 700.0, |random, _, victim| answers(random, victim, 60, 1400)),
    attack("syn-acks of real stacks", Varied, SERVER, 1500.0, syn_ack),
];

/// Answers of all lengths to a relay that does ask.
pub const RESOLVER: Attack =
    attack("dns answers to a resolver", Varied, RELAY, 2500.0, |random, _, victim| answers(random, victim, 400, 1000));

/// SYNs and questions as the victim's own customers send them.
pub const SYNS: Attack = attack("syns of customers", Web, SERVER, 3000.0, |random, _, victim| {
    let (saddr, sport, seq) = (random.address(), 32768 + random.below(16_384) as u16, random.below(u32::MAX));
    segment(saddr, victim, sport, 80, tcp::SYN, seq, 0, 0)
});
/// Data and acknowledgements as customers send them, outside of any connection.
pub const SEGMENTS: Attack = attack("segments of customers", Web, SERVER, 3000.0, |random, _, victim| {
    let (saddr, sport, seq) = (random.address(), 32768 + random.below(16_384) as u16, random.below(u32::MAX));
    let (flags, bytes) = [(tcp::ACK, 0), (tcp::ACK | tcp::PSH, 300)][random.below(2) as usize];
    segment(saddr, victim, sport, 80, flags, seq, random.below(u32::MAX), bytes)
});
pub const QUESTIONS: Attack = attack("questions of customers", Web, NAMES, 2500.0, |random, _, victim| {
    datagram(random.address(), victim, random.port(), 53, 58 + random.below(12))
});

/// SYNs without options to a server of names that answers many questions meanwhile.
pub const BESIDE_QUESTIONS: Attack =
    attack("syns beside questions", Web, NAMES, 150.0, |random, _, victim| raw_segment(random, victim, 53, tcp::SYN));

/// SYNs of customers' stacks from all addresses of one net.
pub const ONE_NET: Attack = attack("syns of one net", Web, SERVER, 1200.0, |random, _, victim| {
    let header = raw_segment(random, victim, 80, tcp::SYN);
    let saddr = u128::from(NET | random.below(1 << 24));
    Header { saddr, doff: 10, length: 60, window: 64240, ttl: 48 + random.below(12) as u8, ..header }
});

/// Addresses of attackers in one net.
const NET: u32 = 0xfe00_0000;

/// An address of IPv6: each host has a /64 of its own, but attackers share one.
pub fn in_nets(header: Header) -> Header {
    let address = |address: u128| match address >> 24 == u128::from(NET >> 24) {
        true => super::IPV6 | 0xbad_0000 << 64 | address.wrapping_mul(0x9e37_79b9_7f4a_7c15) & 0xffff_ffff_ffff_ffff,
        false => super::IPV6 | address << 64 | 1,
    };
    let (saddr, daddr) = (address(header.saddr), address(header.daddr));
    Header { is_ipv6: true, saddr, daddr, length: header.length + 20, ip_id: 0, ..header }
}

fn answers(random: &mut Random, victim: u32, shortest: u32, longest: u32) -> Header {
    let length = shortest + random.below(longest - shortest);
    let header = datagram(random.address(), victim, 53, random.port(), length);
    with_ttl(header, random)
}

fn syn_ack(random: &mut Random, _: f64, victim: u32) -> Header {
    let sport = [80, 443, 22, 25][random.below(4) as usize];
    let (dport, seq) = (random.port(), random.below(u32::MAX));
    let header = segment(random.address(), victim, sport, dport, tcp::SYN | tcp::ACK, seq, random.below(u32::MAX), 0);
    with_ttl(Header { window: [65160, 28960, 65535][random.below(3) as usize], ..header }, random)
}

/// A resolver that asks servers everywhere, with answers of all lengths.
pub fn resolver(traffic: &mut Traffic, per_second: u32, seconds: f64) {
    let mut random = Random::new(5);
    let mut packets = Vec::new();
    for number in 0..(f64::from(per_second) * seconds) as u32 {
        let time_s = f64::from(number) / f64::from(per_second);
        let (server, port) = (random.address(), random.port());
        packets.push((time_s, datagram(RELAY, server, port, 53, 66)));
        packets.push((time_s + 0.03, datagram(server, RELAY, 53, port, 80 + random.below(1200))));
    }
    add(traffic, packets);
}

/// Single questions to a server. Each has an answer.
pub fn questions(traffic: &mut Traffic, per_second: u32, from_s: f64, until_s: f64) {
    let mut random = Random::new(6);
    let mut packets = Vec::new();
    for number in 0..(f64::from(per_second) * (until_s - from_s)) as u32 {
        let time_s = from_s + f64::from(number) / f64::from(per_second);
        let (client, port) = (random.address(), random.port());
        packets.push((time_s, datagram(client, NAMES, port, 53, 58 + random.below(12))));
        packets.push((time_s + 0.002, datagram(NAMES, client, 53, port, 120)));
    }
    add(traffic, packets);
}

/// A flood of SYNs of customers' stacks. The server answers each SYN.
pub fn answered_syns(traffic: &mut Traffic, pps: f64, begin_s: f64, end_s: f64) {
    let mut answers = Vec::new();
    traffic.attack(begin_s, end_s, pps, |random, time_s| {
        let syn = (SYNS.make)(random, time_s, SYNS.victim);
        let (flags, client) = (tcp::SYN | tcp::ACK, syn.saddr as u32);
        let seq = random.below(u32::MAX);
        let answer = segment(SYNS.victim, client, syn.dport, syn.sport, flags, seq, syn.seq.wrapping_add(1), 0);
        answers.push((time_s + 0.001, answer));
        syn
    });
    add(traffic, answers);
}

/// SYNs of made-up sources and the acknowledgements of answers that these have not seen. The server answers all of
/// them.
pub fn blind_handshakes(traffic: &mut Traffic, pps: f64, begin_s: f64, end_s: f64) {
    let mut syns = Vec::new();
    traffic.attack(begin_s, end_s, pps, |random, time_s| {
        let syn = (SYNS.make)(random, time_s, SYNS.victim);
        syns.push((time_s, syn, random.below(u32::MAX)));
        syn
    });
    let mut answers = Vec::new();
    let blind = syns.into_iter().map(|(time_s, syn, seq)| {
        let (client, own) = (syn.saddr as u32, syn.seq.wrapping_add(1));
        let flags = tcp::SYN | tcp::ACK;
        answers.push((time_s + 0.001, segment(SYNS.victim, client, syn.dport, syn.sport, flags, seq, own, 0)));
        let made_up = seq ^ 0x5555_5555;
        let header = segment(client, SYNS.victim, syn.sport, syn.dport, tcp::ACK, own, made_up, 0);
        Packet { time_s: time_s + 0.002, header, is_attack: true }
    });
    let blind: Vec<Packet> = blind.collect();
    traffic.add(blind.into_iter());
    add(traffic, answers);
}

/// Segments of connections that the server does not know, and its resets.
pub fn moved(traffic: &mut Traffic, connections: u32, begin_s: f64, end_s: f64) {
    let mut random = Random::new(7);
    let mut packets = Vec::new();
    for number in 0..connections {
        let time_s = begin_s + (end_s - begin_s) * f64::from(number) / f64::from(connections);
        let (client, port, seq) = (random.address(), 32768 + random.below(28_000) as u16, random.below(u32::MAX));
        let ack = random.below(u32::MAX);
        packets.push((time_s, segment(client, SERVER, port, 80, tcp::ACK, seq, ack, 0)));
        packets.push((time_s + 0.001, segment(SERVER, client, 80, port, tcp::RST, ack, 0, 0)));
    }
    add(traffic, packets);
}

fn add(traffic: &mut Traffic, packets: Vec<(f64, Header)>) {
    traffic.add(packets.into_iter().map(|(time_s, header)| Packet { time_s, header, is_attack: false }));
}
