//! Whatever the origin of a change, the same watchers see it, may refuse it, and follow it.

use super::{ChangeWatcher, Changes};
use crate::generations::still::Daemon;
use crate::generations::succession::Change;
use crate::parts::feeds::{Cause, Force};
use crate::parts::mitigation::hands::{Carried, Places};
use crate::parts::mitigation::part::Hand;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use weir_command::failure::Failure;
use weir_control::{AttackOperation, FlowOperation, GivenEntries, Request, SlotOperation, TableOperation};
use weir_mitigate::action::{Action, Measure, Trial};
use weir_mitigate::prefix::Prefix;
use weir_mitigate::signature::Signature;

const POLICY: &str = "
table blocked { type ipv4; dynamic; size 10 }
slot attacks { size 4 }
upstream { sample 1/1; ip saddr @blocked drop; slot attacks; accept }
downstream { accept }
posture high { upstream { ip saddr @blocked drop; slot attacks; udp drop; accept } downstream { accept } }
";

/// A card that has the table `blocked`, or refuses that it changes. It writes down what it sees.
#[derive(Default)]
struct Watching {
    refuses: bool,
    seen: Mutex<Vec<String>>,
}

impl Watching {
    fn note(&self, when: &str, changes: Changes<'_>) {
        self.seen.lock().expect("no panic").push(format!("{when} {changes:?}"));
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.seen.lock().expect("no panic"))
    }
}

impl ChangeWatcher for Watching {
    fn before(&self, changes: Changes<'_>) -> Result<(), Failure> {
        self.note("before", changes);
        match changes {
            Changes::Table("blocked") if self.refuses => {
                Err(Failure::Rejected("weir: the card is busy with table blocked".to_owned()))
            }
            _ => Ok(()),
        }
    }

    fn after(&self, changes: Changes<'_>) {
        self.note("after", changes);
    }
}

fn watched(refuses: bool) -> (Daemon, Carried, Arc<Watching>) {
    let daemon = Daemon::new(POLICY);
    let watching = Arc::new(Watching { refuses, ..Watching::default() });
    daemon.door.join(watching.clone());
    let places = Places { slot: "attacks".to_owned(), tables: vec!["blocked".to_owned()] };
    let carried = Carried::new(Box::new(Hand(Arc::downgrade(&daemon.door))), places);
    (daemon, carried, watching)
}

fn action(id: u32, measure: Measure) -> Action {
    Action { id, attack: 1, measure, trial: Trial::default() }
}

fn block() -> Action {
    action(1, Measure::Block((false, 0xc000_0207), 30_000_000_000))
}

fn add() -> Request {
    let operation = TableOperation::Add(GivenEntries::of(&["192.0.2.8"]));
    Request::Table { table: "blocked".to_owned(), operation }
}

fn entries(daemon: &Daemon) -> u64 {
    let operation = TableOperation::Get { address: "192.0.2.7".to_owned() };
    let found = daemon.ask(Request::Table { table: "blocked".to_owned(), operation });
    u64::from(!found["found"].is_null())
}

#[test]
fn a_part_refuses_mitigation_as_it_refuses_a_client() {
    let (daemon, mut carried, watching) = watched(true);
    let refused = daemon.door.request(add()).expect_err("the card is busy").to_string();
    assert_eq!(refused, "weir: the card is busy with table blocked");
    let by_client = watching.take();
    assert_eq!(by_client, [r#"before Table("blocked")"#]);
    assert_eq!(carried.apply(&block(), 0), Err("the card is busy with table blocked".to_owned()));
    assert_eq!(watching.take(), by_client);
    assert_eq!(entries(&daemon), 0, "nothing has changed");
}

#[test]
fn a_part_follows_what_mitigation_changes() {
    let (daemon, mut carried, watching) = watched(false);
    let around = |changes: &str| vec![format!("before {changes}"), format!("after {changes}")];
    assert_eq!((carried.apply(&block(), 0), entries(&daemon)), (Ok(()), 1));
    assert_eq!(watching.take(), around(r#"Table("blocked")"#));
    assert_eq!((carried.undo(1, 0), entries(&daemon)), (Ok(()), 0));
    assert_eq!(watching.take(), around(r#"Table("blocked")"#));

    let rule = Measure::Drop(Signature::new(Prefix::of(false, 0xc000_0201, 32), Vec::new()));
    assert_eq!(carried.apply(&action(2, rule), 0), Ok(()));
    assert_eq!(watching.take(), around(r#"Slot("attacks")"#));
    assert_eq!((carried.renew(1), watching.take()), (vec![], vec![]), "no decision is renewed");
    assert_eq!(carried.undo(2, 1), Ok(()));
    assert_eq!(watching.take(), around(r#"Slot("attacks")"#));

    assert_eq!(carried.apply(&action(3, Measure::Posture("high".to_owned())), 0), Ok(()));
    assert_eq!((watching.take(), daemon.decides().as_deref()), (around("Policy"), Some("high")));
    assert_eq!((carried.undo(3, 1), daemon.decides()), (Ok(()), None));
    assert_eq!(watching.take(), around("Policy"));
}

#[test]
fn a_part_follows_list_files_and_timers() {
    let (daemon, _, watching) = watched(false);
    daemon.door.update(|_| true, Force::No, Cause::Watch).expect("nothing has changed");
    assert_eq!(watching.take(), ["before Lists", "after Lists"]);
    daemon.activate("other.weir", POLICY, Some(10.0));
    watching.take();
    daemon.pass(Duration::from_secs(10));
    assert_eq!(daemon.make_due(), Some(Change::Timeout));
    assert_eq!(watching.take(), ["before Policy", "after Policy"]);
}

#[test]
fn a_part_follows_a_change_that_fails() {
    let (daemon, _, watching) = watched(false);
    daemon.fail();
    assert!(daemon.door.request(Request::Posture { name: Some("high".to_owned()) }).is_err());
    assert_eq!(watching.take(), ["before Policy", "after Policy"], "some workers may have changed");
}

#[test]
fn what_changes_nothing_is_not_guarded() {
    let (daemon, _, watching) = watched(false);
    let list = TableOperation::Get { address: "192.0.2.7".to_owned() };
    let reads = [
        Request::Status,
        Request::Stats,
        Request::Table { table: "blocked".to_owned(), operation: list },
        Request::Slot { slot: "attacks".to_owned(), operation: SlotOperation::List },
        Request::Load { policy: daemon.file("other.weir", POLICY) },
    ];
    reads.into_iter().for_each(|request| _ = daemon.ask(request));
    let others = [
        Request::Attacks { operation: AttackOperation::List },
        Request::Card { top: 1 },
        Request::Flows { operation: FlowOperation::Count },
    ];
    others.into_iter().for_each(|request| assert!(daemon.door.request(request).is_err()));
    assert_eq!(watching.take(), Vec::<String>::new());
}
