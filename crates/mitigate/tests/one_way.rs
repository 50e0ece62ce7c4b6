//! What is judged where only packets towards protected hosts are seen, and what is not.

#[path = "adversary/traffic.rs"]
#[allow(dead_code)]
mod traffic;

use traffic::{Packet, Random, SERVER, Traffic, customer, datagram};
use weir_abi::packet::Fragment;
use weir_mitigate::action::Mode;
use weir_mitigate::header::Header;
use weir_mitigate::mitigator::Settings;
use weir_mitigate::prefix::Prefix;
use weir_mitigate::recording::Recording;

/// A host that is a client.
const CLIENT: u32 = SERVER + 40;
const END_S: f64 = 20.0;

type Packets = Vec<(f64, Header)>;

/// Datagrams of some servers to a port each of the client, at a rate of all together.
fn from_servers(servers: u32, sport: u16, pps: f64, from_s: f64) -> Packets {
    let mut random = Random::new(u64::from(sport) + u64::from(servers));
    let number = ((END_S - from_s) * pps) as u32;
    let packets = (0..number).map(|number| {
        let server = random.below(servers);
        let length = if random.below(5) == 0 { 60 + random.below(900) } else { 1228 + random.below(25) };
        let dport = 50_000 + (server * 131) as u16;
        (from_s + f64::from(number) / pps, datagram(customer(800 + server), CLIENT, sport, dport, length))
    });
    packets.collect()
}

/// Peers that send blocks, and single answers of a distributed table.
fn of_peers(from_s: f64) -> Packets {
    let mut random = Random::new(5);
    let number = ((END_S - from_s) * 900.0) as u32;
    let packets = (0..number).map(|number| {
        let time_s = from_s + f64::from(number) / 900.0;
        let (peer, length) = match random.below(9) {
            0..2 => (1000 + number, 90 + random.below(300)),
            _ => (random.below(60), if random.below(4) == 0 { 48 } else { 1400 + random.below(50) }),
        };
        (time_s, datagram(customer(5000 + peer), CLIENT, 6881 + (peer % 40_000) as u16, 6881, length))
    });
    packets.collect()
}

/// A tunnel of ESP.
fn of_tunnel(from_s: f64) -> Packets {
    let esp = |header: Header| Header { protocol: 50, has_ports: false, sport: 0, dport: 0, payload: None, ..header };
    from_servers(1, 4500, 8000.0, from_s).into_iter().map(|(time_s, header)| (time_s, esp(header))).collect()
}

/// What one direction shows of customers and more packets.
fn one_way(more: Packets, is_attack: bool) -> Traffic {
    one_way_beside(20, more, is_attack)
}

/// As [`one_way`], beside so many customers.
fn one_way_beside(customers: u32, more: Packets, is_attack: bool) -> Traffic {
    let mut traffic = Traffic::of_customers(customers, END_S);
    traffic.add(more.into_iter().map(|(time_s, header)| Packet { time_s, header, is_attack }));
    traffic.keep(|packet| packet.header.daddr >> 16 == u128::from(SERVER >> 16));
    traffic
}

/// Runs a recording. Returns it, and the packets that were dropped.
fn run(traffic: Traffic, inside: Vec<Prefix>) -> (Recording, Vec<Packet>) {
    let mut recording = Recording::new(inside, Settings { mode: Mode::Act, ..Settings::default() });
    let is_dropped = |packet: &Packet| recording.take(&packet.header, (packet.time_s * 1e9) as u64);
    let dropped = traffic.sorted().into_iter().filter(is_dropped).collect();
    (recording, dropped)
}

fn inside() -> Vec<Prefix> {
    vec![Prefix::of(false, SERVER.into(), 16)]
}

#[test]
fn what_clients_ask_for_is_no_attack() {
    type Make = fn(f64) -> Packets;
    let cases: [(&str, Make); 9] = [
        ("a page of ten servers", |from_s| from_servers(10, 443, 200.0, from_s)),
        ("a page at once", |from_s| from_servers(10, 443, 2000.0, from_s)),
        ("pages of many servers", |from_s| from_servers(60, 443, 600.0, from_s)),
        ("a download", |from_s| from_servers(1, 443, 8000.0, from_s)),
        ("peers", of_peers),
        ("a tunnel of IPsec", |from_s| from_servers(1, 4500, 8000.0, from_s)),
        ("a tunnel of ESP", of_tunnel),
        ("a call over a relay", |from_s| from_servers(2, 3478, 1500.0, from_s)),
        ("a tunnel of WireGuard", |from_s| from_servers(1, 51820, 8000.0, from_s)),
    ];
    for (name, make) in cases {
        for (from_s, customers) in [(0.0, 20), (1.0, 20), (8.0, 20), (0.0, 0), (8.0, 0), (8.0, 1)] {
            for inside in [inside(), Vec::new()] {
                let mut traffic = one_way_beside(customers, make(from_s), false);
                // The recording begins earlier.
                let first = datagram(customer(1), CLIENT, 53, 5353, 90);
                traffic.add([Packet { time_s: 0.0, header: first, is_attack: false }].into_iter());
                let (recording, dropped) = run(traffic, inside);
                let attacks: Vec<_> = recording.mitigator().attacks().map(|attack| &attack.evidence).collect();
                let is_quiet = attacks.is_empty() && dropped.is_empty();
                assert!(is_quiet, "{name} from {from_s} s beside {customers}: {attacks:?}");
            }
        }
    }
}

#[test]
fn what_is_not_judged_is_counted() {
    let (recording, _) = run(one_way(from_servers(1, 443, 8000.0, 8.0), false), inside());
    let unjudged = recording.mitigator().unjudged();
    assert!((10_000..96_000).contains(&unjudged), "{unjudged}");
    let (recording, _) = run(one_way(Vec::new(), false), inside());
    assert_eq!(recording.mitigator().unjudged(), 0);
}

/// A datagram of an attack.
type Make = fn(&mut Random) -> Header;

fn of_reflector(random: &mut Random, sport: u16, length: u32) -> Header {
    datagram(0x2300_0000 + random.below(300) * 7919, CLIENT, sport, 40_000, length)
}

const ATTACKS: [(&str, f64, Make); 12] = [
    ("chargen", 300.0, |random| of_reflector(random, 19, 500 + random.clone().below(900))),
    ("dns", 300.0, |random| of_reflector(random, 53, 1400)),
    ("ntp", 300.0, |random| of_reflector(random, 123, 468)),
    ("snmp", 300.0, |random| of_reflector(random, 161, 1000 + random.clone().below(400))),
    ("cldap", 300.0, |random| of_reflector(random, 389, 1480)),
    ("ssdp", 300.0, |random| of_reflector(random, 1900, 300 + random.clone().below(80))),
    ("memcached", 300.0, |random| of_reflector(random, 11_211, 1428)),
    ("rdp", 300.0, |random| of_reflector(random, 3389, 1260)),
    ("memcached of three servers", 5000.0, |random| {
        datagram(0x2300_0000 + random.below(3), CLIENT, 11_211, 40_000, 1428)
    }),
    ("fragments", 300.0, |random| Header {
        fragment: Fragment::Later,
        has_ports: false,
        sport: 0,
        dport: 0,
        ..of_reflector(random, 0, 1500)
    }),
    ("made-up datagrams to any port", 600.0, |random| {
        datagram(random.address(), CLIENT, random.port(), random.port(), 300)
    }),
    ("made-up datagrams to one port", 3000.0, |random| datagram(random.address(), CLIENT, random.port(), 9999, 300)),
];

#[test]
fn attacks_that_show_themselves_are_dropped() {
    for (name, pps, make) in ATTACKS {
        for with_clients in [false, true] {
            let mut traffic = one_way(if with_clients { from_servers(10, 443, 400.0, 0.0) } else { Vec::new() }, false);
            traffic.attack(10.0, END_S, pps, |random, _| make(random));
            let (recording, dropped) = run(traffic, inside());
            let detected_s = recording.mitigator().attacks().map(|attack| attack.from_ns as f64 / 1e9 - 10.0).next();
            assert!(detected_s.is_some_and(|at_s| (0.0..=2.0).contains(&at_s)), "{name}: {detected_s:?}");
            let (attack, legitimate): (Vec<_>, Vec<_>) = dropped.into_iter().partition(|packet| packet.is_attack);
            assert!(legitimate.len() <= 8, "{name}: {}", legitimate.len());
            assert!(attack.len() as f64 >= pps * 8.0 * 0.9, "{name}: {} of {}", attack.len(), pps * 10.0);
        }
    }
}

/// Each bot sends from one port to one port.
#[test]
fn a_flood_of_many_bots_is_an_attack() {
    let mut traffic = one_way(Vec::new(), false);
    traffic.attack(10.0, END_S, 15_000.0, |random, _| {
        let bot = random.below(300);
        datagram(0x2300_0000 + bot * 7919, CLIENT, 10_000 + bot as u16, 9999, 540)
    });
    let (recording, _) = run(traffic, inside());
    let detected_s = recording.mitigator().attacks().map(|attack| attack.from_ns as f64 / 1e9 - 10.0).next();
    assert!(detected_s.is_some_and(|at_s| (0.0..=2.0).contains(&at_s)), "{detected_s:?}");
}

/// An attacker who sends streams for some seconds does not make a flood look like growth.
#[test]
fn datagrams_that_only_continue_do_not_raise_thresholds() {
    let mut traffic = one_way(Vec::new(), false);
    let mut streams = 0;
    traffic.attack(6.0, END_S, 900.0, |_, _| {
        streams += 1;
        let bot = streams % 40;
        datagram(0x2300_0000 + bot * 7919, CLIENT, 10_000 + bot as u16, 9999, 540)
    });
    traffic.attack(12.0, END_S, 1200.0, |random, _| of_reflector(random, 53, 1400));
    let (recording, _) = run(traffic, inside());
    let detected_s = recording.mitigator().attacks().map(|attack| attack.from_ns as f64 / 1e9 - 12.0).next();
    assert!(detected_s.is_some_and(|at_s| (0.0..=2.0).contains(&at_s)), "{detected_s:?}");
}
