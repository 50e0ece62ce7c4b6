//! What decisions depend on: modes, protected sources, mistakes, and the first seconds.

#[path = "adversary/traffic.rs"]
mod traffic;

use traffic::{Random, SERVER, Traffic, customer, datagram, segment, sport};
use weir_mitigate::action::{Action, Decision, Ending, Hit, Measure, Mode};
use weir_mitigate::header::{Header, tcp};
use weir_mitigate::measure::{Extractor, WINDOW_NS};
use weir_mitigate::mitigator::{Mitigator, Settings};
use weir_mitigate::prefix::Prefix;
use weir_mitigate::recording::Recording;

fn settings(mode: Mode) -> Settings {
    Settings { mode, protected: vec![], posture: None }
}

fn inside() -> Vec<Prefix> {
    vec![Prefix::of(false, SERVER.into(), 16)]
}

/// Customers for 20 s, and a flood from 10 s on.
fn flooded() -> Traffic {
    let mut traffic = Traffic::of_customers(50, 20.0);
    traffic.attack(10.0, 20.0, 2000.0, |random: &mut Random, _| {
        datagram(random.address(), SERVER, random.port(), 27015, 500)
    });
    traffic
}

#[test]
fn only_act_carries_out_actions() {
    for (mode, drops) in [(Mode::Watch, false), (Mode::Propose, false), (Mode::Act, true)] {
        let mut recording = Recording::new(inside(), settings(mode));
        let mut dropped = 0;
        for packet in flooded().sorted() {
            let is_dropped = recording.take(&packet.header, (packet.time_s * 1e9) as u64);
            assert!(packet.is_attack || !is_dropped, "{packet:?}");
            dropped += u32::from(is_dropped);
        }
        assert_eq!(recording.mitigator().attacks().count(), 1, "{mode:?}");
        assert_eq!(dropped > 0, drops, "{mode:?}");
    }
}

#[test]
fn a_proposed_action_can_be_accepted_once() {
    let mut extractor = Extractor::new(inside(), 1, 0);
    let mut mitigator = Mitigator::new(settings(Mode::Propose), 1);
    let mut proposed: Vec<Action> = Vec::new();
    let mut end_ns = WINDOW_NS;
    for packet in flooded().sorted() {
        let now_ns = (packet.time_s * 1e9) as u64;
        while now_ns >= end_ns {
            let window = extractor.close(end_ns);
            let decisions = mitigator.decide(&window, &[], &|_| false);
            proposed.extend(decisions.into_iter().filter_map(|decision| match decision {
                Decision::Propose(action) => Some(action),
                other => {
                    assert!(!matches!(other, Decision::Apply(_)), "{other:?}");
                    None
                }
            }));
            end_ns += WINDOW_NS;
        }
        extractor.see(&packet.header, now_ns);
    }
    // What waits covers the attack, so nothing more is proposed.
    assert_eq!(proposed.len(), 1, "{proposed:?}");
    assert_eq!(mitigator.accept(proposed[0].id).as_ref(), Some(&proposed[0]));
    assert_eq!((mitigator.accept(proposed[0].id), mitigator.accept(99)), (None, None));
}

/// Windows of a flood, and the decisions after each. `hits` makes what the standing action has hit.
fn windows(count: u64, hits: impl Fn(u32) -> Hit) -> Vec<Decision> {
    let mut extractor = Extractor::new(inside(), 1, 0);
    let mut mitigator = Mitigator::new(settings(Mode::Act), 1);
    let (mut decisions, mut standing) = (Vec::new(), None);
    for number in 0..count {
        for packet in 0..1000u32 {
            let saddr = (packet + number as u32 * 1000).wrapping_mul(0x9e37_79b1);
            // After ten windows the flood is over.
            if number < 10 && standing.is_none() {
                extractor.see(&datagram(saddr, SERVER, 19, 7777, 900), number * WINDOW_NS);
            }
        }
        let window = extractor.close((number + 1) * WINDOW_NS);
        let made = mitigator.decide(&window, &standing.map(&hits).into_iter().collect::<Vec<_>>(), &|_| false);
        for decision in &made {
            match decision {
                Decision::Apply(action) => standing = Some(action.id),
                Decision::Undo(..) => standing = None,
                _ => {}
            }
        }
        decisions.extend(made);
    }
    decisions
}

fn endings(decisions: &[Decision]) -> Vec<Ending> {
    let ending = |decision: &Decision| if let Decision::Undo(_, ending) = decision { Some(*ending) } else { None };
    decisions.iter().filter_map(ending).collect()
}

#[test]
fn an_action_that_hits_proven_sources_is_undone() {
    let decisions = windows(12, |action| Hit { action, packets: 100, proven: 20 });
    assert_eq!(endings(&decisions).first(), Some(&Ending::Collateral), "{decisions:?}");
    let decisions = windows(12, |action| Hit { action, packets: 100, proven: 0 });
    assert_eq!(endings(&decisions), []);
}

#[test]
fn a_quiet_action_ends_after_a_minute_and_then_the_attack() {
    let decisions = windows(4 * 90, |action| Hit { action, packets: 0, proven: 0 });
    assert_eq!(endings(&decisions), [Ending::Quiet]);
    assert!(matches!(decisions.last(), Some(Decision::Ended(_))), "{decisions:?}");
    let decisions = windows(4 * 90, |action| Hit { action, packets: 50, proven: 0 });
    assert_eq!(endings(&decisions), [], "it is not quiet");
}

#[test]
fn protected_sources_are_not_blocked() {
    let bot = customer(77);
    for is_protected in [false, true] {
        let mut traffic = Traffic::of_customers(50, 30.0);
        traffic.session(bot, 10.0);
        let mut sent = 0;
        traffic.attack(20.0, 30.0, 10_000.0, |_, _| {
            sent += 1;
            segment(bot, SERVER, sport(bot, 10.0), 80, tcp::ACK | tcp::PSH, (1 << 30) + sent, 5000, 1000)
        });
        let protected = if is_protected { vec![Prefix::of(false, bot.into(), 32)] } else { vec![] };
        let mut recording = Recording::new(inside(), Settings { protected, ..settings(Mode::Act) });
        for packet in traffic.sorted() {
            recording.take(&packet.header, (packet.time_s * 1e9) as u64);
        }
        let records = recording.mitigator().attacks().flat_map(|attack| &attack.records);
        let blocks = records.filter(|record| matches!(record.action.measure, Measure::Block(..))).count();
        assert_eq!(blocks == 0, is_protected);
    }
}

#[test]
fn an_attack_that_is_there_first_is_not_taken_for_usual_and_a_service_is() {
    let detected = |made_up: bool| {
        let mut traffic = Traffic::of_customers(20, 10.0);
        traffic.attack(0.0, 10.0, 2000.0, |random, _| {
            // A service receives reports of 50 hosts without an answer.
            let saddr = if made_up { random.address() } else { customer(500 + random.below(50)) };
            Header { payload: None, ..datagram(saddr, SERVER, 8125, 8125, 100) }
        });
        let mut recording = Recording::new(inside(), settings(Mode::Act));
        for packet in traffic.sorted() {
            recording.take(&packet.header, (packet.time_s * 1e9) as u64);
        }
        recording.mitigator().attacks().count()
    };
    assert_eq!((detected(true), detected(false)), (1, 0));
}
