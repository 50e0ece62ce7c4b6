//! Attacks of many kinds. `DEVELOPED` were used while detection was written; `HELD_BACK` only to judge it.

use super::legitimate::Mix::{self, OneWay, Varied, Web};
use super::legitimate::{GAME, QUIC, RELAY};
use super::traffic::{Random, SERVER, datagram, segment};
use weir_abi::packet::Fragment;
use weir_mitigate::header::{Header, protocol, tcp};

/// The first packets of an attack with their share; `time_s` counts from its beginning.
type Make = fn(&mut Random, f64, u32) -> Header;

/// An attack, beside legitimate traffic.
pub struct Attack {
    pub name: &'static str,
    pub mix: Mix,
    pub victim: u32,
    pub pps: f64,
    pub make: Make,
}

pub const fn attack(name: &'static str, mix: Mix, victim: u32, pps: f64, make: Make) -> Attack {
    Attack { name, mix, victim, pps, make }
}

/// A host without users.
const UNUSED: u32 = SERVER + 77;

pub const DEVELOPED: [Attack; 17] = [
    attack("ntp", Web, SERVER, 3000.0, ntp),
    attack("ntp at a low rate", Varied, SERVER, 130.0, ntp),
    attack("cldap in fragments", Varied, RELAY, 2000.0, cldap),
    attack("memcached of few sources", Varied, QUIC, 5000.0, memcached),
    attack("dns in fragments at a low rate", Varied, RELAY, 150.0, dns),
    attack("dns in fragments", OneWay, SERVER, 1500.0, dns),
    attack("ack flood", Varied, SERVER, 4000.0, ack),
    attack("ack flood", OneWay, SERVER, 4000.0, ack),
    attack("echo requests", Varied, SERVER, 1000.0, echo),
    attack("gre", Web, SERVER, 2000.0, gre),
    attack("syn flood at a low rate", Varied, SERVER, 150.0, syn),
    attack("three vectors", Varied, SERVER, 3000.0, three),
    attack("three vectors", OneWay, UNUSED, 300.0, three),
    attack("bots with handshakes", Web, SERVER, 6000.0, bots),
    attack("datagrams to a game", Varied, GAME, 3000.0, to_game),
    attack("syn flood at a low rate", Web, UNUSED, 150.0, syn),
    attack("all other protocols", Varied, SERVER, 2000.0, any_protocol),
];

pub const HELD_BACK: [Attack; 18] = [
    attack("ssdp", Varied, SERVER, 2500.0, ssdp),
    attack("ssdp at a low rate", OneWay, QUIC, 140.0, ssdp),
    attack("quic initials", Varied, QUIC, 3000.0, quic),
    attack("rst flood", Varied, SERVER, 2000.0, rst),
    attack("fin flood", OneWay, SERVER, 2000.0, fin),
    attack("syn flood of real stacks", Varied, SERVER, 2500.0, real_syn),
    attack("random datagrams", Varied, SERVER, 4000.0, random_datagrams),
    attack("random datagrams", OneWay, GAME, 4000.0, random_datagrams),
    attack("syn-ack reflection", Varied, SERVER, 1500.0, syn_ack),
    attack("syn-ack reflection at a low rate", Web, SERVER, 130.0, syn_ack),
    attack("ws-discovery of few sources", Varied, RELAY, 800.0, discovery),
    attack("later fragments", Varied, QUIC, 2000.0, fragments),
    attack("no flags", Web, SERVER, 1000.0, null),
    attack("game queries", Varied, GAME, 2500.0, queries),
    attack("a vector every five seconds", Varied, SERVER, 2500.0, rotating),
    attack("four vectors at once", OneWay, UNUSED, 400.0, four),
    attack("echo replies", Varied, QUIC, 400.0, echo_reply),
    attack("sctp and esp", Varied, SERVER, 900.0, protocols),
];

pub fn with_ttl(header: Header, random: &mut Random) -> Header {
    Header { ttl: 40 + random.below(24) as u8, ip_id: random.below(1 << 16) as u16, ..header }
}

/// One of some reflectors.
fn reflector(random: &mut Random, count: u32) -> u32 {
    0x2300_0000 + random.below(count).wrapping_mul(0x9e37_79b1) % 0x9000_0000
}

fn fixed(header: Header, payload: [u8; 4]) -> Header {
    Header { payload: Some(payload), ..header }
}

/// Answers of 468 bytes; one in 25 is an ICMP error of a host that does not answer.
fn ntp(random: &mut Random, _: f64, victim: u32) -> Header {
    let saddr = reflector(random, 900);
    if random.below(25) == 0 {
        return unreachable(random, saddr, victim, 56);
    }
    let header = datagram(saddr, victim, 123, 80, 468);
    with_ttl(fixed(header, [0xd7, random.below(100) as u8, 3, 42]), random)
}

fn unreachable(random: &mut Random, saddr: u32, victim: u32, length: u32) -> Header {
    let header =
        Header { protocol: protocol::ICMP, icmp_type: 3, icmp_code: 3, length, ..Header::between(saddr, victim) };
    with_ttl(header, random)
}

/// A datagram in fragments: the first has ports, the last is shorter.
fn in_fragments(random: &mut Random, first: Header, last_length: u32) -> Header {
    let later = Header { fragment: Fragment::Later, has_ports: false, sport: 0, dport: 0, payload: None, ..first };
    match random.below(3) {
        0 => Header { fragment: Fragment::First, length: 1500, ..first },
        1 => Header { length: 1500, ..later },
        _ => Header { length: last_length, ..later },
    }
}

fn cldap(random: &mut Random, _: f64, victim: u32) -> Header {
    let saddr = reflector(random, 400);
    let whole = fixed(datagram(saddr, victim, 389, 40000, 1500), [0x30, 0x84, 0, 0]);
    let whole = with_ttl(whole, random);
    in_fragments(random, whole, 200 + saddr % 1200)
}

fn memcached(random: &mut Random, _: f64, victim: u32) -> Header {
    let saddr = reflector(random, 20);
    let header = datagram(saddr, victim, 11211, random.port(), 1428);
    with_ttl(fixed(header, [random.below(256) as u8, 0, 0, 0]), random)
}

/// Answers. Some are short, because a server refuses, and most have fragments.
fn dns(random: &mut Random, _: f64, victim: u32) -> Header {
    let saddr = reflector(random, 250);
    let question = [random.below(256) as u8, random.below(256) as u8, 0x83, 0x80];
    let whole = with_ttl(fixed(datagram(saddr, victim, 53, 4444, 1500), question), random);
    match random.below(12) {
        0 => Header { length: 61, payload_length: 33, ..whole },
        _ => {
            let full = if saddr.is_multiple_of(5) { 1476 } else { 1500 };
            let part = in_fragments(random, whole, 900 + saddr % 4 * 35);
            Header { length: if part.length == 1500 { full } else { part.length }, ..part }
        }
    }
}

pub fn raw_segment(random: &mut Random, victim: u32, dport: u16, flags: u8) -> Header {
    let (saddr, sport, seq) = (random.address(), random.port(), random.below(u32::MAX));
    let header = segment(saddr, victim, sport, dport, flags, seq, random.below(u32::MAX), 0);
    let window = random.below(1 << 16) as u16;
    with_ttl(Header { doff: 5, length: 40, window, ..header }, random)
}

fn ack(random: &mut Random, _: f64, victim: u32) -> Header {
    raw_segment(random, victim, 80, tcp::ACK)
}

fn echo(random: &mut Random, _: f64, victim: u32) -> Header {
    let header =
        Header { protocol: protocol::ICMP, icmp_type: 8, length: 60 + random.below(40), ..Header::between(0, 0) };
    let header = Header { saddr: random.address().into(), daddr: victim.into(), ..header };
    with_ttl(header, random)
}

fn gre(random: &mut Random, _: f64, victim: u32) -> Header {
    let header = Header { protocol: 47, length: 500 + random.below(40), ..Header::between(random.address(), victim) };
    with_ttl(header, random)
}

fn syn(random: &mut Random, _: f64, victim: u32) -> Header {
    let header = raw_segment(random, victim, 80, tcp::SYN);
    Header { window: [8192, 16384, 65535][random.below(3) as usize], ..header }
}

fn three(random: &mut Random, time_s: f64, victim: u32) -> Header {
    match random.below(10) {
        0..5 => dns(random, time_s, victim),
        5..8 => syn(random, time_s, victim),
        _ => gre(random, time_s, victim),
    }
}

/// 300 bots, each with a connection, that send requests faster than all others and get no answer.
fn bots(random: &mut Random, time_s: f64, victim: u32) -> Header {
    let bot = random.below(300);
    let (saddr, sport) = (0x6500_0000 + bot * 31, 20_000 + bot as u16);
    let seq = 1000 + (time_s * 20.0) as u32 * 90;
    let header = segment(saddr, victim, sport, 80, tcp::PSH | tcp::ACK, seq, 77_000 + bot, 90);
    Header { ttl: 50, ..header }
}

fn to_game(random: &mut Random, _: f64, victim: u32) -> Header {
    let header = datagram(random.address(), victim, random.port(), 27015, 28 + 1 + random.below(2));
    with_ttl(header, random)
}

fn ssdp(random: &mut Random, _: f64, victim: u32) -> Header {
    let saddr = reflector(random, 3000);
    let header = datagram(
        saddr,
        victim,
        if saddr.is_multiple_of(3) { 1900 } else { 1024 + (saddr % 60_000) as u16 },
        9000,
        0x120 + saddr % 90,
    );
    with_ttl(fixed(header, *b"HTTP"), random)
}

fn quic(random: &mut Random, _: f64, victim: u32) -> Header {
    let header = datagram(random.address(), victim, random.port(), 443, 1278);
    with_ttl(fixed(header, [0xc0 | random.below(16) as u8, 0, 0, 1]), random)
}

fn rst(random: &mut Random, _: f64, victim: u32) -> Header {
    raw_segment(random, victim, 443, tcp::RST)
}

fn fin(random: &mut Random, _: f64, victim: u32) -> Header {
    let dport = random.port();
    raw_segment(random, victim, dport, tcp::FIN)
}

/// SYNs with options and windows as of real hosts, to an unused port.
fn real_syn(random: &mut Random, _: f64, victim: u32) -> Header {
    let (saddr, sport, seq) = (random.address(), 32768 + random.below(28_000) as u16, random.below(u32::MAX));
    let header = segment(saddr, victim, sport, 80, tcp::SYN, seq, 0, 0);
    let header = Header { window: [29200, 64240, 65535][random.below(3) as usize], ..header };
    with_ttl(Header { length: if header.window == 64240 { 52 } else { 60 }, ..header }, random)
}

fn random_datagrams(random: &mut Random, _: f64, victim: u32) -> Header {
    let header = datagram(random.address(), victim, random.port(), random.port(), 40 + random.below(1400));
    with_ttl(header, random)
}

fn syn_ack(random: &mut Random, _: f64, victim: u32) -> Header {
    let saddr = reflector(random, 20_000);
    let header = segment(saddr, victim, 443, random.port(), tcp::SYN | tcp::ACK, random.below(u32::MAX), 1, 0);
    let header = match random.below(12) {
        0 => Header { flags: tcp::RST | tcp::ACK, doff: 5, length: 40, window: 0, ..header },
        _ => Header { doff: 6, length: 44, window: [14600, 29200, 65535][saddr as usize % 3], ..header },
    };
    with_ttl(header, random)
}

fn discovery(random: &mut Random, _: f64, victim: u32) -> Header {
    let saddr = reflector(random, 30);
    let header = datagram(saddr, victim, 3702, 53_413, 650 + saddr % 7 * 40);
    with_ttl(fixed(header, *b"<?xm"), random)
}

fn fragments(random: &mut Random, _: f64, victim: u32) -> Header {
    let header = Header { protocol: protocol::UDP, fragment: Fragment::Later, length: 1500, ..Header::between(0, 0) };
    let header = Header { saddr: random.address().into(), daddr: victim.into(), ..header };
    with_ttl(header, random)
}

fn null(random: &mut Random, _: f64, victim: u32) -> Header {
    let dport = random.below(1024) as u16;
    raw_segment(random, victim, dport, 0)
}

fn queries(random: &mut Random, _: f64, victim: u32) -> Header {
    let header = datagram(random.address(), victim, random.port(), 27015, 53);
    with_ttl(fixed(header, [0xff; 4]), random)
}

fn rotating(random: &mut Random, time_s: f64, victim: u32) -> Header {
    let vectors: [Make; 5] = [ssdp, syn, gre, rst, random_datagrams];
    vectors[(time_s / 5.0) as usize % vectors.len()](random, time_s, victim)
}

fn four(random: &mut Random, time_s: f64, victim: u32) -> Header {
    let vectors: [Make; 4] = [ntp, syn_ack, echo, fragments];
    vectors[random.below(4) as usize](random, time_s, victim)
}

fn echo_reply(random: &mut Random, time_s: f64, victim: u32) -> Header {
    Header { icmp_type: 0, ..echo(random, time_s, victim) }
}

fn any_protocol(random: &mut Random, _: f64, victim: u32) -> Header {
    let protocol = 18 + random.below(238) as u8;
    let header = Header { protocol, length: 40 + random.below(380), ..Header::between(random.address(), victim) };
    with_ttl(header, random)
}

fn protocols(random: &mut Random, _: f64, victim: u32) -> Header {
    let protocol = [50, 132][random.below(2) as usize];
    let header = Header { protocol, length: 120 + random.below(900), ..Header::between(random.address(), victim) };
    with_ttl(header, random)
}
