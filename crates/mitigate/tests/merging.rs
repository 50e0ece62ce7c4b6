//! Rules that differ in one field: they merge or make room, and the stream of one sender is limited.

#[path = "adversary/traffic.rs"]
#[allow(dead_code)]
mod traffic;

use traffic::{Random, SERVER, Traffic, datagram};
use weir_mitigate::State;
use weir_mitigate::action::{Ending, Measure, Mode};
use weir_mitigate::header::Header;
use weir_mitigate::mitigator::Settings;
use weir_mitigate::prefix::Prefix;
use weir_mitigate::recording::Recording;

/// What became of a recording.
#[derive(Debug, Default)]
struct Outcome {
    attack: u32,
    attack_passed: u32,
    customers_dropped: u32,
    /// Most rules at once.
    standing: usize,
    /// All rules, in order.
    rules: Vec<String>,
    endings: Vec<Ending>,
    has_drop: bool,
}

fn play(traffic: Traffic, from_s: f64) -> Outcome {
    let inside = vec![Prefix::of(false, SERVER.into(), 16)];
    let mut recording = Recording::new(inside, Settings { mode: Mode::Act, ..Settings::default() });
    let mut outcome = Outcome::default();
    for packet in traffic.sorted() {
        let is_dropped = recording.take(&packet.header, (packet.time_s * 1e9) as u64);
        outcome.customers_dropped += u32::from(!packet.is_attack && is_dropped);
        if packet.is_attack && packet.time_s >= from_s {
            outcome.attack += 1;
            outcome.attack_passed += u32::from(!is_dropped);
        }
        let standing = recording.mitigator().attacks().map(|attack| attack.standing().count()).sum();
        outcome.standing = outcome.standing.max(standing);
    }
    for record in recording.mitigator().attacks().flat_map(|attack| &attack.records) {
        outcome.rules.push(record.action.measure.to_string());
        outcome.has_drop |= matches!(record.action.measure, Measure::Drop(_));
        if let State::Ended(ending) = record.state {
            outcome.endings.push(ending);
        }
    }
    outcome
}

/// Datagrams of iperf3: the payload begins with the time in seconds.
fn stream(source: u32, victim: u32, sport: u16) -> impl FnMut(&mut Random, f64) -> Header {
    move |_, time_s| Header {
        ttl: 57,
        payload: Some((1_700_000_000 + time_s as u32).to_be_bytes()),
        ..datagram(source, victim, sport, 5201, 1476)
    }
}

#[test]
fn the_stream_of_one_sender_is_limited_by_one_rule() {
    // A server with customers, and a host that was idle before.
    for victim in [SERVER, SERVER + 7] {
        let mut traffic = Traffic::of_customers(50, 40.0);
        traffic.attack(10.0, 40.0, 4000.0, stream(0xcb00_7109, victim, 40_000));
        let outcome = play(traffic, 15.0);
        assert!(outcome.rules.len() == 1 && !outcome.has_drop, "{outcome:#?}");
        // Half of what streams may have without harm: 500 of 4000 packets a second.
        let share = f64::from(outcome.attack_passed) / f64::from(outcome.attack);
        assert!((0.1..0.15).contains(&share), "{share}: {outcome:#?}");
        assert_eq!(outcome.customers_dropped, 0, "{outcome:#?}");
    }
}

#[test]
fn streams_of_several_senders_have_no_more_than_what_is_harmless() {
    let mut traffic = Traffic::of_customers(50, 60.0);
    for (number, begin_s) in [(0u32, 10.0), (1, 16.0), (2, 22.0), (3, 28.0)] {
        traffic.attack(begin_s, 60.0, 3000.0, stream(0xcb00_7109 + number * 7, SERVER, 40_000 + number as u16));
    }
    let outcome = play(traffic, 40.0);
    let passed_pps = f64::from(outcome.attack_passed) / 20.0;
    assert!((400.0..1000.0).contains(&passed_pps), "{passed_pps}: {outcome:#?}");
    assert!(outcome.rules.len() <= 6, "{outcome:#?}");
}

/// A flood of many sources, whose payload has another first word each second.
fn turning(_: &mut Random, source: u32, time_s: f64) -> Header {
    let payload = Some((0x6a00_0000 + time_s as u32).to_be_bytes());
    Header { payload, ..datagram(source, SERVER, 1024 + (source % 60_000) as u16, 27_015, 140) }
}

#[test]
fn rules_that_differ_in_one_field_become_one() {
    let mut traffic = Traffic::of_customers(50, 40.0);
    traffic.attack(10.0, 40.0, 3000.0, |random, time_s| {
        let source = random.address() & 0x7fff_ffff;
        turning(random, source, time_s)
    });
    let outcome = play(traffic, 15.0);
    assert!(outcome.standing <= 3 && outcome.rules.len() <= 4, "{outcome:#?}");
    assert!(outcome.endings.contains(&Ending::Merged), "{outcome:#?}");
    assert_eq!((outcome.attack_passed, outcome.customers_dropped), (0, 0), "{outcome:#?}");
}

#[test]
fn rules_that_cannot_merge_make_room_for_the_next() {
    // Customers send datagrams of this length to this port, from all ports, and get answers.
    let mut traffic = Traffic::of_customers(50, 50.0);
    let mut random = Random::new(9);
    let mut customers = Vec::new();
    for number in 0..20_000u32 {
        let (time_s, source) = (f64::from(number) * 50.0 / 20_000.0, traffic::customer(random.below(2000)));
        let payload = Some(random.address().to_be_bytes());
        let question = Header { payload, ..datagram(source, SERVER, random.port(), 27_015, 140) };
        let answer = Header { payload, ..datagram(SERVER, source, 27_015, question.sport, 400) };
        for (time_s, header) in [(time_s, question), (time_s + 0.01, answer)] {
            customers.push(traffic::Packet { time_s, header, is_attack: false });
        }
    }
    let questions = customers.len() / 2;
    traffic.add(customers.into_iter());
    traffic.attack(15.0, 50.0, 3000.0, |random, time_s| {
        let source = random.address() & 0x7fff_ffff;
        turning(random, source, time_s)
    });
    let outcome = play(traffic, 20.0);
    assert!(outcome.standing <= 6, "{outcome:#?}");
    assert!(outcome.customers_dropped as usize * 200 < questions, "{outcome:#?}");
    // Each second begins with some windows in which the new word is learned.
    assert!(outcome.attack_passed * 2 < outcome.attack, "{outcome:#?}");
}
