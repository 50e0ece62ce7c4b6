//! Runs forged traffic, and counts what is dropped.

use super::traffic::{Packet, Random, SERVER, Traffic, datagram};
use weir_mitigate::action::{Measure, Mode};
use weir_mitigate::header::Header;
use weir_mitigate::mitigator::Settings;
use weir_mitigate::prefix::Prefix;
use weir_mitigate::recording::Recording;

/// A server of names without other users.
pub const NAMES: u32 = SERVER + 9;
/// When attacks begin and recordings end, seconds.
pub const BEGIN_S: f64 = 20.0;
pub const END_S: f64 = 40.0;
/// The time that detection has.
pub const DETECTION_S: f64 = 2.0;
/// Between a question and its answer.
pub const ANSWER_S: f64 = 0.001;

/// What happened.
#[derive(Debug)]
pub struct Outcome {
    /// When the first attack was detected, seconds from its beginning.
    pub detected_s: Option<f64>,
    /// The share of attack packets that were dropped after the time for detection.
    pub attack_share: f64,
    /// The share of legitimate packets that were dropped.
    pub legitimate_share: f64,
    /// Sources that were blocked.
    pub blocked: Vec<u128>,
}

impl Outcome {
    #[track_caller]
    pub fn is_detected(&self) {
        assert!(self.detected_s.is_some_and(|at_s| (0.0..=DETECTION_S).contains(&at_s)), "{self:?}");
        assert!(self.blocked.is_empty(), "{self:?}");
        assert!(self.legitimate_share <= 0.001, "{self:?}");
    }

    #[track_caller]
    pub fn holds(&self) {
        self.is_detected();
        assert!(self.attack_share >= 0.95, "{self:?}");
    }
}

pub fn run(traffic: Traffic) -> Outcome {
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

/// A question that the attacker sends with a forged address, and the answer of the server.
pub fn ask(traffic: &mut Traffic, time_s: f64, (saddr, sport): (u32, u16)) {
    let question = datagram(saddr, NAMES, sport, 53, 60);
    let answer = datagram(NAMES, saddr, 53, sport, 120);
    let packets = [(time_s, question, true), (time_s + ANSWER_S, answer, false)];
    traffic.add(packets.into_iter().map(|(time_s, header, is_attack)| Packet { time_s, header, is_attack }));
}

/// A made-up source that is used again and again.
pub fn made_up(number: u32) -> (u32, u16) {
    (0x2d00_0000 + number * 7919, 10_000 + number as u16)
}

pub fn garbage(random: &mut Random, (saddr, sport): (u32, u16)) -> Header {
    datagram(saddr, NAMES, sport, 53, 28 + 900 + random.below(200))
}
