//! What the side of arrival is worth: an inside source that comes from outside is forged.

#[path = "forged/judging.rs"]
#[allow(dead_code)]
mod judging;
#[path = "adversary/traffic.rs"]
#[allow(dead_code)]
mod traffic;

use judging::{BEGIN_S, END_S, run};
use traffic::{Packet, SERVER, Traffic, datagram, segment};
use weir_mitigate::header::{Arrival, Header, tcp};

/// One forged question of the server in front of every fifteen packets, beside the questions that it does ask.
fn with_forged_questions(arrival: Option<Arrival>) -> Traffic {
    let mut traffic = Traffic::of_customers(50, END_S);
    let mut sent = 0;
    traffic.attack(BEGIN_S, END_S, 5000.0, |random, _| {
        let (number, turn) = (sent / 16, sent % 16);
        sent += 1;
        let (saddr, sport) = (0x3a00_0000 + number * 7919, 1024 + (number % 60_000) as u16);
        match turn {
            0 => Header { arrival, ..datagram(SERVER, saddr, 9999, sport, 60) },
            _ => Header { arrival, ..datagram(saddr, SERVER, sport, 9999, 28 + 900 + random.below(200)) },
        }
    });
    traffic
}

#[test]
fn forged_questions_of_the_server_do_not_hide_a_flood() {
    // Where the side of packets is unknown, few answers vouch for few packets.
    for arrival in [None, Some(Arrival::Outside)] {
        run(with_forged_questions(arrival)).holds();
    }
}

/// Gives each packet its true side. Attack packets come from outside, even if their source is inside.
fn with_sides(traffic: Traffic) -> Traffic {
    let mut with_sides = Traffic::of_customers(0, 0.0);
    let packets = traffic.sorted().into_iter().map(|packet| {
        let is_from_inside = packet.header.saddr >> 16 == u128::from(SERVER >> 16) && !packet.is_attack;
        let arrival = Some(if is_from_inside { Arrival::Inside } else { Arrival::Outside });
        Packet { header: Header { arrival, ..packet.header }, ..packet }
    });
    with_sides.add(packets);
    with_sides
}

#[test]
fn a_flood_from_sources_inside_is_found_and_dropped() {
    let mut traffic = Traffic::of_customers(50, END_S);
    traffic.attack(BEGIN_S, END_S, 4000.0, |random, _| {
        let saddr = SERVER & 0xffff_0000 | random.below(1 << 16);
        datagram(saddr, SERVER, random.port(), 9999, 28 + 900 + random.below(200))
    });
    run(with_sides(traffic)).holds();
}

/// An outside attacker plays both sides of a connection: the handshake, and then a flood of its segments.
#[test]
fn a_connection_whose_both_sides_come_from_outside_proves_nothing() {
    let mut traffic = Traffic::of_customers(50, END_S);
    let client = 0x5d00_0000 + 7 * 7919;
    let mut sent = 0;
    traffic.attack(BEGIN_S, END_S, 3000.0, |_, _| {
        sent += 1;
        match sent {
            1 => segment(client, SERVER, 5555, 80, tcp::SYN, 100, 0, 0),
            2 => segment(SERVER, client, 80, 5555, tcp::SYN | tcp::ACK, 500, 101, 0),
            _ => segment(client, SERVER, 5555, 80, tcp::ACK | tcp::PSH, 101 + (sent - 3) * 100, 501, 100),
        }
    });
    let outcome = run(with_sides(traffic));
    outcome.holds();
}

/// A resolver that asks, in a flood of answers. What answers its questions is not lost for long.
#[test]
fn answers_to_questions_from_inside_undo_a_rule() {
    let (resolver, mut random) = (SERVER + 3, traffic::Random::new(5));
    let mut traffic = Traffic::of_customers(50, END_S);
    let mut packets = Vec::new();
    for number in 0..(150.0 * END_S) as u32 {
        let time_s = f64::from(number) / 150.0;
        let (server, port) = (random.address(), random.port());
        packets.push((time_s, datagram(resolver, server, port, 53, 66)));
        packets.push((time_s + 0.03, datagram(server, resolver, 53, port, 80 + random.below(1200))));
    }
    traffic.add(packets.into_iter().map(|(time_s, header)| Packet { time_s, header, is_attack: false }));
    traffic.attack(BEGIN_S, END_S, 2500.0, |random, _| {
        datagram(random.address(), resolver, 53, random.port(), 400 + random.below(600))
    });
    let outcome = run(with_sides(traffic));
    assert!(outcome.legitimate_share <= 0.001, "{outcome:?}");
    assert!(outcome.detected_s.is_some_and(|at_s| (0.0..=2.0).contains(&at_s)), "{outcome:?}");
}
