//! What an attacker achieves by forging proof: addresses, ports and answered questions are his to write.

#[path = "forged/judging.rs"]
mod judging;
#[path = "adversary/traffic.rs"]
#[allow(dead_code)]
mod traffic;

use judging::{BEGIN_S, END_S, NAMES, ask, garbage, made_up, run};
use traffic::{Packet, SERVER, Traffic, customer, datagram, segment};
use weir_mitigate::header::{Header, protocol, tcp};

#[test]
fn two_forged_questions_do_not_get_a_customer_blocked() {
    let mut traffic = Traffic::of_customers(50, END_S);
    let victim = (customer(7), 4444);
    ask(&mut traffic, BEGIN_S, victim);
    ask(&mut traffic, BEGIN_S + 0.01, victim);
    traffic.attack(BEGIN_S + 0.02, END_S, 3000.0, |random, _| garbage(random, victim));
    let outcome = run(traffic);
    outcome.is_detected();
    // One sender to one port is a stream, which has 500 packets/s.
    assert!(outcome.attack_share >= 0.83, "{outcome:?}");
}

#[test]
fn sources_that_were_answered_once_do_not_hide_a_flood() {
    let mut traffic = Traffic::of_customers(50, END_S);
    for number in 0..300 {
        let time_s = BEGIN_S - 1.0 + f64::from(number) * 0.003;
        ask(&mut traffic, time_s, made_up(number));
        ask(&mut traffic, time_s + 0.01, made_up(number));
    }
    traffic.attack(BEGIN_S, END_S, 300.0 * 60.0, |random, _| {
        let number = random.below(300);
        garbage(random, made_up(number))
    });
    run(traffic).holds();
}

/// A flood of made-up sources, with some of its packets from sources that were answered.
fn with_vouchers(seconds_between: f64) -> Traffic {
    let mut traffic = Traffic::of_customers(50, END_S);
    for number in 0..40 {
        let mut time_s = BEGIN_S - 10.0 + f64::from(number) * 0.01;
        while time_s < END_S {
            ask(&mut traffic, time_s, made_up(number));
            ask(&mut traffic, time_s + 0.01, made_up(number));
            time_s += seconds_between;
        }
    }
    traffic.attack(BEGIN_S, END_S, 3000.0, |random, _| {
        let source = match random.below(1000) {
            0..27 => made_up(random.below(40)),
            _ => (random.address(), random.port()),
        };
        garbage(random, source)
    });
    traffic
}

#[test]
fn sources_that_were_answered_do_not_undo_a_rule() {
    run(with_vouchers(1000.0)).holds();
    // The answered sources ask again and again, so each of their packets is paid for.
    run(with_vouchers(2.0)).holds();
}

/// Packets of no attack.
fn peaceful(packets: impl IntoIterator<Item = (f64, Header)>) -> impl Iterator<Item = Packet> {
    packets.into_iter().map(|(time_s, header)| Packet { time_s, header, is_attack: false })
}

/// A made-up client of QUIC sends the first packet of a handshake, which the server answers with three.
#[test]
fn handshakes_of_quic_that_nobody_continues_do_not_hide_a_flood() {
    let mut traffic = Traffic::of_customers(50, END_S);
    let (server, port) = (SERVER + 1, 443);
    for number in 0..400 {
        let (saddr, sport) = made_up(number);
        let time_s = BEGIN_S - 2.0 + f64::from(number) * 0.004;
        let first = datagram(saddr, server, sport, port, 1228);
        let answers = (1..4).map(|at| (time_s + 0.001 * f64::from(at), datagram(server, saddr, port, sport, 1228)));
        traffic.add(peaceful([(time_s, first)].into_iter().chain(answers)));
    }
    traffic.attack(BEGIN_S, END_S, 12_000.0, |random, _| {
        let (saddr, sport) = made_up(random.below(400));
        datagram(saddr, server, sport, port, 28 + 600 + random.below(200))
    });
    run(traffic).holds();
}

/// The server pings a monitor once a second. Replies with the monitor's address may be forged.
#[test]
fn replies_to_few_pings_do_not_hide_a_flood() {
    let mut traffic = Traffic::of_customers(50, END_S);
    let monitor = 0x0808_0808;
    let echo = |saddr, daddr, icmp_type, length| Header {
        protocol: protocol::ICMP,
        icmp_type,
        length,
        ..Header::between(saddr, daddr)
    };
    for second in 0..END_S as u32 {
        let time_s = f64::from(second);
        traffic.add(peaceful([(time_s, echo(SERVER, monitor, 8, 84)), (time_s + 0.01, echo(monitor, SERVER, 0, 84))]));
    }
    traffic.attack(BEGIN_S, END_S, 3000.0, |random, _| echo(monitor, SERVER, 0, 600 + random.below(400)));
    run(traffic).holds();
}

/// Questions of made-up sources, each with its answer, are no crowd that explains other packets.
#[test]
fn answered_questions_do_not_raise_thresholds() {
    let mut traffic = Traffic::of_customers(5, END_S);
    // A little is usual without proof.
    traffic.attack(0.0, END_S, 60.0, |random, _| {
        datagram(random.address(), NAMES, random.port(), 53, 60 + random.below(20))
    });
    let usual = 0..10;
    let asked = |traffic: &mut Traffic, numbers: std::ops::Range<u32>, from_s: f64| {
        for number in numbers {
            let mut time_s = from_s + f64::from(number) * 0.0007;
            while time_s < END_S {
                ask(traffic, time_s, made_up(number));
                time_s += 0.1;
            }
        }
    };
    asked(&mut traffic, usual, 0.0);
    asked(&mut traffic, 10..160, BEGIN_S - 5.0);
    traffic.attack(BEGIN_S, END_S, 1200.0, |random, _| {
        let source = (random.address(), random.port());
        garbage(random, source)
    });
    let outcome = run(traffic);
    assert!(outcome.detected_s.is_some_and(|at_s| (0.0..=2.0).contains(&at_s)), "{outcome:?}");
}

/// Made-up handshakes that continue blindly, for minutes, do not look as if answers took another route.
#[test]
fn blind_handshakes_do_not_teach_that_answers_are_not_seen() {
    let end_s = 200.0;
    let mut traffic = Traffic::of_customers(2, end_s);
    let blind = |traffic: &mut Traffic, from_s: f64, until_s: f64, pps: f64| {
        let mut answers = Vec::new();
        let mut syns = Vec::new();
        traffic.attack(from_s, until_s, pps / 4.0, |random, time_s| {
            let (saddr, sport, seq) = (random.address(), random.port(), random.below(1 << 30));
            answers.push((time_s + 0.001, segment(SERVER, saddr, 80, sport, tcp::SYN | tcp::ACK, 77, seq + 1, 0)));
            syns.push((time_s, saddr, sport, seq));
            segment(saddr, SERVER, sport, 80, tcp::SYN, seq, 0, 0)
        });
        traffic.add(peaceful(answers));
        let later = syns.into_iter().flat_map(|(time_s, saddr, sport, seq)| {
            (0..3).map(move |number| {
                let flags = if number == 0 { tcp::ACK } else { tcp::ACK | tcp::PSH };
                let (seq, bytes) = (seq + 1 + 50 * u32::max(number, 1) - 50, if number == 0 { 0 } else { 50 });
                let header = segment(saddr, SERVER, sport, 80, flags, seq, 999_999, bytes);
                Packet { time_s: time_s + 0.002 + 0.001 * f64::from(number), header, is_attack: true }
            })
        });
        traffic.add(later.collect::<Vec<_>>().into_iter());
    };
    blind(&mut traffic, 10.0, 180.0, 90.0);
    blind(&mut traffic, 180.0, end_s, 4000.0);
    let outcome = run(traffic);
    assert!(outcome.detected_s.is_some_and(|at_s| at_s <= 182.0 - BEGIN_S), "{outcome:?}");
}

/// A source that was answered once is not spared by name.
#[test]
fn few_sources_that_were_answered_are_stopped() {
    let mut traffic = Traffic::of_customers(50, END_S);
    for number in 0..6 {
        ask(&mut traffic, BEGIN_S - 3.0 + f64::from(number) * 0.01, made_up(number));
        ask(&mut traffic, BEGIN_S - 2.0 + f64::from(number) * 0.01, made_up(number));
    }
    traffic.attack(BEGIN_S, END_S, 6000.0, |random, _| {
        let (saddr, _) = made_up(random.below(6));
        datagram(saddr, NAMES, random.port(), 53, 56 + random.below(40))
    });
    let outcome = run(traffic);
    outcome.is_detected();
    assert!(outcome.attack_share >= 0.8, "{outcome:?}");
}

/// A new service without connections: many clients at once, each with a short exchange in turn.
#[test]
fn a_crowd_of_new_clients_that_take_turns_loses_nothing() {
    let mut traffic = Traffic::of_customers(50, END_S);
    let mut random = traffic::Random::new(9);
    let (server, mut packets) = (SERVER + 1, Vec::new());
    for number in 0..(400.0 * (END_S - BEGIN_S)) as u32 {
        let (client, port) = (random.address(), random.port());
        let begin_s = BEGIN_S + f64::from(number) / 400.0;
        for turn in 0..6 {
            let time_s = begin_s + f64::from(turn) * 0.02;
            let length = if turn == 0 { 1228 + random.below(40) } else { 52 + random.below(90) };
            packets.push((time_s, datagram(client, server, port, 443, length)));
            packets.push((time_s + 0.01, datagram(server, client, 443, port, 1200 + random.below(50))));
        }
    }
    traffic.add(peaceful(packets));
    let outcome = run(traffic);
    assert!(outcome.legitimate_share == 0.0, "{outcome:?}");
}

/// One conversation until the end: packets of a client at a rate, and an answer to one in some of them.
fn conversation(client: (u32, u16), server: (u32, u16), (begin_s, pps, one_in): (f64, f64, u32)) -> Vec<(f64, Header)> {
    let packets = ((END_S - begin_s) * pps) as u32;
    let both = (0..packets).flat_map(|number| {
        let time_s = begin_s + f64::from(number) / pps;
        let there = (time_s, datagram(client.0, server.0, client.1, server.1, 28 + 60 + client.0 % 1300));
        let back = (time_s + 0.01, datagram(server.0, client.0, server.1, client.1, 128));
        [Some(there), number.is_multiple_of(one_in).then_some(back)]
    });
    both.flatten().collect()
}

/// Uploads over VPN and QUIC, whose receiver acknowledges each second packet or merges 64 KB; calls that begin within
/// six seconds; players that join at once.
#[test]
fn services_of_datagrams_that_begin_are_no_attack() {
    let host = (SERVER + 5, 4500);
    type Case = (&'static str, u32, f64, f64, u32);
    let cases: [Case; 5] = [
        ("vpn", 1, 0.0, 8500.0, 2),
        ("vpn of a card that merges", 1, 0.0, 8500.0, 40),
        ("calls", 60, 0.1, 50.0, 1),
        ("silent calls", 60, 0.1, 50.0, 8),
        ("players", 300, 0.001, 20.0, 1),
    ];
    for (name, clients, apart_s, pps, one_in) in cases {
        let mut traffic = Traffic::of_customers(50, END_S);
        for number in 0..clients {
            let client = (customer(9000 + number), 20_000 + (number * 37) as u16);
            let begin_s = BEGIN_S + f64::from(number) * apart_s;
            traffic.add(peaceful(conversation(client, host, (begin_s, pps, one_in))));
        }
        let outcome = run(traffic);
        assert!(outcome.detected_s.is_none() && outcome.legitimate_share == 0.0, "{name}: {outcome:?}");
    }
}
