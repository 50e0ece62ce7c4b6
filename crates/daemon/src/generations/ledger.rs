//! Counts while generations change.
//!
//! The datapath holds the counts of generations that decide packets; the account holds the counts of previous
//! generations. Counts move from one to the other at the end of a change. Counters are read without the lock, and a
//! snapshot is repeated if counts moved meanwhile.
//!
//! ```text
//!   stats:  copy account and version     read counters             the same version? else again
//!   close:                  version + 1     take final counts       store the account
//! ```
//! The lock is held only briefly. A change waits for a snapshot only after [`TRIES_MAX`] snapshots in a row failed. A
//! snapshot waits only while final counts move, which takes milliseconds.

use crate::generations::account::{Account, Counted, Stopped};
use crate::generations::carried::{CarriedPorts, NamedCounts};
use crate::generations::generation::Generation;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use weir_control::Stats;
use weir_engine::live::{Datapath, PortStatus, Reading, Readings};

/// Tries of a snapshot before it holds the lock, so that counts cannot move.
const TRIES_MAX: usize = 8;

/// A shared generation.
type Shared<C> = Arc<Generation<C>>;

/// The generations that count, and the account of previous ones.
pub struct Ledger<C> {
    entries: Mutex<Entries<C>>,
    /// Notifies waiting snapshots that final counts have moved.
    moved: Condvar,
    /// What ports had counted before an upgrade.
    ports: CarriedPorts,
}

struct Entries<C> {
    /// Incremented when counts begin to move, and when a generation begins to count.
    version: u64,
    /// Whether final counts are being moved. They are then neither in the datapath nor in the account.
    moving: bool,
    contents: Contents<C>,
}

/// The data that a snapshot copies under the lock.
struct Contents<C> {
    /// Generations whose code the datapath may hold.
    counting: Vec<Shared<C>>,
    account: Arc<Account>,
    /// What the active generation had counted when an upgrade replaced its programs, until its counts are final.
    carried: Option<(Shared<C>, Arc<NamedCounts>)>,
}

impl<C> Clone for Contents<C> {
    fn clone(&self) -> Self {
        Contents { counting: self.counting.clone(), account: self.account.clone(), carried: self.carried.clone() }
    }
}

/// Exists while final counts move. It is dropped even by a panic.
struct Moving<'a, C>(&'a Ledger<C>);

impl<C> Drop for Moving<'_, C> {
    fn drop(&mut self) {
        self.0.entries().moving = false;
        self.0.moved.notify_all();
    }
}

impl<C> Ledger<C> {
    /// A ledger for a datapath that was started with the generation `first`.
    pub fn new(first: Shared<C>) -> Self {
        let contents = Contents { counting: vec![first], account: Arc::default(), carried: None };
        let entries = Mutex::new(Entries { version: 0, moving: false, contents });
        Ledger { entries, moved: Condvar::new(), ports: CarriedPorts::default() }
    }

    /// A ledger that goes on from the counts of the program before this one in its process.
    pub fn continued(first: Shared<C>, past: NamedCounts, current: NamedCounts, ports: CarriedPorts) -> Self {
        let ledger = Ledger::new(first.clone());
        {
            let contents = &mut ledger.entries().contents;
            contents.account = Arc::new(past.into());
            contents.carried = Some((first, Arc::new(current)));
        }
        Ledger { ports, ..ledger }
    }

    /// The ports of the datapath, with what they had counted before an upgrade.
    pub fn ports<D: Datapath<Code = C>>(&self, datapath: &D) -> Vec<PortStatus> {
        self.ports.with(datapath.ports())
    }

    /// The counts of these readings for the next program: final ones, and those of the active policy.
    pub fn hand_over(&self, readings: &Readings<C>, ports: &[PortStatus]) -> (NamedCounts, NamedCounts, CarriedPorts) {
        let ports = self.ports.with(ports.to_vec());
        let contents = self.settled().contents.clone();
        let (active, others) = contents.all(readings);
        let (past, current) = contents.account.hand_over(active, &others, &ports);
        (past, current, CarriedPorts::of(&ports))
    }

    /// Adds a generation. Must be called before the datapath gets its code.
    pub fn open(&self, generation: &Shared<C>) {
        let mut entries = self.entries();
        if !entries.contents.counting.iter().any(|one| Arc::ptr_eq(one, generation)) {
            entries.contents.counting.push(generation.clone());
            entries.version += 1;
        }
    }

    /// Moves final counts from the datapath to the account. Only one thread may call this, and not during a change.
    /// `ready` are all ready generations.
    pub fn close<D: Datapath<Code = C>>(&self, datapath: &D, ready: &[Shared<C>]) {
        let ports = self.ports(datapath);
        let (moving, Contents { mut counting, account, mut carried }) = self.begin_moving();
        let mut account = Account::clone(&account);
        for Reading { code, counts } in datapath.take_final() {
            let generation = find(&counting, &code).expect("the datapath was given it");
            let own = carried.take_if(|(of, _)| Arc::ptr_eq(of, generation)).map(|(_, own)| own);
            let counted = Counted { carried: own.as_deref(), ..Counted::of(generation.program(), &counts) };
            account.close(counted, &ports);
        }
        let Readings { active, others } = datapath.readings();
        counting.retain(|one| std::iter::once(&active).chain(&others).any(|reading| one.has_code(&reading.code)));
        account.forget(ready.iter().chain(&counting).map(|generation| generation.program()));
        let before =
            std::mem::replace(&mut self.entries().contents, Contents { counting, account: Arc::new(account), carried });
        drop(moving);
        // Unloading is slow, so it happens after the lock is released.
        drop(before);
    }

    /// A snapshot of all counts.
    pub fn stats<D: Datapath<Code = C>>(&self, datapath: &D) -> Stats {
        self.snapshot(
            || (datapath.readings(), self.ports(datapath)),
            |contents, (readings, ports)| contents.stats(&readings, &ports),
        )
    }

    /// What did not get past the datapath.
    pub fn stopped<D: Datapath<Code = C>>(&self, datapath: &D) -> Stopped {
        self.snapshot(|| datapath.readings(), |contents, readings| contents.stopped(&readings))
    }

    /// Reads counters without the lock, and makes a snapshot of them and of the contents.
    fn snapshot<R, T>(&self, read: impl Fn() -> R, make: impl Fn(&Contents<C>, R) -> T) -> T {
        for _ in 0..TRIES_MAX {
            let (version, contents) = {
                let entries = self.settled();
                (entries.version, entries.contents.clone())
            };
            let counters = read();
            if self.entries().version == version {
                return make(&contents, counters);
            }
        }
        // Changes are faster than snapshots, so the next change waits for this one.
        let entries = self.settled();
        let counters = read();
        let contents = entries.contents.clone();
        drop(entries);
        make(&contents, counters)
    }

    /// The generation with this code, if the datapath may hold it.
    pub fn generation(&self, code: &Arc<C>) -> Option<Shared<C>> {
        find(&self.entries().contents.counting, code).cloned()
    }

    fn entries(&self) -> MutexGuard<'_, Entries<C>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no counts move, and locks the entries.
    fn settled(&self) -> MutexGuard<'_, Entries<C>> {
        let is_moving = |entries: &mut Entries<C>| entries.moving;
        self.moved.wait_while(self.entries(), is_moving).unwrap_or_else(PoisonError::into_inner)
    }

    fn begin_moving(&self) -> (Moving<'_, C>, Contents<C>) {
        let mut entries = self.entries();
        entries.version += 1;
        entries.moving = true;
        (Moving(self), entries.contents.clone())
    }
}

impl<C> Contents<C> {
    fn stats(&self, readings: &Readings<C>, ports: &[PortStatus]) -> Stats {
        let (active, others) = self.all(readings);
        self.account.stats(active, &others, ports)
    }

    fn stopped(&self, readings: &Readings<C>) -> Stopped {
        let (active, others) = self.all(readings);
        self.account.stopped(active, &others)
    }

    /// The active policy's counts, and the others. What was carried over belongs to the oldest reading of its
    /// generation.
    fn all<'a>(&'a self, readings: &'a Readings<C>) -> (Counted<'a>, Vec<Counted<'a>>) {
        let mut carried = self.carried.as_ref();
        let mut counted = |reading: &'a Reading<C>| {
            let generation = find(&self.counting, &reading.code).expect("nothing was opened or closed meanwhile");
            let own = carried.take_if(|(of, _)| Arc::ptr_eq(of, generation)).map(|(_, own)| &**own);
            Counted { carried: own, ..Counted::of(generation.program(), &reading.counts) }
        };
        let others = readings.others.iter().map(&mut counted).collect();
        (counted(&readings.active), others)
    }
}

fn find<'a, C>(counting: &'a [Shared<C>], code: &Arc<C>) -> Option<&'a Shared<C>> {
    counting.iter().find(|one| one.has_code(code))
}

#[cfg(test)]
#[path = "ledger/tests.rs"]
mod tests;
