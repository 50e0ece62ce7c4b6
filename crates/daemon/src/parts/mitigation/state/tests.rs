//! Attacks over minutes, with a clock that the test sets: what is told, and what is undone.

use super::{Copies, State};
use crate::generations::account::Stopped;
use crate::generations::automatic::{Holder, Why};
use crate::parts::mitigation::answers;
use crate::parts::mitigation::events::Events;
use crate::parts::mitigation::hands::{Carried, Hands, Places};
use crate::requests::slots::Renewal;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use weir_command::failure::Failure;
use weir_control::{AttackOperation, AttackVector, Reply, Request, SlotChanged, SlotOperation};
use weir_engine::live::Side;
use weir_engine::live::samples::Sample;
use weir_mitigate::action::{Mode, Prepared};
use weir_mitigate::measure::WINDOW_NS;
use weir_mitigate::mitigator::Settings;
use weir_mitigate::prefix::Prefix;
use weir_test_support::notation;

const HOLD_NS: u64 = 15_000_000_000;
const WINDOWS_PER_S: u64 = 1_000_000_000 / WINDOW_NS;

/// What the datapath does.
#[derive(Default)]
struct Datapath {
    has_posture: bool,
    rules: u32,
    /// What the rule of the slot has dropped.
    dropped: u64,
    /// Whether all rules and postures are gone, until one is put in place.
    is_empty: bool,
}

struct OfDatapath(Arc<Mutex<Datapath>>);

impl Hands for OfDatapath {
    fn ask(&self, request: Request) -> Result<Reply, Failure> {
        let Request::Slot { operation, .. } = request else { unreachable!("there are no tables: {request:?}") };
        let mut datapath = self.0.lock().unwrap();
        match operation {
            SlotOperation::Add { .. } if std::mem::take(&mut datapath.is_empty) => datapath.rules = 1,
            SlotOperation::Add { .. } => datapath.rules += 1,
            _ => datapath.rules -= 1,
        }
        Ok(SlotChanged { number: Some(1), rules: datapath.rules as usize, size: 8 }.into())
    }

    fn renew_rule(&self, _: &str, _: u32, _: u64) -> Renewal {
        let datapath = self.0.lock().unwrap();
        if datapath.is_empty { Renewal::Gone } else { Renewal::Stands(datapath.dropped) }
    }

    fn take_posture(&self, _: Holder, _: &str) -> Result<(), Failure> {
        self.0.lock().unwrap().has_posture = true;
        Ok(())
    }

    fn renew_posture(&self, _: Holder) -> Result<u64, Option<Why>> {
        Ok(1)
    }

    fn release_posture(&self, _: Holder) -> Result<(), Failure> {
        self.0.lock().unwrap().has_posture = false;
        Ok(())
    }
}

/// Mitigation with its datapath, and time.
struct Run {
    state: State,
    datapath: Arc<Mutex<Datapath>>,
    stopped: Stopped,
    now_ns: u64,
    copies: u64,
}

impl Run {
    fn new(folder: &Path) -> Self {
        Run::on(folder, Arc::default())
    }

    fn settings() -> Settings {
        let prepared = Prepared::Posture("high".to_owned());
        Settings { mode: Mode::Act, prepared, hold_ns: HOLD_NS, ..Settings::default() }
    }

    fn on(folder: &Path, datapath: Arc<Mutex<Datapath>>) -> Self {
        let places = Places { slot: "attacks".to_owned(), tables: Vec::new() };
        let carried = Carried::new(Box::new(OfDatapath(datapath.clone())), places);
        let settings = Run::settings();
        let events = Events::start(Some(&folder.join("events")), None).expect("it can be written to");
        let inside = vec![Prefix::of(false, 0xc000_0200, 24)];
        let state = State::new(inside, settings, carried, events, 1);
        Run { state, datapath, stopped: Stopped::default(), now_ns: weir_state::now_ns(), copies: 0 }
    }

    /// Plays seconds with a packet in each of the windows' `count` turns. What `stops` says does not come to be
    /// sampled.
    fn play(
        &mut self,
        seconds: u64,
        count: u32,
        packet: impl Fn(u32) -> String,
        stops: impl Fn(&mut Datapath, &mut Stopped) -> bool,
    ) {
        for _ in 0..seconds * WINDOWS_PER_S {
            for number in 0..count {
                if !stops(&mut self.datapath.lock().unwrap(), &mut self.stopped) {
                    let turn = (self.now_ns / WINDOW_NS) as u32;
                    let packet =
                        notation::packet(&packet(turn.wrapping_mul(1000).wrapping_add(number))).expect("a packet");
                    let sample =
                        Sample { bytes: &packet.bytes, wire_len: packet.bytes.len() as u32, from: Side::Lower };
                    self.state.see(sample, self.now_ns);
                    self.copies += 1;
                }
            }
            self.now_ns += WINDOW_NS;
            let copies = Copies { made: self.copies, one_in: Ok(1), stopped: Some(self.stopped) };
            self.state.end_window(copies, 0, self.now_ns);
        }
    }

    /// Hands over to the next program. Without `with_rules`, what was put in place is not there any more.
    fn upgrade(self, folder: &Path, with_rules: bool) -> Self {
        let handed = self.state.hand_over().expect("it can be written");
        let Run { mut state, datapath, stopped, now_ns, copies } = self;
        state.events.end();
        datapath.lock().unwrap().is_empty = !with_rules;
        let Run { state: State { carried, events, .. }, .. } = Run::on(folder, datapath.clone());
        let (inside, settings) = (vec![Prefix::of(false, 0xc000_0200, 24)], Run::settings());
        let continued = State::continued(&handed, inside, settings, (carried, events), 1);
        let state = continued.unwrap_or_else(|failed| panic!("{}", failed.0));
        Run { state, datapath, stopped, now_ns, copies }
    }

    /// The events that were written.
    fn lines(mut self, folder: &Path) -> Vec<Value> {
        self.state.events.end();
        let text = fs::read_to_string(folder.join("events")).expect("it was written");
        text.lines().map(|line| serde_json::from_str(line).expect("a line is an object")).collect()
    }

    /// Their names.
    fn events(self, folder: &Path) -> Vec<String> {
        let name = |line: &Value| line["event"].as_str().expect("a name").to_owned();
        self.lines(folder).iter().map(name).collect()
    }
}

/// A SYN as hosts of all kinds send it, so that no rule separates it from those of customers.
fn syn(number: u32) -> String {
    let random = number.wrapping_mul(0x9e37_79b1);
    let draw = |bits: u32, of: u32| random.rotate_left(bits).wrapping_mul(0x85eb_ca6b) % 0xffff % of;
    let [_, a, b, c] = random.to_be_bytes();
    let ttl = [64, 64, 128, 255][draw(3, 4) as usize] - draw(7, 20);
    let window = [64_240, 65_535, 29_200, 8_192][draw(11, 4) as usize];
    let options = ["020405b40103030801010402", "020405b40402080a00000001000000000103030a"][draw(17, 2) as usize];
    format!(
        "eth / ip saddr=10.{a}.{b}.{c} daddr=192.0.2.1 ttl={ttl} / tcp sport={} dport=443 flags=syn window={window} \
         seq={random} options={options}",
        1024 + draw(23, 60_000)
    )
}

/// An answer of a service that nobody asked.
fn answer(number: u32) -> String {
    format!(
        "eth / ip saddr=10.{}.{}.7 daddr=192.0.2.1 ttl=54 / udp sport=19 dport=7777 / payload 440",
        number / 256 % 256,
        number % 256
    )
}

fn nothing_stops(_: &mut Datapath, _: &mut Stopped) -> bool {
    false
}

/// A posture answers with a cookie instead of the packet.
fn cookies_stop(datapath: &mut Datapath, stopped: &mut Stopped) -> bool {
    stopped.cookies += u64::from(datapath.has_posture);
    datapath.has_posture
}

/// Events of a whole attack with one action.
const ONE_ATTACK: [&str; 4] = ["attack-began", "action-taken", "action-released", "attack-ended"];

#[test]
fn an_attack_that_a_posture_answers_with_cookies_is_told_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut run = Run::new(folder.path());
    run.play(4, 0, syn, nothing_stops);
    run.play(64, 400, syn, cookies_stop);
    assert!(run.datapath.lock().unwrap().has_posture);
    let listed = answers::list(&run.state, run.now_ns).attacks;
    let [attack] = &listed[..] else { panic!("{listed:#?}") };
    assert!(!attack.is_over && attack.seen_s < 1.0, "{attack:#?}");
    assert!(matches!(&attack.actions[..], [one] if one.action == "posture"), "{attack:#?}");
    run.play(40, 0, syn, nothing_stops);
    assert!(!run.datapath.lock().unwrap().has_posture);
    assert_eq!(run.events(folder.path()), ONE_ATTACK);
}

#[test]
fn an_attack_that_a_posture_drops_unseen_is_told_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut run = Run::new(folder.path());
    let closed = |datapath: &mut Datapath, stopped: &mut Stopped| {
        stopped.dropped += u64::from(datapath.has_posture);
        datapath.has_posture
    };
    run.play(4, 0, syn, nothing_stops);
    run.play(64, 400, syn, closed);
    assert!(run.datapath.lock().unwrap().has_posture);
    run.play(40, 0, syn, nothing_stops);
    assert_eq!(run.events(folder.path()), ONE_ATTACK);
}

#[test]
fn an_attack_that_only_the_counter_of_its_rule_shows_is_told_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut run = Run::new(folder.path());
    run.play(4, 0, answer, nothing_stops);
    run.play(4, 400, answer, nothing_stops);
    assert_eq!(run.datapath.lock().unwrap().rules, 1);
    let slot = |datapath: &mut Datapath, _: &mut Stopped| {
        datapath.dropped += 1;
        true
    };
    run.play(60, 10, answer, slot);
    assert_eq!(run.datapath.lock().unwrap().rules, 1);
    run.play(40, 0, answer, nothing_stops);
    assert_eq!(run.events(folder.path()), ONE_ATTACK);
}

#[test]
fn a_second_kind_on_a_victim_is_listed_and_told_with_its_own_actions() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut run = Run::new(folder.path());
    let flag = |number: u32| {
        answer(number).replace("udp sport=19 dport=7777 / payload 440", "tcp sport=7 dport=443 flags=syn window=77")
    };
    let both = |number: u32| if number.is_multiple_of(2) { answer(number) } else { flag(number) };
    run.play(4, 0, answer, nothing_stops);
    run.play(4, 400, answer, nothing_stops);
    run.play(4, 800, both, nothing_stops);
    let listed = answers::list(&run.state, run.now_ns).attacks;
    let [attack] = &listed[..] else { panic!("{listed:#?}") };
    // What exists stays as it was.
    assert_eq!((attack.kind.as_str(), attack.evidence.len()), ("udp-reflection", 4), "{attack:#?}");
    let [of_udp, of_syn] = &attack.vectors[..] else { panic!("{attack:#?}") };
    assert_eq!((of_udp.kind.as_str(), of_syn.kind.as_str()), ("udp-reflection", "syn-flood"));
    assert!(of_udp.pps > 1500.0 && of_syn.pps > 1500.0 && !of_syn.is_over, "{attack:#?}");
    assert!((3.0..=4.0).contains(&of_syn.age_s) && of_udp.age_s > 7.0, "{attack:#?}");
    assert!(of_syn.evidence[0].measure.starts_with("SYN"), "{attack:#?}");
    let rules = |of: &AttackVector| {
        let own = attack.actions.iter().filter(|action| of.actions.contains(&action.number) && action.kind == of.kind);
        own.map(|action| action.rule.clone()).collect::<Vec<String>>()
    };
    assert!(rules(of_udp).iter().any(|rule| rule.contains("udp")), "{attack:#?}");
    // No client uses the victim, so it is limited as a whole.
    assert_eq!(rules(of_syn), ["ip daddr 192.0.2.1 counter limit rate 10pps"], "{attack:#?}");

    // The second kind ends, and the first goes on.
    run.play(30, 400, answer, nothing_stops);
    let listed = answers::list(&run.state, run.now_ns).attacks;
    let over: Vec<bool> = listed[0].vectors.iter().map(|vector| vector.is_over).collect();
    assert_eq!(over, [false, true], "{listed:#?}");
    run.play(40, 0, answer, nothing_stops);
    let lines = run.lines(folder.path());
    let of_vectors: Vec<&Value> = lines.iter().filter(|line| !line["vector"].is_null()).collect();
    let [begun, ended] = of_vectors[..] else { panic!("{lines:#?}") };
    assert_eq!((&begun["event"], &ended["event"]), (&"vector-began".into(), &"vector-ended".into()));
    assert_eq!((&begun["vector"]["kind"], &begun["kind"]), (&"syn-flood".into(), &"udp-reflection".into()));
    let taken = lines.iter().filter(|line| line["event"] == "action-taken");
    let kinds: Vec<&str> = taken.map(|line| line["action"]["kind"].as_str().expect("a kind")).collect();
    assert!(kinds.contains(&"udp-reflection") && kinds.contains(&"syn-flood"), "{kinds:?}");
    assert_eq!(lines.last().expect("there are some")["event"], "attack-ended");
}

#[test]
fn a_dismissed_action_is_undone_and_others_wait() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut run = Run::new(folder.path());
    run.play(4, 0, answer, nothing_stops);
    run.play(4, 400, answer, nothing_stops);
    assert_eq!(run.datapath.lock().unwrap().rules, 1);
    let dismiss = AttackOperation::Dismiss { attack: 1 };
    let changed = run.state.decide(&dismiss, run.now_ns).expect("an action is carried out");
    assert_eq!((changed.changed, changed.undone, run.datapath.lock().unwrap().rules), (1, 1, 0));
    assert!(run.state.decide(&dismiss, run.now_ns).expect_err("nothing is left").contains("waits or is carried out"));
    // The attack goes on for longer than it takes to learn another rule. None is carried out without the operator.
    run.play(8, 400, answer, nothing_stops);
    assert_eq!(run.datapath.lock().unwrap().rules, 0);
    let listed = answers::list(&run.state, run.now_ns).attacks;
    let [attack] = &listed[..] else { panic!("{listed:#?}") };
    assert!(attack.actions.iter().all(|action| action.state != "active"), "{attack:#?}");
    let (idle, profile) = (attack.idle.as_ref().expect("nothing is done"), attack.profile.as_ref().expect("samples"));
    assert!(idle.why.contains("operator") || idle.why.contains("wait"), "{idle:?}");
    assert_eq!(profile.source_ports[0].value, "udp 19");
    assert!(attack.pps.is_some_and(|pps| pps > 1000.0) && attack.bps.is_some(), "{attack:#?}");
}

#[test]
fn an_upgrade_goes_on_with_attacks_and_their_rules() {
    // Whether the rules are there afterwards, or must be put in place again.
    for with_rules in [true, false] {
        let folder = tempfile::tempdir().expect("a folder");
        let mut run = Run::new(folder.path());
        run.play(4, 0, answer, nothing_stops);
        run.play(4, 400, answer, nothing_stops);
        let before = answers::list(&run.state, run.now_ns).attacks;
        assert_eq!(run.datapath.lock().unwrap().rules, 1);
        let mut run = run.upgrade(folder.path(), with_rules);
        assert_eq!(run.datapath.lock().unwrap().rules, 1);
        let after = answers::list(&run.state, run.now_ns).attacks;
        let known = |attacks: &[weir_control::AttackEntry]| -> Vec<_> {
            let of = |attack: &weir_control::AttackEntry| {
                let actions: Vec<_> =
                    attack.actions.iter().map(|one| (one.number, one.rule.clone(), one.state.clone())).collect();
                (attack.attack, attack.kind.clone(), attack.peak_pps as u64, actions)
            };
            attacks.iter().map(of).collect()
        };
        assert_eq!(known(&before), known(&after));
        let slot = |datapath: &mut Datapath, _: &mut Stopped| {
            datapath.dropped += 1;
            true
        };
        run.play(20, 100, answer, slot);
        assert_eq!(run.datapath.lock().unwrap().rules, 1, "{with_rules}: it is held while the attack lasts");
        run.play(40, 0, answer, nothing_stops);
        assert_eq!(run.datapath.lock().unwrap().rules, 0);
        assert_eq!(run.events(folder.path()), ONE_ATTACK, "{with_rules}");
    }
}

#[test]
fn an_upgrade_goes_on_with_a_posture_and_with_what_was_dismissed() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut run = Run::new(folder.path());
    run.play(4, 0, syn, nothing_stops);
    run.play(16, 400, syn, cookies_stop);
    let mut run = run.upgrade(folder.path(), true);
    run.play(16, 400, syn, cookies_stop);
    assert!(run.datapath.lock().unwrap().has_posture);
    let mut run = run.upgrade(folder.path(), true);
    run.play(40, 0, syn, nothing_stops);
    assert!(!run.datapath.lock().unwrap().has_posture);
    assert_eq!(run.events(folder.path()), ONE_ATTACK);

    let folder = tempfile::tempdir().expect("a folder");
    let mut run = Run::new(folder.path());
    run.play(4, 0, answer, nothing_stops);
    run.play(4, 400, answer, nothing_stops);
    let dismiss = AttackOperation::Dismiss { attack: 1 };
    assert_eq!(run.state.decide(&dismiss, run.now_ns).expect("an action is carried out").undone, 1);
    run.state.set_mode(Mode::Propose, run.now_ns);
    let mut run = run.upgrade(folder.path(), true);
    assert_eq!(run.state.defence.mitigator().mode(), Mode::Propose, "the operator's mode stays");
    run.state.set_mode(Mode::Act, run.now_ns);
    run.play(8, 400, answer, nothing_stops);
    assert_eq!(run.datapath.lock().unwrap().rules, 0, "the operator decides");
}

#[test]
fn what_cannot_be_read_begins_anew() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = Run::new(folder.path());
    let handed = run.state.hand_over().expect("it can be written");
    for broken in [&handed[..handed.len() / 2], b"", b"\xc1", b"\xdf\xff\xff\xff\xff"] {
        let Run { state: State { carried, events, .. }, .. } = Run::new(folder.path());
        assert!(State::continued(broken, Vec::new(), Run::settings(), (carried, events), 1).is_err());
    }
}
