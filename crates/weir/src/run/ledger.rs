//! What was counted, while generations change.
//!
//! The datapath holds the counts of generations that decide packets; the account holds the counts of those that decided before. Counts move from
//! one to the other at the end of a change. Counters are read without this lock: a snapshot is taken again if counts moved meanwhile.
//!
//! ```text
//!   stats:  copy account and version     read counters             the same version? else again
//!   close:                  version + 1     take final counts       store the account
//! ```
//! The lock is held for moments: a change waits for no snapshot, unless changes follow each other so fast that no snapshot succeeds. A snapshot
//! waits only while final counts move, which takes milliseconds.

use crate::run::account::{Account, Counted};
use crate::run::generation::Generation;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use weir_control::Stats;
use weir_engine::live::{Datapath, PortStatus, Reading, Readings};

/// How often a snapshot is taken again before counts are kept from moving for it.
const TRIES_MAX: usize = 8;

/// A generation that several hold.
type Shared<C> = Arc<Generation<C>>;

/// The generations that count, and the account of those that decide nothing any more.
pub struct Ledger<C> {
    entries: Mutex<Entries<C>>,
    /// Tells waiting snapshots that final counts have moved.
    moved: Condvar,
}

struct Entries<C> {
    /// Changes whenever counts begin to move, or another generation begins to count.
    version: u64,
    /// Whether final counts are neither in the datapath nor in the account.
    moving: bool,
    known: Known<C>,
}

/// What is copied under the lock.
struct Known<C> {
    /// Generations of which the datapath may hold code.
    counting: Vec<Shared<C>>,
    account: Arc<Account>,
}

impl<C> Clone for Known<C> {
    fn clone(&self) -> Self {
        Known { counting: self.counting.clone(), account: self.account.clone() }
    }
}

/// While final counts move; ends when dropped, also by a panic.
struct Moving<'a, C>(&'a Ledger<C>);

impl<C> Drop for Moving<'_, C> {
    fn drop(&mut self) {
        self.0.entries().moving = false;
        self.0.moved.notify_all();
    }
}

impl<C> Ledger<C> {
    /// With the generation that a datapath was started with.
    pub fn new(first: Shared<C>) -> Self {
        let known = Known { counting: vec![first], account: Arc::default() };
        Ledger { entries: Mutex::new(Entries { version: 0, moving: false, known }), moved: Condvar::new() }
    }

    /// Adds a generation, before the datapath gets its code.
    pub fn open(&self, generation: &Shared<C>) {
        let mut entries = self.entries();
        if !entries.known.counting.iter().any(|one| Arc::ptr_eq(one, generation)) {
            entries.known.counting.push(generation.clone());
            entries.version += 1;
        }
    }

    /// Moves the counts of policies that decide nothing any more from the datapath to the account. One thread at a time may do so, while no
    /// change is under way; `ready` are the generations that stand ready.
    pub fn close<D: Datapath<Code = C>>(&self, datapath: &D, ready: &[Shared<C>]) {
        let ports = datapath.ports();
        let (moving, Known { mut counting, account }) = self.begin_moving();
        let mut account = Account::clone(&account);
        for Reading { code, counts } in datapath.take_final() {
            let generation = find(&counting, &code).expect("the datapath was given it");
            account.close(Counted { program: generation.program(), counts: &counts }, &ports);
        }
        let Readings { active, others } = datapath.readings();
        counting.retain(|one| std::iter::once(&active).chain(&others).any(|reading| one.has_code(&reading.code)));
        account.forget(ready.iter().chain(&counting).map(|generation| generation.program()));
        let before = std::mem::replace(&mut self.entries().known, Known { counting, account: Arc::new(account) });
        drop(moving);
        // Unloading takes longer than anybody should wait.
        drop(before);
    }

    /// Everything that is counted.
    pub fn stats<D: Datapath<Code = C>>(&self, datapath: &D) -> Stats {
        for _ in 0..TRIES_MAX {
            let (version, known) = {
                let entries = self.settled();
                (entries.version, entries.known.clone())
            };
            let (readings, ports) = (datapath.readings(), datapath.ports());
            if self.entries().version == version {
                return known.stats(&readings, &ports);
            }
        }
        // Changes follow each other faster than counters are read: the next one waits.
        let entries = self.settled();
        let (readings, ports) = (datapath.readings(), datapath.ports());
        let known = entries.known.clone();
        drop(entries);
        known.stats(&readings, &ports)
    }

    /// The generation that has this code, if the datapath may hold it.
    pub fn generation(&self, code: &Arc<C>) -> Option<Shared<C>> {
        find(&self.entries().known.counting, code).cloned()
    }

    fn entries(&self) -> MutexGuard<'_, Entries<C>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The entries, once no counts move.
    fn settled(&self) -> MutexGuard<'_, Entries<C>> {
        let is_moving = |entries: &mut Entries<C>| entries.moving;
        self.moved.wait_while(self.entries(), is_moving).unwrap_or_else(PoisonError::into_inner)
    }

    fn begin_moving(&self) -> (Moving<'_, C>, Known<C>) {
        let mut entries = self.entries();
        entries.version += 1;
        entries.moving = true;
        (Moving(self), entries.known.clone())
    }
}

impl<C> Known<C> {
    fn stats(&self, readings: &Readings<C>, ports: &[PortStatus]) -> Stats {
        let others: Vec<_> = readings.others.iter().map(|other| self.counted(other)).collect();
        self.account.stats(self.counted(&readings.active), &others, ports)
    }

    fn counted<'a>(&'a self, reading: &'a Reading<C>) -> Counted<'a> {
        let generation = find(&self.counting, &reading.code).expect("nothing was opened or closed meanwhile");
        Counted { program: generation.program(), counts: &reading.counts }
    }
}

fn find<'a, C>(counting: &'a [Shared<C>], code: &Arc<C>) -> Option<&'a Shared<C>> {
    counting.iter().find(|one| one.has_code(code))
}

#[cfg(test)]
#[path = "ledger/tests.rs"]
mod tests;
