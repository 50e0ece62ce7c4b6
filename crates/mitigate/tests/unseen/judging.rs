//! Runs attacks beside other traffic, and counts what is dropped of both.

use super::attacks::Attack;
use super::legitimate::legitimate;
use super::traffic::{Packet, SERVER, Traffic};
use weir_mitigate::action::{Mode, Prepared};
use weir_mitigate::defence::Fate;
use weir_mitigate::header::Header;
use weir_mitigate::mitigator::Settings;
use weir_mitigate::prefix::Prefix;
use weir_mitigate::recording::Recording;
use weir_mitigate::waiting::Waiting;

/// When attacks begin and the recordings end, seconds.
pub const BEGIN_S: f64 = 15.0;
pub const END_S: f64 = 35.0;
/// The time that detection has.
pub const DETECTION_S: f64 = 2.0;

/// What happened to the packets of a recording.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    pub detected_s: Option<f64>,
    pub attack_share: f64,
    pub legitimate_share: f64,
}

pub fn inside() -> Vec<Prefix> {
    vec![Prefix::of(false, SERVER.into(), 16)]
}

pub fn run(attack: &Attack, seed: u32) -> Outcome {
    run_as(attack, seed, |header| header, inside())
}

/// Runs an attack whose packets are changed, on protected prefixes.
pub fn run_as(attack: &Attack, seed: u32, change: fn(Header) -> Header, inside: Vec<Prefix>) -> Outcome {
    run_beside(attack, legitimate(attack.mix, END_S, seed), BEGIN_S, change, inside)
}

/// Runs an attack of twenty seconds beside other traffic.
pub fn run_beside(
    attack: &Attack,
    mut traffic: Traffic,
    begin_s: f64,
    change: fn(Header) -> Header,
    inside: Vec<Prefix>,
) -> Outcome {
    flood(&mut traffic, attack, begin_s, begin_s + END_S - BEGIN_S);
    judge(traffic, begin_s, change, inside)
}

/// Runs traffic with an attack that begins at a time.
pub fn judge(traffic: Traffic, begin_s: f64, change: fn(Header) -> Header, inside: Vec<Prefix>) -> Outcome {
    judge_prepared(traffic, begin_s, change, inside, Prepared::Nothing)
}

/// As [`judge`], with what is prepared. SYNs of customers that complete their handshake have passed.
fn judge_prepared(
    traffic: Traffic,
    begin_s: f64,
    change: fn(Header) -> Header,
    inside: Vec<Prefix>,
    prepared: Prepared,
) -> Outcome {
    let mut recording = Recording::new(inside, Settings { mode: Mode::Act, prepared, ..Settings::default() });
    let mut waiting = Waiting::default();
    // Packets and those that were dropped, of the attack after the time for detection, and of the legitimate.
    let (mut late, mut legitimate) = ([0u32; 2], [0u32; 2]);
    for Packet { time_s, header, is_attack } in traffic.sorted() {
        let fate = recording.take_frame(&change(header), None, (time_s * 1e9) as u64);
        match fate {
            Fate::Waits(handshake) => waiting.add(handshake, is_attack),
            Fate::Completes(handshake) => legitimate[1] -= waiting.take(handshake).others as u32,
            Fate::Passes | Fate::Drops => {}
        }
        let counts = match is_attack {
            true if time_s < begin_s + DETECTION_S => continue,
            true => &mut late,
            false => &mut legitimate,
        };
        counts[0] += 1;
        counts[1] += u32::from(fate.is_dropped());
    }
    let share = |[all, dropped]: [u32; 2]| f64::from(dropped) / f64::from(all);
    let detected_s = recording.mitigator().attacks().map(|attack| attack.from_ns as f64 / 1e9 - begin_s).next();
    if std::env::var_os("SHOW").is_some() {
        for one in recording.mitigator().attacks() {
            for record in &one.records {
                let (at_s, state) = (record.since_ns as f64 / 1e9 - begin_s, record.state);
                println!("    {at_s:6.2} {} {state:?} {} {}", record.action.measure, record.packets, record.proven);
            }
        }
    }
    Outcome { detected_s, attack_share: share(late), legitimate_share: share(legitimate) }
}

impl Outcome {
    pub fn holds(&self) -> bool {
        let in_time = self.detected_s.is_some_and(|at_s| (0.0..=DETECTION_S).contains(&at_s));
        in_time && self.attack_share >= 0.95 && self.legitimate_share <= 0.001
    }
}

/// Adds an attack, whose packets are made by the time since its beginning.
pub fn flood(traffic: &mut Traffic, attack: &Attack, begin_s: f64, end_s: f64) {
    traffic.attack(begin_s, end_s, attack.pps, |random, time_s| (attack.make)(random, time_s - begin_s, attack.victim));
}

pub fn behind_proxy(traffic: Traffic, begin_s: f64, inside: Vec<Prefix>) -> Outcome {
    judge_prepared(traffic, begin_s, |header| header, inside, Prepared::SynProxy)
}
