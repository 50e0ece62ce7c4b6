//! What an attacker achieves who trains what mitigation has learned.

#[path = "adversary/traffic.rs"]
#[allow(dead_code)]
mod traffic;

use traffic::{Packet, SERVER, Traffic, segment, sport};
use weir_mitigate::action::{Measure, Mode};
use weir_mitigate::header::tcp;
use weir_mitigate::mitigator::Settings;
use weir_mitigate::prefix::Prefix;
use weir_mitigate::recording::Recording;

const BOT: u32 = 0x0a14_1e28;
/// The rates of a bot that gets no answers, packets a second, and how long it keeps each.
const LADDER_PPS: [f64; 5] = [60.0, 160.0, 440.0, 1200.0, 3300.0];
const STEP_S: f64 = 0.5;
const FULL_PPS: f64 = 6000.0;

/// Whether the server answers the bot while it climbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answers {
    None,
    Tenth,
}

/// Customers and a bot that climbs the ladder, and then sends at the full rate for some seconds.
fn ladder(step_s: f64, full_s: f64, answers: Answers) -> (Traffic, f64) {
    let full_from_s = 20.0 + LADDER_PPS.len() as f64 * step_s;
    let mut traffic = Traffic::of_customers(50, full_from_s + full_s);
    traffic.session(BOT, 10.0);
    let steps = LADDER_PPS.iter().enumerate().map(|(number, &pps)| (20.0 + number as f64 * step_s, step_s, pps));
    let mut sent = 0;
    for (from_s, seconds, pps) in steps.chain([(full_from_s, full_s, FULL_PPS)]) {
        let mut answered = Vec::new();
        traffic.attack(from_s, from_s + seconds, pps, |_, time_s| {
            sent += 1;
            if answers == Answers::Tenth && sent % 10 == 0 && pps < FULL_PPS {
                let header = segment(SERVER, BOT, 80, sport(BOT, 10.0), tcp::ACK, 5000, (1 << 30) + sent, 0);
                answered.push(Packet { time_s, header, is_attack: false });
            }
            segment(BOT, SERVER, sport(BOT, 10.0), 80, tcp::ACK | tcp::PSH, (1 << 30) + sent, 5000, 1000)
        });
        traffic.add(answered.into_iter());
    }
    (traffic, full_from_s)
}

#[test]
fn a_bot_that_climbs_is_blocked() {
    for (step_s, answers) in
        [(STEP_S, Answers::None), (2.0, Answers::None), (20.0, Answers::None), (STEP_S, Answers::Tenth), (20.0, Answers::Tenth)]
    {
        let (traffic, full_from_s) = ladder(step_s, 10.0, answers);
        let settings = Settings { mode: Mode::Act, ..Settings::default() };
        let mut recording = Recording::new(vec![Prefix::of(false, SERVER.into(), 16)], settings);
        let (mut full, mut dropped) = (0u32, 0u32);
        for Packet { time_s, header, is_attack } in traffic.sorted() {
            let is_dropped = recording.take(&header, (time_s * 1e9) as u64);
            assert!(is_attack || !is_dropped, "{header:?}");
            if is_attack && time_s >= full_from_s + 1.0 {
                (full, dropped) = (full + 1, dropped + u32::from(is_dropped));
            }
        }
        let blocked: Vec<u128> = recording
            .mitigator()
            .attacks()
            .flat_map(|attack| &attack.records)
            .filter_map(|record| match record.action.measure {
                Measure::Block((_, address), _) => Some(address),
                _ => None,
            })
            .collect();
        assert!(blocked.contains(&u128::from(BOT)), "{step_s} s, {answers:?}: {blocked:?}");
        assert!(f64::from(dropped) >= f64::from(full) * 0.95, "{step_s} s, {answers:?}: {dropped} of {full}");
    }
}
