//! What decisions depend on: modes, protected sources, mistakes, and the first seconds.

#[path = "adversary/traffic.rs"]
#[allow(dead_code)]
mod traffic;

use traffic::{Random, SERVER, Traffic, customer, datagram, segment, sport};
use weir_mitigate::State;
use weir_mitigate::action::{Action, Decision, Ending, Hit, Measure, Mode};
use weir_mitigate::header::{Header, tcp};
use weir_mitigate::measure::sampling::Sampling;
use weir_mitigate::measure::{Extractor, WINDOW_NS, Window};
use weir_mitigate::mitigator::{Mitigator, Settings};
use weir_mitigate::prefix::Prefix;
use weir_mitigate::recording::Recording;

fn settings(mode: Mode) -> Settings {
    Settings { mode, ..Settings::default() }
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
    assert_eq!(mitigator.accept(proposed[0].id, end_ns).as_ref(), Some(&proposed[0]));
    assert_eq!((mitigator.accept(proposed[0].id, end_ns), mitigator.accept(99, end_ns)), (None, None));
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
    let decisions = windows(12, |action| Hit { packets: 100, proven: 20, ..Hit::none(action) });
    assert_eq!(endings(&decisions).first(), Some(&Ending::Collateral), "{decisions:?}");
    let decisions = windows(12, |action| Hit { packets: 100, ..Hit::none(action) });
    assert_eq!(endings(&decisions), []);
}

#[test]
fn a_quiet_action_ends_after_a_minute_and_then_the_attack() {
    let decisions = windows(4 * 90, Hit::none);
    assert_eq!(endings(&decisions), [Ending::Quiet]);
    assert!(matches!(decisions.last(), Some(Decision::Ended(_))), "{decisions:?}");
    let decisions = windows(4 * 90, |action| Hit { packets: 50, ..Hit::none(action) });
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
fn the_block_of_a_source_waits_as_long_as_the_source_sends() {
    let bot = customer(77);
    for mode in [Mode::Watch, Mode::Propose] {
        let mut traffic = Traffic::of_customers(50, 150.0);
        traffic.session(bot, 10.0);
        let mut sent = 0;
        traffic.attack(20.0, 70.0, 10_000.0, |_, _| {
            sent += 1;
            segment(bot, SERVER, sport(bot, 10.0), 80, tcp::ACK | tcp::PSH, (1 << 30) + sent, 5000, 1000)
        });
        let mut recording = Recording::new(inside(), settings(mode));
        for packet in traffic.sorted() {
            recording.take(&packet.header, (packet.time_s * 1e9) as u64);
        }
        let records: Vec<_> = recording.mitigator().attacks().flat_map(|attack| &attack.records).collect();
        let [block] = records[..] else { panic!("{mode:?}: {records:?}") };
        let last_s = block.last_hit_ns as f64 / 1e9;
        assert!(matches!(block.action.measure, Measure::Block(..)) && (69.0..71.0).contains(&last_s), "{block:?}");
        assert_eq!(block.state, State::Ended(Ending::Quiet), "{mode:?}");
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

/// A mitigator whose flood has led to a decision, with the action, its window and the end of that.
fn decided(mode: Mode) -> (Mitigator, Action, Window, u64) {
    let mut extractor = Extractor::new(inside(), 1, 0);
    let mut mitigator = Mitigator::new(settings(mode), 1);
    for number in 0u32..20 {
        for packet in 0..1000u32 {
            let saddr = (packet + number * 1000).wrapping_mul(0x9e37_79b1);
            extractor.see(&datagram(saddr, SERVER, 19, 7777, 900), u64::from(number) * WINDOW_NS);
        }
        let end_ns = u64::from(number + 1) * WINDOW_NS;
        let window = extractor.close(end_ns);
        for decision in mitigator.decide(&window, &[], &|_| false) {
            if let Decision::Apply(action) | Decision::Propose(action) = decision {
                return (mitigator, action, window, end_ns);
            }
        }
    }
    panic!("nothing was decided");
}

/// The actions that are decided in further windows like one.
fn decided_again(mitigator: &mut Mitigator, window: &Window, windows: u64) -> Vec<Action> {
    let mut actions = Vec::new();
    for number in 1..=windows {
        let (from_ns, to_ns) = (window.from_ns + number * WINDOW_NS, window.to_ns + number * WINDOW_NS);
        let next = Window { from_ns, to_ns, ..window.clone() };
        actions.extend(mitigator.decide(&next, &[], &|_| false).into_iter().filter_map(|decision| match decision {
            Decision::Apply(action) | Decision::Propose(action) => Some(action),
            _ => None,
        }));
    }
    actions
}

#[test]
fn what_is_dismissed_or_removed_is_not_decided_again_and_what_failed_is_after_a_pause() {
    let (mut mitigator, action, window, _) = decided(Mode::Propose);
    assert_eq!(mitigator.waiting(action.attack), [action.id]);
    assert!(mitigator.dismiss(action.id) && !mitigator.dismiss(action.id));
    let again = decided_again(&mut mitigator, &window, 40);
    assert!(again.iter().all(|again| again.measure != action.measure), "{again:?}");

    for end in [Mitigator::removed, Mitigator::dismiss] {
        let (mut mitigator, action, window, _) = decided(Mode::Act);
        assert!(end(&mut mitigator, action.id) && !mitigator.dismiss(action.id));
        let again = decided_again(&mut mitigator, &window, 40);
        assert!(again.iter().all(|again| again.measure != action.measure), "{again:?}");
        assert_eq!(mitigator.waiting(action.attack).len(), again.len(), "also in the mode act");
    }

    let (mut mitigator, action, mut window, _) = decided(Mode::Act);
    let (mut failing, mut tries) = (vec![action.clone()], 0);
    for _ in 0..40 {
        failing.iter().for_each(|again| mitigator.failed(again.id, "the slot is full".to_owned()));
        tries += failing.len();
        failing = decided_again(&mut mitigator, &window, 1);
        assert!(failing.iter().all(|again| again.measure == action.measure), "{failing:?}");
        window = Window { from_ns: window.to_ns, to_ns: window.to_ns + WINDOW_NS, ..window };
    }
    assert!((3..10).contains(&tries), "pauses grow: {tries}");
    let attack = mitigator.attack(action.attack).expect("it lasts");
    let failed: Vec<_> = attack.records.iter().filter(|record| record.problem.is_some()).collect();
    assert_eq!((failed.len(), failed[0].tries as usize), (1, tries), "only the last try is listed");
}

#[test]
fn a_mode_that_does_not_act_ends_what_is_carried_out() {
    let (mut mitigator, action, ..) = decided(Mode::Act);
    assert_eq!(mitigator.set_mode(Mode::Act), []);
    assert_eq!(mitigator.set_mode(Mode::Propose), [action.id]);
    assert_eq!(mitigator.set_mode(Mode::Watch), []);
    let (mut mitigator, action, _, end_ns) = decided(Mode::Propose);
    assert_eq!((mitigator.set_mode(Mode::Watch), mitigator.accept(action.id, end_ns)), (vec![], None));
}

#[test]
fn windows_without_samples_are_not_peace() {
    let (mut mitigator, action, _, mut end_ns) = decided(Mode::Act);
    let mut later = Extractor::new(inside(), 1, end_ns);
    for (sampling, is_released) in [(Sampling::NOTHING, false), (Sampling::ALL, true)] {
        let mut undone = Vec::new();
        for _ in 0..4 * 90 {
            end_ns += WINDOW_NS;
            let mut empty = later.close(end_ns);
            empty.estimate(sampling);
            undone.extend(mitigator.decide(&empty, &[], &|_| false));
        }
        assert_eq!(undone.contains(&Decision::Undo(action.id, Ending::Quiet)), is_released, "{undone:?}");
    }
}

#[test]
fn a_sample_of_packets_is_an_estimate_of_all_and_a_few_of_them_are_no_attack() {
    let flood = |one_in: u32, sampled: u32| {
        let mut extractor = Extractor::new(inside(), 1, 0);
        let mut mitigator = Mitigator::new(settings(Mode::Act), 1);
        let mut peak_pps = 0.0f64;
        for number in 1..=40u32 {
            for packet in 0..sampled {
                let saddr = (packet + number * 1000).wrapping_mul(0x9e37_79b1);
                extractor.see(&datagram(saddr, SERVER, 19, 7777, 900), u64::from(number) * WINDOW_NS);
            }
            let mut window = extractor.close(u64::from(number) * WINDOW_NS + WINDOW_NS);
            window.estimate(Sampling { one_in, seen: sampled.into(), lost: 0, missing: 0 });
            mitigator.decide(&window, &[], &|_| false);
            peak_pps = mitigator.attacks().map(|attack| attack.peak_pps).fold(peak_pps, f64::max);
        }
        peak_pps
    };
    // Each window has 250 ms.
    assert_eq!(flood(100, 50), 50.0 * 100.0 * 4.0);
    assert_eq!(flood(100, 10), 0.0, "4,000 packets a second, but by ten samples");
}

/// With one sample of a hundred packets, a blocked source that sends eight a second is slow, and the card tells so.
#[test]
fn what_a_card_drops_is_a_count_and_no_estimate() {
    let rate = |by_card: u64, packets: u64| {
        let (mut mitigator, action, mut window, end_ns) = decided(Mode::Act);
        window.estimate(Sampling { one_in: 100, seen: 1, lost: 0, missing: 0 });
        (window.from_ns, window.to_ns) = (end_ns, end_ns + WINDOW_NS);
        mitigator.decide(&window, &[Hit { packets, by_card, ..Hit::none(action.id) }], &|_| false);
        let attack = mitigator.attacks().next().expect("it is still there");
        attack.records.iter().find(|record| record.action.id == action.id).expect("it stands").rate_pps
    };
    // Each window has 250 ms.
    assert_eq!([rate(2, 0), rate(0, 1), rate(2, 1)], [8.0, 400.0, 408.0]);
}

#[test]
fn a_limit_of_the_whole_victim_that_was_a_mistake_does_not_come_back() {
    let mut extractor = Extractor::new(inside(), 1, 0);
    let mut mitigator = Mitigator::new(settings(Mode::Act), 1);
    let (mut limit, mut applied, mut undone) = (None, 0, 0);
    let mut random = Random::new(1);
    // Ten seconds without users of the host, then two vectors, one after the other.
    for number in 0..100u64 {
        for _ in 0..if number < 40 { 0 } else { 500 } {
            let header = datagram(random.address(), SERVER + 7, random.port(), random.port(), 300 + random.below(900));
            let header = if number < 48 { header } else { Header { protocol: 40 + random.below(60) as u8, ..header } };
            extractor.see(&header, number * WINDOW_NS);
        }
        let window = extractor.close((number + 1) * WINDOW_NS);
        let hit = |action| Hit { packets: 100, proven: 20, ..Hit::none(action) };
        let hits: Vec<Hit> = limit.into_iter().map(hit).collect();
        for decision in mitigator.decide(&window, &hits, &|_| false) {
            match decision {
                Decision::Apply(Action { id, measure: Measure::Limit(signature, _), .. })
                    if signature.terms().is_empty() =>
                {
                    (limit, applied) = (Some(id), applied + 1);
                }
                Decision::Undo(id, Ending::Collateral) if Some(id) == limit => (limit, undone) = (None, undone + 1),
                _ => {}
            }
        }
    }
    assert_eq!((applied, undone), (1, 1));
}
