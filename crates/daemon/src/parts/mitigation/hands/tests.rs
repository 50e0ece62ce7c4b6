use super::{Carried, Hands, Holder, Lost, Places, RULE_TIME, Renewal, Why};
use std::sync::{Arc, Mutex};
use weir_command::failure::Failure;
use weir_control::{Reply, Request, SlotChanged, TableChanged};
use weir_mitigate::action::{Action, Measure, Trial};
use weir_mitigate::prefix::Prefix;
use weir_mitigate::signature::Signature;

/// The rest of the daemon: what it was asked, and what it answers.
#[derive(Default)]
struct Daemon {
    asked: Vec<String>,
    reply: Option<Reply>,
    refuses: Option<&'static str>,
    renewal: Option<Renewal>,
    posture: Option<String>,
    holder: Holder,
    ended: Option<Why>,
}

/// The hands of such a daemon.
struct OfDaemon(Arc<Mutex<Daemon>>);

impl Hands for OfDaemon {
    fn ask(&self, request: Request) -> Result<Reply, Failure> {
        let mut daemon = self.0.lock().unwrap();
        daemon.asked.push(request.line().unwrap().trim().to_owned());
        match daemon.refuses {
            Some(text) => Err(Failure::Rejected(format!("weir: {text}"))),
            None => Ok(daemon.reply.clone().expect("it is asked for what it answers")),
        }
    }

    fn renew_rule(&self, _: &str, _: u32, _: u64) -> Renewal {
        self.0.lock().unwrap().renewal.unwrap_or(Renewal::Stands(7))
    }

    fn take_posture(&self, holder: Holder, posture: &str) -> Result<(), Failure> {
        let mut daemon = self.0.lock().unwrap();
        if daemon.posture.is_some() {
            return Err(Failure::Rejected(format!("weir: posture {posture} is active already")));
        }
        (daemon.posture, daemon.holder) = (Some(posture.to_owned()), holder);
        Ok(())
    }

    fn renew_posture(&self, holder: Holder) -> Result<u64, Option<Why>> {
        let daemon = self.0.lock().unwrap();
        assert_eq!(holder, daemon.holder);
        daemon.posture.as_ref().map(|_| 1).ok_or_else(|| daemon.ended.clone())
    }

    fn release_posture(&self, holder: Holder) -> Result<(), Failure> {
        let mut daemon = self.0.lock().unwrap();
        assert_eq!(holder, daemon.holder);
        daemon.posture = None;
        Ok(())
    }
}

fn carried(daemon: &Arc<Mutex<Daemon>>) -> Carried {
    let places = Places { slot: "attacks".to_owned(), tables: vec!["six".to_owned(), "four".to_owned()] };
    Carried::new(Box::new(OfDaemon(daemon.clone())), places)
}

fn action(id: u32, measure: Measure) -> Action {
    Action { id, attack: 1, measure, trial: Trial::default() }
}

fn rule(id: u32) -> Action {
    let victim = Prefix::of(false, 0xc000_0201, 32);
    action(id, Measure::Drop(Signature::new(victim, Vec::new())))
}

fn daemon(reply: Option<Reply>) -> Arc<Mutex<Daemon>> {
    Arc::new(Mutex::new(Daemon { reply, ..Daemon::default() }))
}

/// A daemon that has put a rule in.
fn with_rule() -> Arc<Mutex<Daemon>> {
    daemon(Some(SlotChanged { number: Some(3), rules: 1, size: 4 }.into()))
}

#[test]
fn a_rule_is_added_with_a_timeout_renewed_and_removed() {
    let daemon = with_rule();
    let mut carried = carried(&daemon);
    assert_eq!(carried.apply(&rule(1), 0), Ok(()));
    assert_eq!(carried.renew(1), []);
    assert_eq!((carried.take_dropped(), carried.take_dropped()), (vec![(1, 7)], vec![(1, 0)]));
    assert_eq!(carried.describe(1), (Some("slot attacks, rule 3".to_owned()), Some(7)));
    assert_eq!((carried.undo(1, 2), carried.undo(1, 2), carried.ids().len()), (Ok(()), Ok(()), 0));
    let add = r#"{"slot":{"slot":"attacks","operation":{"add":{"rule":"ip daddr 192.0.2.1 counter drop","timeout_ms":60000}}}}"#;
    let del = r#"{"slot":{"slot":"attacks","operation":{"del":{"number":3}}}}"#;
    assert_eq!(daemon.lock().unwrap().asked, [add, del]);
}

#[test]
fn what_others_remove_is_lost_and_not_removed_again() {
    let daemon = with_rule();
    let mut carried = carried(&daemon);
    let late_ns = RULE_TIME.as_nanos() as u64;
    for (renewal, now_ns, expected) in [
        (Renewal::Gone, 1, Lost::Removed("was removed from its slot".to_owned())),
        (Renewal::Gone, late_ns, Lost::Failed("its rule has expired".to_owned())),
        (Renewal::NoSlot, 1, Lost::Failed("the active policy has no slot `attacks` any more".to_owned())),
    ] {
        assert_eq!(carried.apply(&rule(1), 0), Ok(()));
        daemon.lock().unwrap().renewal = Some(renewal);
        assert_eq!(carried.renew(now_ns), [(1, expected)]);
        assert_eq!((carried.renew(now_ns), carried.undo(1, now_ns)), (vec![], Ok(())));
    }
    assert_eq!(daemon.lock().unwrap().asked.len(), 3, "nothing was asked but to add");
}

#[test]
fn a_source_that_was_in_the_table_before_stays_there() {
    let block = || action(1, Measure::Block((false, 0xc000_0207), 30_000_000_000));
    for (changed, requests) in [(1, 2), (0, 1)] {
        let (table, refreshed, notices) = ("six".to_owned(), None, Vec::new());
        let done = TableChanged { table, changed, refreshed, entries: 1, reload_undoes: false, notices };
        let daemon = daemon(Some(done.into()));
        let mut carried = carried(&daemon);
        assert_eq!((carried.apply(&block(), 0), carried.undo(1, 0)), (Ok(()), Ok(())));
        let asked = &daemon.lock().unwrap().asked;
        assert_eq!(asked.len(), requests, "{asked:?}");
        assert!(asked[0].contains(r#""entries":["192.0.2.7"]"#) && asked[0].contains(r#""timeout_ms":30000"#));
    }
    // The reason of the last table is said, after all were asked.
    let daemon = daemon(None);
    daemon.lock().unwrap().refuses = Some("table four: it is full");
    assert_eq!(carried(&daemon).apply(&block(), 0), Err("table four: it is full".to_owned()));
    assert_eq!(daemon.lock().unwrap().asked.len(), 2);
}

#[test]
fn a_posture_that_ends_is_removed_by_operators_and_fails_otherwise() {
    let posture = action(1, Measure::Posture("high".to_owned()));
    let failed = |text: &str| Lost::Failed(text.to_owned());
    for (ended, expected) in [
        (Some(Why::ByHand), Lost::Removed("has lost its posture: the operator has chosen a posture".to_owned())),
        (Some(Why::Rollback), Lost::Removed("has lost its posture: the operator has rolled back".to_owned())),
        (Some(Why::TrialEnded), failed("its posture has ended: the trial was not confirmed")),
        (Some(Why::NoPosture(2)), failed("its posture has ended: generation 2 has no such posture")),
        (None, failed("its posture has ended")),
    ] {
        let daemon = daemon(None);
        let mut carried = carried(&daemon);
        assert_eq!(carried.apply(&posture, 0), Ok(()));
        assert_eq!((carried.renew(1), carried.describe(1).0.as_deref()), (vec![], Some("generation 1")));
        {
            let mut daemon = daemon.lock().unwrap();
            (daemon.posture, daemon.ended) = (None, ended);
        }
        assert_eq!(carried.renew(2), [(1, expected)]);
        assert_eq!((carried.renew(3), carried.ids().len()), (vec![], 0));
    }
}

#[test]
fn attacks_share_a_posture_until_the_last_of_them_needs_it_no_more() {
    let posture = |id| action(id, Measure::Posture("high".to_owned()));
    let daemon = daemon(None);
    let mut carried = carried(&daemon);
    assert_eq!([1, 2, 3].map(|id| carried.apply(&posture(id), 0)), [Ok(()), Ok(()), Ok(())]);
    for (id, is_left) in [(1, true), (3, true), (2, false)] {
        assert_eq!((carried.renew(1), carried.undo(id, 2)), (vec![], Ok(())));
        assert_eq!(daemon.lock().unwrap().posture.is_some(), is_left, "action {id}");
    }
    // The operator ends it for all of them.
    assert_eq!([4, 5].map(|id| carried.apply(&posture(id), 3)), [Ok(()), Ok(())]);
    {
        let mut daemon = daemon.lock().unwrap();
        (daemon.posture, daemon.ended) = (None, Some(Why::ByHand));
    }
    let lost: Vec<u32> = carried.renew(4).into_iter().map(|(id, _)| id).collect();
    assert_eq!((lost.len(), carried.ids().len()), (2, 0), "{lost:?}");
}
