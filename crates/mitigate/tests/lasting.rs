//! An attack that goes on has one number, also while its actions hide it: what they hold back counts.

#[path = "adversary/traffic.rs"]
#[allow(dead_code)]
mod traffic;

use traffic::{Packet, Random, SERVER, Traffic, datagram, segment, sport};
use weir_mitigate::action::{Action, ActionId, Decision, Ending, Measure, Mode, Prepared};
use weir_mitigate::defence::Defence;
use weir_mitigate::header::tcp;
use weir_mitigate::held::HeldBack;
use weir_mitigate::measure::WINDOW_NS;
use weir_mitigate::measure::sampling::Sampling;
use weir_mitigate::mitigator::Settings;
use weir_mitigate::prefix::Prefix;

/// When the attack begins, and how long actions are held.
const BEGIN_S: f64 = 10.0;
const HOLD_S: f64 = 15.0;
/// An attack without traffic ends after this time.
const FORGET_S: f64 = 10.0;

/// What the posture does, and what is known of it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Posture {
    /// Its SYN proxy stands in front of the samples, and its cookies are counted.
    Proxy,
    /// Its SYN proxy stands behind the samples.
    ProxyBehindSamples,
    /// It drops everything in front of the samples, which is counted.
    Closed,
    /// It drops everything in front of the samples, and nothing counts that.
    Secret,
}

/// What was decided, and what the attack and the customers could do.
#[derive(Debug, Default)]
struct Outcome {
    detected: Vec<f64>,
    ended: Vec<f64>,
    applied: Vec<(f64, Measure)>,
    undone: Vec<(f64, Ending)>,
    /// Packets of the attack that no action held back.
    passed: u64,
}

/// Weir with a posture, a slot and a table.
struct Gateway {
    defence: Defence,
    posture: Posture,
    one_in: u64,
    packets: u64,
    seen: u64,
    held: HeldBack,
    in_force: Vec<Action>,
    counted: Vec<(ActionId, u64)>,
    outcome: Outcome,
}

impl Gateway {
    fn new(posture: Posture, one_in: u64) -> Self {
        let prepared = Prepared::Posture("high".to_owned());
        let hold_ns = (HOLD_S * 1e9) as u64;
        let settings = Settings { mode: Mode::Act, prepared, hold_ns, ..Settings::default() };
        let inside = vec![Prefix::of(false, SERVER.into(), 16)];
        let defence = Defence::new(inside, settings, 1);
        let (held, outcome) = (HeldBack::default(), Outcome::default());
        let (in_force, counted) = (Vec::new(), Vec::new());
        Gateway { defence, posture, one_in, packets: 0, seen: 0, held, in_force, counted, outcome }
    }

    /// Whether the posture takes a packet away before it is sampled.
    fn is_held_back(&mut self, packet: &Packet) -> bool {
        if !self.in_force.iter().any(|action| matches!(action.measure, Measure::Posture(_))) {
            return false;
        }
        let is_syn = packet.header.has_tcp_flags(tcp::SYN);
        match self.posture {
            // A customer completes the handshake, so its SYN comes after all.
            Posture::Proxy => {
                self.held.cookies += u64::from(is_syn);
                is_syn && packet.is_attack
            }
            Posture::ProxyBehindSamples => false,
            Posture::Closed => {
                self.held.dropped += 1;
                true
            }
            Posture::Secret => true,
        }
    }

    fn take(&mut self, packet: &Packet) {
        if self.is_held_back(packet) {
            return;
        }
        let now_ns = (packet.time_s * 1e9) as u64;
        // A rule of the slot counts what it drops, whether it is sampled or not.
        let rule = self.in_force.iter().find(|action| {
            action.measure.signature().is_some_and(|signature| signature.matches(&packet.header))
                && matches!(action.measure, Measure::Drop(_))
        });
        self.counted.extend(rule.map(|action| (action.id, 1)));
        let source = (packet.header.is_ipv6, packet.header.saddr);
        let is_blocked = self
            .in_force
            .iter()
            .any(|action| matches!(action.measure, Measure::Block(blocked, _) if blocked == source));
        self.outcome.passed += u64::from(packet.is_attack && rule.is_none() && !is_blocked);
        self.packets += 1;
        if self.packets.is_multiple_of(self.one_in) {
            self.seen += 1;
            self.defence.see(&packet.header, None, now_ns);
        }
    }

    fn end_window(&mut self, end_ns: u64) {
        let time_s = end_ns as f64 / 1e9;
        for (action, packets) in std::mem::take(&mut self.counted) {
            self.defence.see_by_rule(action, packets);
        }
        self.defence.see_held_back(std::mem::take(&mut self.held));
        let sampling =
            Sampling { one_in: self.one_in as u32, seen: std::mem::take(&mut self.seen), lost: 0, missing: 0 };
        for decision in self.defence.end_window(end_ns, sampling) {
            match decision.clone() {
                Decision::Detected { .. } => self.outcome.detected.push(time_s),
                Decision::Ended(_) => self.outcome.ended.push(time_s),
                Decision::Apply(action) => {
                    self.outcome.applied.push((time_s, action.measure.clone()));
                    self.in_force.push(action.clone());
                    self.defence.enforce(action, end_ns);
                }
                Decision::Undo(id, ending) => {
                    self.outcome.undone.push((time_s, ending));
                    self.in_force.retain(|action| action.id != id);
                    self.defence.lift(id, end_ns);
                }
                Decision::Propose(_) | Decision::VectorBegan { .. } | Decision::VectorEnded { .. } => {
                    panic!("{decision:?}")
                }
            }
        }
        self.defence.begin_window();
    }

    /// Plays traffic until a time.
    fn play(mut self, traffic: Traffic, until_s: f64) -> Self {
        let mut end_ns = WINDOW_NS;
        let packets = traffic.sorted();
        let mut packets = packets.iter().peekable();
        while end_ns as f64 <= until_s * 1e9 {
            while let Some(packet) = packets.next_if(|packet| ((packet.time_s * 1e9) as u64) < end_ns) {
                self.take(packet);
            }
            self.end_window(end_ns);
            end_ns += WINDOW_NS;
        }
        self
    }
}

/// Customers, and SYNs that look like theirs until a time.
fn syns(until_s: f64, end_s: f64) -> Traffic {
    let mut traffic = Traffic::of_customers(50, end_s);
    traffic.attack(BEGIN_S, until_s, 3000.0, |random: &mut Random, _| {
        segment(random.address(), SERVER, random.port(), 80, tcp::SYN, random.below(1 << 30), 0, 0)
    });
    traffic
}

fn is_near(time_s: f64, expected_s: f64) -> bool {
    (expected_s..expected_s + 1.0).contains(&time_s)
}

#[test]
fn a_posture_and_its_attack_last_as_long_as_what_the_posture_holds_back() {
    let (until_s, end_s) = (70.0, 110.0);
    for posture in [Posture::Proxy, Posture::ProxyBehindSamples, Posture::Closed] {
        let outcome = Gateway::new(posture, 1).play(syns(until_s, end_s), end_s).outcome;
        let postures = outcome.applied.iter().filter(|(_, measure)| matches!(measure, Measure::Posture(_))).count();
        assert_eq!((outcome.detected.len(), postures), (1, 1), "{posture:?}: {outcome:?}");
        let [(undone_s, Ending::Quiet)] = outcome.undone[..] else { panic!("{posture:?}: {outcome:?}") };
        let [ended_s] = outcome.ended[..] else { panic!("{posture:?}: {outcome:?}") };
        assert!(is_near(undone_s, until_s + HOLD_S), "{posture:?}: {outcome:?}");
        assert!(is_near(ended_s, until_s + HOLD_S + FORGET_S), "{posture:?}: {outcome:?}");
    }
}

#[test]
fn an_attack_that_a_posture_hides_is_the_same_when_the_posture_is_lifted() {
    let (until_s, end_s) = (130.0, 260.0);
    let outcome = Gateway::new(Posture::Secret, 1).play(syns(until_s, end_s), end_s).outcome;
    assert_eq!((outcome.detected.len(), outcome.ended.len()), (1, 1), "{outcome:?}");
    // It is lifted after 15 s, 30 s and 60 s, and taken again in the next window.
    let gaps: Vec<f64> =
        outcome.undone.iter().zip(&outcome.applied[1..]).map(|(undone, next)| next.0 - undone.0).collect();
    assert_eq!(gaps, [0.25; 3], "{outcome:?}");
    let times: Vec<f64> =
        outcome.applied.iter().zip(&outcome.undone).map(|(applied, undone)| undone.0 - applied.0).collect();
    assert_eq!(times[..3], [HOLD_S, 2.0 * HOLD_S, 4.0 * HOLD_S], "{outcome:?}");
}

#[test]
fn a_rule_and_its_attack_last_as_long_as_what_its_counter_says() {
    // After a flood, so few packets that samples seldom show one.
    let (flood_s, until_s, end_s) = (14.0, 130.0, 170.0);
    let mut traffic = Traffic::of_customers(50, end_s);
    let answer = |random: &mut Random, _: f64| datagram(random.address(), SERVER, 19, 27015, 900);
    traffic.attack(BEGIN_S, flood_s, 30_000.0, answer);
    traffic.attack(flood_s, until_s, 40.0, answer);
    let outcome = Gateway::new(Posture::Secret, 100).play(traffic, end_s).outcome;
    assert_eq!((outcome.detected.len(), outcome.applied.len()), (1, 1), "{outcome:?}");
    assert!(matches!(outcome.applied[0].1, Measure::Drop(_)), "{outcome:?}");
    assert!(
        matches!(outcome.undone[..], [(time_s, Ending::Quiet)] if is_near(time_s, until_s + HOLD_S)),
        "{outcome:?}"
    );
}

#[test]
fn an_attack_lasts_as_long_as_its_blocked_sources_send() {
    let (until_s, end_s) = (130.0, 170.0);
    let bot = traffic::customer(77);
    let mut traffic = Traffic::of_customers(50, end_s);
    traffic.session(bot, 5.0);
    let mut sent = 0;
    traffic.attack(BEGIN_S, until_s, 4000.0, |_, _| {
        sent += 1;
        segment(bot, SERVER, sport(bot, 5.0), 80, tcp::ACK | tcp::PSH, (1 << 30) + sent, 5000, 1000)
    });
    let outcome = Gateway::new(Posture::Secret, 1).play(traffic, end_s).outcome;
    let blocks = outcome.applied.iter().filter(|(_, measure)| matches!(measure, Measure::Block(..))).count();
    assert!(blocks == outcome.applied.len() && (4..=5).contains(&blocks), "{outcome:?}");
    assert_eq!((outcome.detected.len(), outcome.ended.len()), (1, 1), "{outcome:?}");
    assert!(outcome.ended[0] >= until_s, "{outcome:?}");
}
