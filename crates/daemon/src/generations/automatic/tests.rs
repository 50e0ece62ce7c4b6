//! A test for each row of the table in docs/guide/mitigation.md: what becomes of an automatic posture.

use super::{LEASE, Why};
use crate::generations::still::Daemon;
use crate::generations::succession::Change;
use crate::parts::mitigation::hands::{Carried, Lost, Places};
use crate::parts::mitigation::part::Hand;
use std::sync::Arc;
use std::time::Duration;
use weir_control::Request;
use weir_mitigate::action::{Action, Measure, Trial};

const POLICY: &str = "
upstream { accept } downstream { accept }
posture high { upstream { udp drop; accept } downstream { accept } }
posture low { upstream { icmp drop; accept } downstream { accept } }
";
const OTHER: &str = "upstream { accept } downstream { drop } posture high { upstream { drop } downstream { drop } }";
const WITHOUT_POSTURES: &str = "upstream { accept } downstream { drop }";
/// The action that has the posture.
const ACTION: u32 = 3;

/// A daemon, and the posture that mitigation has activated.
struct Attacked {
    daemon: Daemon,
    carried: Carried,
}

fn at_peace() -> Attacked {
    of(Daemon::new(POLICY))
}

fn of(daemon: Daemon) -> Attacked {
    let places = Places { slot: "attacks".to_owned(), tables: Vec::new() };
    let carried = Carried::new(Box::new(Hand(Arc::downgrade(&daemon.door))), places);
    Attacked { daemon, carried }
}

fn under_attack() -> Attacked {
    at_peace().attacked_now()
}

impl Attacked {
    fn attacked_now(mut self) -> Self {
        self.take().expect("it is carried out");
        assert_eq!(self.decides(), "high");
        self
    }

    fn take(&mut self) -> Result<(), String> {
        let measure = Measure::Posture("high".to_owned());
        self.carried.apply(&Action { id: ACTION, attack: 1, measure, trial: Trial::default() }, 0)
    }

    /// What decides packets.
    fn decides(&self) -> String {
        let (decides, status) = (self.daemon.decides(), self.daemon.status().posture);
        assert_eq!(decides, status, "the status says what the datapath does");
        decides.unwrap_or_else(|| "base".to_owned())
    }

    /// What mitigation learns in the next window.
    fn learns(&mut self) -> Vec<Lost> {
        self.carried.renew(0).into_iter().map(|(_, lost)| lost).collect()
    }

    /// The attack is over.
    fn over(&mut self) {
        self.carried.undo(ACTION, 0).expect("it is undone");
    }

    fn posture(&self, name: Option<&str>) {
        self.daemon.ask(Request::Posture { name: name.map(str::to_owned) });
    }

    /// The generation and posture that `rollback` leads to.
    fn rollback_target(&self) -> (Option<u64>, Option<String>) {
        let status = self.daemon.status();
        (status.rollback_to, status.rollback_posture)
    }
}

fn removed(why: &Why) -> Vec<Lost> {
    vec![Lost::Removed(format!("has lost its posture: {why}"))]
}

fn failed(why: &Why) -> Vec<Lost> {
    vec![Lost::Failed(format!("its posture has ended: {why}"))]
}

#[test]
fn it_goes_back_to_what_the_operator_decided_and_is_no_rollback_target() {
    let mut attacked = at_peace();
    attacked.posture(Some("low"));
    let before = attacked.rollback_target();
    assert_eq!(before, (Some(1), None));
    attacked.take().expect("it is carried out");
    assert_eq!(attacked.daemon.automatic(), Some(("high".to_owned(), Some("low".to_owned()))));
    assert_eq!((attacked.rollback_target(), attacked.learns()), (before.clone(), vec![]));
    attacked.over();
    assert_eq!((attacked.decides().as_str(), attacked.daemon.automatic()), ("low", None));
    assert_eq!(attacked.rollback_target(), before, "it came and went");
    attacked.daemon.ask(Request::Rollback);
    assert_eq!(attacked.decides(), "base");
}

#[test]
fn a_list_update_that_needs_a_generation_keeps_it_and_its_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let list = folder.path().join("each.csv");
    let write = |rate: &str| std::fs::write(&list, format!("192.0.2.0/24,{rate}\n")).expect("a file");
    write("10pps");
    let limits =
        format!("limits each {{ file \"{}\" }}\nupstream {{ ip saddr limit @each drop; accept }}", list.display());
    let mut attacked = of(Daemon::new(&POLICY.replacen("upstream { accept }", &limits, 1))).attacked_now();
    write("20pps");
    let reloaded = attacked.daemon.ask(Request::Reload { force: true });
    assert_eq!((&reloaded["generation"], attacked.decides().as_str()), (&2.into(), "high"));
    assert_eq!((attacked.learns(), attacked.rollback_target()), (vec![], (None, None)));
    assert_eq!(attacked.carried.describe(ACTION).0.as_deref(), Some("generation 2"));
    attacked.over();
    assert_eq!((attacked.daemon.status().generation, attacked.decides().as_str()), (2, "base"));
}

#[test]
fn another_generation_with_such_a_posture_keeps_it() {
    let mut attacked = under_attack();
    attacked.daemon.activate("other.weir", OTHER, None);
    assert_eq!((attacked.decides().as_str(), attacked.learns()), ("high", vec![]));
    assert_eq!(attacked.rollback_target(), (Some(1), None), "the operator never chose the posture");
    attacked.over();
    assert_eq!((attacked.daemon.status().generation, attacked.decides().as_str()), (2, "base"));
}

#[test]
fn another_generation_without_such_a_posture_ends_it() {
    let mut attacked = under_attack();
    attacked.daemon.activate("other.weir", WITHOUT_POSTURES, None);
    assert_eq!((attacked.decides().as_str(), attacked.daemon.automatic()), ("base", None));
    assert_eq!(attacked.learns(), failed(&Why::NoPosture(2)), "it is tried again, and says why it cannot");
    let refused = attacked.take().expect_err("there is none");
    assert!(refused.ends_with("other.weir has no posture high"), "{refused}");
    // Back in a generation that has it, nothing is left of the past.
    attacked.daemon.ask(Request::Rollback);
    assert_eq!(attacked.decides(), "base");
    attacked.take().expect("there is one");
    assert_eq!(attacked.decides(), "high");
}

#[test]
fn a_trial_keeps_it_and_confirming_confirms_what_the_operator_chose() {
    let mut attacked = under_attack();
    attacked.daemon.activate("other.weir", OTHER, Some(30.0));
    assert_eq!((attacked.decides().as_str(), attacked.learns()), ("high", vec![]));
    attacked.daemon.ask(Request::Confirm);
    assert_eq!((attacked.decides().as_str(), attacked.rollback_target()), ("high", (Some(1), None)));
    attacked.over();
    assert_eq!((attacked.daemon.status().generation, attacked.decides().as_str()), (2, "base"));
}

#[test]
fn a_trial_that_ends_leads_to_what_the_operator_confirmed_and_ends_it() {
    let mut attacked = under_attack();
    attacked.daemon.activate("other.weir", OTHER, Some(30.0));
    assert_eq!((attacked.decides().as_str(), attacked.daemon.make_due()), ("high", None));
    attacked.daemon.pass(Duration::from_secs(30));
    assert_eq!(attacked.daemon.make_due(), Some(Change::Timeout));
    assert_eq!((attacked.daemon.status().generation, attacked.decides().as_str()), (1, "base"));
    assert_eq!(attacked.learns(), failed(&Why::TrialEnded), "nobody has decided against it");
}

#[test]
fn a_rollback_leads_to_what_the_operator_decided_and_ends_it() {
    let mut attacked = at_peace();
    attacked.posture(Some("low"));
    attacked.take().expect("it is carried out");
    attacked.daemon.ask(Request::Rollback);
    assert_eq!((attacked.decides().as_str(), attacked.daemon.automatic()), ("base", None));
    assert_eq!(attacked.learns(), removed(&Why::Rollback), "it is not taken again against this attack");
    attacked.daemon.ask(Request::Rollback);
    assert_eq!(attacked.decides(), "low", "what was left, not the emergency");
    // Where nothing else was decided, the posture by hand is the way.
    let mut attacked = under_attack();
    let refused = attacked.daemon.door.request(Request::Rollback).expect_err("there is no target");
    assert!(refused.to_string().contains("there is no previous policy"), "{refused}");
    assert_eq!((attacked.decides().as_str(), attacked.learns()), ("high", vec![]));
}

#[test]
fn a_posture_by_hand_ends_it_also_the_same_one_and_the_base_policy() {
    for (name, decides) in [(Some("low"), "low"), (Some("high"), "high"), (None, "base")] {
        let mut attacked = under_attack();
        attacked.posture(name);
        assert_eq!((attacked.decides().as_str(), attacked.daemon.automatic()), (decides, None));
        assert_eq!(attacked.learns(), removed(&Why::ByHand));
        attacked.over();
        assert_eq!(attacked.decides(), decides, "what the operator chose stays after the attack");
    }
    // A posture that does not exist is no decision.
    let mut attacked = under_attack();
    assert!(attacked.daemon.door.request(Request::Posture { name: Some("higher".to_owned()) }).is_err());
    assert_eq!((attacked.decides().as_str(), attacked.learns()), ("high", vec![]));
}

#[test]
fn the_operators_own_posture_is_not_taken() {
    let mut attacked = at_peace();
    attacked.posture(Some("high"));
    assert_eq!(attacked.take(), Err("posture high is active already".to_owned()));
    attacked.over();
    assert_eq!(attacked.decides(), "high");
}

#[test]
fn without_renewal_it_ends_by_itself() {
    let mut attacked = under_attack();
    let almost = LEASE - Duration::from_nanos(1);
    for _ in 0..3 {
        attacked.daemon.pass(almost);
        assert_eq!((attacked.daemon.make_due(), attacked.learns()), (None, vec![]), "it is renewed in time");
    }
    attacked.daemon.pass(LEASE);
    assert_eq!(attacked.daemon.make_due(), Some(Change::Lapse));
    assert_eq!(attacked.decides(), "base");
    assert_eq!(attacked.learns(), failed(&Why::Lapsed));
}

#[test]
fn a_change_that_fails_keeps_it_and_its_end_is_tried_again() {
    let mut attacked = under_attack();
    attacked.daemon.fail();
    assert!(attacked.daemon.door.request(Request::Posture { name: None }).is_err());
    assert_eq!((attacked.decides().as_str(), attacked.learns()), ("high", vec![]));
    assert!(attacked.carried.undo(ACTION, 0).is_err());
    // Its lease is not renewed any more.
    attacked.daemon.pass(LEASE);
    assert_eq!(attacked.daemon.door.controller.due(), Some(Change::Lapse));
    attacked.daemon.succeed();
    attacked.daemon.make_due();
    assert_eq!(attacked.decides(), "base");
}
