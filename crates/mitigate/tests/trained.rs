//! What an attacker achieves by training mitigation.

#[path = "adversary/traffic.rs"]
#[allow(dead_code)]
mod traffic;

use traffic::{Packet, SERVER, Traffic, segment, sport};
use weir_abi::PacketClass;
use weir_mitigate::action::{Measure, Mode};
use weir_mitigate::baseline::{Baselines, Pace};
use weir_mitigate::header::tcp;
use weir_mitigate::measure::counts::Counts;
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
    for (step_s, answers) in [
        (STEP_S, Answers::None),
        (2.0, Answers::None),
        (20.0, Answers::None),
        (STEP_S, Answers::Tenth),
        (20.0, Answers::Tenth),
    ] {
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

const WINDOW_S: f64 = 0.25;
const SECOND_NS: u64 = 1_000_000_000;
const HOUR_NS: u64 = 3600 * SECOND_NS;

fn host(number: u32) -> Prefix {
    Prefix::of(false, (SERVER + number).into(), 32)
}

/// The counts of a window to a host.
fn counts(prefix: Prefix, class: PacketClass, packets: u64) -> Counts {
    let mut counts = Counts::new(prefix);
    counts.packets[class as usize] = packets;
    counts
}

/// A forger fills a relay with answered datagrams, so that the answers that it asks for become rare.
#[test]
fn packets_that_answers_vouch_for_do_not_make_others_foreign() {
    let mut baselines = Baselines::default();
    for _ in 0..4 * 60 {
        let mut forged = counts(host(3), PacketClass::Udp, 10_000);
        forged.vouched = forged.packets;
        let answers = counts(host(3), PacketClass::UdpService, 1);
        baselines.count_proven(&[forged, answers], WINDOW_S);
    }
    assert!(!baselines.of(&host(3)).is_foreign(PacketClass::UdpService, 0));
    // Connections cannot be made up.
    for _ in 0..4 * 60 {
        baselines.count_proven(&[counts(host(3), PacketClass::Tcp, 10_000)], WINDOW_S);
    }
    assert!(baselines.of(&host(3)).is_foreign(PacketClass::UdpService, 0));
}

#[test]
fn what_is_not_met_falls_also_while_nothing_arrives_and_not_while_it_is_frozen() {
    let class = PacketClass::Udp;
    let mut baselines = Baselines::default();
    for number in [1, 2] {
        let mut much = counts(host(number), class, 1000);
        much.unproven = much.packets;
        baselines.learn(&much, WINDOW_S, SECOND_NS, (Pace::Follow, 1.0));
    }
    baselines.freeze(|prefix| *prefix == host(2), SECOND_NS + HOUR_NS);
    baselines.begin(SECOND_NS + HOUR_NS);
    let pps = [1, 2].map(|number| baselines.of(&host(number)).unproven_pps(class).round());
    assert_eq!(pps, [2000.0, 4000.0]);
    baselines.begin(SECOND_NS + 25 * HOUR_NS);
    assert!(baselines.of(&host(1)).unproven_pps(class) < 1.0);
}

#[test]
fn who_has_not_used_a_host_for_a_day_does_not_use_it() {
    let mut baselines = Baselines::default();
    baselines.learn(&counts(host(1), PacketClass::Tcp, 1), WINDOW_S, SECOND_NS, (Pace::Slow, 1.0));
    assert!(baselines.of(&host(1)).is_used_since(SECOND_NS));
    baselines.begin(SECOND_NS + 25 * HOUR_NS);
    assert!(!baselines.of(&host(1)).is_used_since(u64::MAX));
}

/// A carpet of packets to unused addresses does not take the room of hosts.
#[test]
fn prefixes_that_hardly_receive_anything_make_room() {
    let mut baselines = Baselines::default();
    let learn = |baselines: &mut Baselines, number: u32, packets: u64, now_ns: u64| {
        let mut counts = counts(host(number), PacketClass::Udp, packets);
        counts.unproven = counts.packets;
        baselines.learn(&counts, WINDOW_S, now_ns, (Pace::Follow, 1.0));
    };
    learn(&mut baselines, 0, 1000, HOUR_NS);
    (1..20_000).for_each(|number| learn(&mut baselines, number, 1, HOUR_NS));
    learn(&mut baselines, 30_000, 1000, HOUR_NS + 60 * SECOND_NS);
    let pps = [0, 30_000].map(|number| baselines.of(&host(number)).unproven_pps(PacketClass::Udp) > 3900.0);
    assert_eq!((pps, baselines.prefixes().len()), ([true; 2], 2));
}
