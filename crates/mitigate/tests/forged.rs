//! What an attacker achieves who forges proof: addresses, ports and answered questions are his to write.

#[path = "adversary/traffic.rs"]
#[allow(dead_code)]
mod traffic;

use traffic::{Packet, Random, SERVER, Traffic, customer, datagram};
use weir_mitigate::action::{Measure, Mode};
use weir_mitigate::header::{Header, Side};
use weir_mitigate::mitigator::Settings;
use weir_mitigate::prefix::Prefix;
use weir_mitigate::recording::Recording;

/// A server of names that nobody else uses.
const NAMES: u32 = SERVER + 9;
/// When attacks begin and recordings end, seconds.
const BEGIN_S: f64 = 20.0;
const END_S: f64 = 40.0;
/// The time that detection has.
const DETECTION_S: f64 = 2.0;
/// Between a question and its answer.
const ANSWER_S: f64 = 0.001;

/// What happened.
#[derive(Debug)]
struct Outcome {
    /// When the first attack was detected, seconds from its beginning.
    detected_s: Option<f64>,
    /// The share of attack packets that were dropped after the time for detection.
    attack_share: f64,
    /// The share of legitimate packets that were dropped.
    legitimate_share: f64,
    /// Sources that were blocked.
    blocked: Vec<u128>,
}

impl Outcome {
    #[track_caller]
    fn is_detected(&self) {
        assert!(self.detected_s.is_some_and(|at_s| (0.0..=DETECTION_S).contains(&at_s)), "{self:?}");
        assert!(self.blocked.is_empty(), "{self:?}");
        assert!(self.legitimate_share <= 0.001, "{self:?}");
    }

    #[track_caller]
    fn holds(&self) {
        self.is_detected();
        assert!(self.attack_share >= 0.95, "{self:?}");
    }
}

fn run(traffic: Traffic) -> Outcome {
    let settings = Settings { mode: Mode::Act, ..Settings::default() };
    let mut recording = Recording::new(vec![Prefix::of(false, SERVER.into(), 16)], settings);
    let (mut attack, mut legitimate) = ([0u32; 2], [0u32; 2]);
    for Packet { time_s, header, is_attack } in traffic.sorted() {
        let is_dropped = recording.take(&header, (time_s * 1e9) as u64);
        let counts = match is_attack {
            true if time_s < BEGIN_S + DETECTION_S || header.daddr >> 16 != u128::from(SERVER >> 16) => continue,
            true => &mut attack,
            false => &mut legitimate,
        };
        counts[0] += 1;
        counts[1] += u32::from(is_dropped);
    }
    let attacks = || recording.mitigator().attacks();
    let blocked = attacks().flat_map(|attack| &attack.records).filter_map(|record| match record.action.measure {
        Measure::Block((_, address), _) => Some(address),
        _ => None,
    });
    let share = |[all, dropped]: [u32; 2]| f64::from(dropped) / f64::from(all.max(1));
    if std::env::var_os("SHOW").is_some() {
        for attack in attacks() {
            println!("{} {} {:.2} {:?}", attack.victim, attack.kind(), attack.from_ns as f64 / 1e9, attack.evidence);
            for record in &attack.records {
                let at_s = record.since_ns as f64 / 1e9;
                println!(
                    "  {at_s:.2} {} {:?} {} {}",
                    record.action.measure, record.state, record.packets, record.proven
                );
            }
        }
    }
    Outcome {
        detected_s: attacks().map(|attack| attack.from_ns as f64 / 1e9 - BEGIN_S).next(),
        attack_share: share(attack),
        legitimate_share: share(legitimate),
        blocked: blocked.collect(),
    }
}

/// A question that the attacker sends with somebody's address, and the answer of the server.
fn ask(traffic: &mut Traffic, time_s: f64, (saddr, sport): (u32, u16)) {
    let question = datagram(saddr, NAMES, sport, 53, 60);
    let answer = datagram(NAMES, saddr, 53, sport, 120);
    let packets = [(time_s, question, true), (time_s + ANSWER_S, answer, false)];
    traffic.add(packets.into_iter().map(|(time_s, header, is_attack)| Packet { time_s, header, is_attack }));
}

/// A made-up source that is used again and again.
fn made_up(number: u32) -> (u32, u16) {
    (0x2d00_0000 + number * 7919, 10_000 + number as u16)
}

fn garbage(random: &mut Random, (saddr, sport): (u32, u16)) -> Header {
    datagram(saddr, NAMES, sport, 53, 28 + 900 + random.below(200))
}

#[test]
fn two_forged_questions_do_not_get_a_customer_blocked() {
    let mut traffic = Traffic::of_customers(50, END_S);
    let victim = (customer(7), 4444);
    ask(&mut traffic, BEGIN_S, victim);
    ask(&mut traffic, BEGIN_S + 0.01, victim);
    traffic.attack(BEGIN_S + 0.02, END_S, 3000.0, |random, _| garbage(random, victim));
    run(traffic).holds();
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
    // They ask again and again, so each of their packets is paid for.
    run(with_vouchers(2.0)).holds();
}

/// One forged question of the server in front of every fifteen packets, beside the questions that it does ask.
fn with_forged_questions(side: Option<Side>) -> Traffic {
    let mut traffic = Traffic::of_customers(50, END_S);
    let mut sent = 0;
    traffic.attack(BEGIN_S, END_S, 5000.0, |random, _| {
        let (number, turn) = (sent / 16, sent % 16);
        sent += 1;
        let (saddr, sport) = (0x3a00_0000 + number * 7919, 1024 + (number % 60_000) as u16);
        match turn {
            0 => Header { side, ..datagram(SERVER, saddr, 9999, sport, 60) },
            _ => Header { side, ..datagram(saddr, SERVER, sport, 9999, 28 + 900 + random.below(200)) },
        }
    });
    traffic
}

#[test]
fn forged_questions_of_the_server_do_not_hide_a_flood() {
    // Where nobody knows from which side packets come, few answers vouch for few packets.
    for side in [None, Some(Side::Outside)] {
        run(with_forged_questions(side)).holds();
    }
}
