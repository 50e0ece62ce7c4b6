//! Timeouts and debts on disk when the time of day was wrong: nothing gets more time than it was given.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[allow(dead_code, reason = "other tests use the rest")]
#[path = "support/process.rs"]
mod process;
#[allow(dead_code, reason = "other tests use the rest")]
mod support;

use std::path::Path;
use std::sync::Arc;

use process::Process;
use support::{image, set};
use weir_abi::Layout;
use weir_state::limits::{EntryName, LimitNeeds, SavedDebt, SavedDebts};
use weir_state::saved::{Clocks, Folder, restore};
use weir_state::tables::{DynamicBounds, TableBinding, TableChange};
use weir_state::{SharedState, UsedBy};

const SECOND_NS: u64 = 1_000_000_000;
const YEAR_NS: u64 = 365 * 24 * 3600 * SECOND_NS;
/// A block of ten minutes. What is left is shown rounded up, and ends with a tick.
const GIVEN_S: u64 = 600;
const SHOWN_MAX_S: u64 = GIVEN_S + 1;

fn bind(process: &Process) -> Arc<TableBinding> {
    let bounds = DynamicBounds { size: 1000, timeout_ms: None };
    process.bind(vec![image(&[("suspects", &set::<&str>(&[]))], Layout::RankLeaf, Some(bounds))])
}

fn block(process: &Process, active: &TableBinding) {
    let entries = &set(&["10.0.0.1"]);
    process.change(active, "suspects", TableChange::Add { entries, timeout_ms: Some(GIVEN_S * 1000) });
}

/// The seconds that the block has left in a process that starts at this time.
fn left_at(path: &Path, clocks: Clocks) -> Option<u64> {
    let process = Process::start_at(path, clocks);
    assert_eq!(process.notices, Vec::<String>::new());
    let active = bind(&process);
    process.entries(&active, "suspects").first().map(|(_, _, left)| left.unwrap())
}

#[test]
fn a_clock_that_begins_in_1970_makes_no_block_longer() {
    for in_snapshot in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let mut process = Process::start(folder.path());
        let active = bind(&process);
        if in_snapshot {
            block(&process, &active);
            process.save(&active);
        } else {
            process.save(&active);
            block(&process, &active);
            process.save(&active);
        }
        drop((process, active));
        for day_ns in [0, 30 * SECOND_NS] {
            let left = left_at(folder.path(), Clocks { day_ns, ..Clocks::now() });
            assert!(left.is_some_and(|left| (1..=SHOWN_MAX_S).contains(&left)), "snapshot {in_snapshot}: {left:?} s");
        }
    }
}

#[test]
fn a_clock_that_was_ahead_when_a_block_was_saved_makes_it_no_longer() {
    let folder = tempfile::tempdir().unwrap();
    let mut process = Process::start(folder.path());
    let active = bind(&process);
    block(&process, &active);
    let present = Clocks::now();
    let ahead = Clocks { day_ns: present.day_ns + 20 * YEAR_NS, ..present };
    process.saver.step_at(&process.store, Some(&active), ahead).unwrap();
    drop((process, active));
    let left = left_at(folder.path(), Clocks::now());
    assert!(left.is_some_and(|left| (1..=SHOWN_MAX_S).contains(&left)), "{left:?} s");
}

#[test]
fn a_clock_that_is_set_while_weir_runs_ends_no_block() {
    let folder = tempfile::tempdir().unwrap();
    let mut process = Process::start(folder.path());
    let active = bind(&process);
    block(&process, &active);
    // It begins in 1970, and an hour later the network says what time it is.
    let wrong = Clocks { day_ns: 5 * SECOND_NS, ..Clocks::now() };
    process.saver.step_at(&process.store, Some(&active), wrong).unwrap();
    let right = Clocks::now();
    process.saver.step_at(&process.store, Some(&active), right).unwrap();
    drop((process, active));
    let left = left_at(folder.path(), right);
    assert!(left.is_some_and(|left| left > GIVEN_S / 2), "{left:?} s");
}

#[test]
fn a_clock_that_begins_in_1970_makes_no_debt_larger() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(folder.path());
    let shared = SharedState::new(UsedBy::Workers);
    let until_ns = weir_state::now_ns() + GIVEN_S * SECOND_NS;
    let debts = vec![SavedDebt { entry: EntryName::First, limiter: 0, until_ns }];
    shared.keep_debts(vec![SavedDebts { name: "rate".to_owned(), debts }]);
    process.saver.debts().step(shared.limits(LimitNeeds { buckets: 1, largest_address_table: 0 }).unwrap()).unwrap();
    drop(process);
    let clocks = Clocks { day_ns: 0, ..Clocks::now() };
    let restored = restore(&Folder::open(folder.path()).unwrap(), clocks).unwrap();
    let left_ns = restored.debts[0].debts[0].until_ns - clocks.now_ns;
    assert!((1..=GIVEN_S * SECOND_NS).contains(&left_ns), "{left_ns} ns");
}
