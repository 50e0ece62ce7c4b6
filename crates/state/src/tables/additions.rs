//! What rules add to tables: additions are collected for a tick and applied at its end.
//!
//! ```text
//!   worker 0, generation 2 ──ring──┐
//!   worker 1, generation 2 ──ring──┼──> Batch: each addition once, at most 65,536 ──> TableStore, every 10 ms
//!   CPUs, generation 2 ─────rings──┘
//! ```
//! A replay has one batch and the time of its packets ([`ReplayedTables`]). On interfaces each generation has queues,
//! which [`Additions::collect`] empties by the clock.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_abi::addition::{TICK_ADDITIONS_MAX, TICK_NS, tick};
use weir_abi::{Addition, AdditionCounts, Family};
use weir_tables::{Coverage, Entries, Kind, Table};

use super::addition_ring::AdditionRings;
use super::change::{TableChange, Visibility};
use super::patience::Patience;
use super::table_error::TableError;
use super::table_images::TableBinding;
use super::table_store::{Changed, TableStore};
use super::turns::Turn;

/// How an effect of a program adds to a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableAdder {
    /// The name of the table.
    pub table: String,
    /// The family of its entries.
    pub family: Family,
    /// The prefix length of an entry.
    pub length: u8,
    /// The timeout of an entry, ms; `None`: it does not expire.
    pub timeout_ms: Option<u64>,
    /// Whether the timeout of an entry that is there begins again.
    pub updates: bool,
    /// Tables whose addresses rules must not add to the table.
    pub protected: Arc<[ProtectedTable]>,
}

/// A table whose addresses rules must not add to another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProtectedTable {
    /// Its name.
    pub name: String,
    /// Its addresses in the policy and its lists. They count if the generation has no image of it.
    pub listed: Coverage,
}

/// The adders of a program with the tables that they change.
#[derive(Clone)]
pub struct Adders {
    /// By the numbers in additions.
    pub adders: Arc<[TableAdder]>,
    /// The tables of the program's generation.
    pub binding: Arc<TableBinding>,
}

/// The additions of one tick, each once, in the order of their first packets.
#[derive(Default)]
struct Batch {
    seen: HashSet<(usize, u32, u128)>,
    /// The source, the adder and the prefix.
    pending: Vec<(usize, u32, u128)>,
    overflow: u64,
}

impl Batch {
    fn add(&mut self, source: usize, adder: u32, prefix: u128) {
        let key = (source, adder, prefix);
        if self.seen.contains(&key) {
            return;
        }
        if self.pending.len() == TICK_ADDITIONS_MAX {
            self.overflow += 1;
            return;
        }
        self.seen.insert(key);
        self.pending.push(key);
    }

    /// Applies the additions of the sources, at a time from which their timeouts count. The batch then has the
    /// additions to tables that are being changed for long.
    fn apply(&mut self, store: &TableStore, sources: &[Adders], now_ns: u64) -> AdditionCounts {
        self.seen.clear();
        let mut counts = AdditionCounts { overflow: std::mem::take(&mut self.overflow), ..AdditionCounts::default() };
        // Tables are independent of each other. In each, the order matters.
        let mut by_table: HashMap<(usize, &str), Vec<Entry<'_>>> = HashMap::new();
        for (source, number, prefix) in self.pending.drain(..) {
            let adder = &sources[source].adders[number as usize];
            by_table.entry((source, &adder.table)).or_default().push(Entry { adder, number, prefix });
        }
        let mut patience = Patience::default();
        // Protected tables count as they are before this tick adds to them.
        let allowed = |(&(source, _), entries): (&(usize, &str), &mut Vec<Entry<'_>>)| {
            allow(store, &sources[source].binding, entries, &mut patience)
        };
        let refused: Vec<Option<u64>> = by_table.iter_mut().map(allowed).collect();
        for (((source, table), entries), refused) in by_table.into_iter().zip(refused) {
            counts.protected += refused.unwrap_or(0);
            let turn = refused.and_then(|_| store.turn_soon(table, &mut patience));
            let Some(turn) = turn else {
                let late = entries.iter().map(|entry| (source, entry.number, entry.prefix));
                self.pending.extend(late);
                continue;
            };
            let alike = |one: &Entry<'_>, next: &Entry<'_>| one.adder.how() == next.adder.how();
            for run in entries.chunk_by(alike) {
                counts = counts.plus(apply_run((store, &turn), &sources[source].binding, table, run, now_ns));
            }
        }
        self.seen.extend(&self.pending);
        counts
    }
}

/// An entry that is to be added.
struct Entry<'a> {
    adder: &'a TableAdder,
    /// The number of the adder.
    number: u32,
    prefix: u128,
}

impl Entry<'_> {
    fn prefix(&self) -> (IpAddr, u8) {
        let addr = match self.adder.family {
            Family::Ipv4 => IpAddr::V4((self.prefix as u32).into()),
            Family::Ipv6 => IpAddr::V6(self.prefix.into()),
        };
        (addr, self.adder.length)
    }
}

impl TableAdder {
    /// What additions of one change have in common.
    fn how(&self) -> (bool, Option<u64>) {
        (self.updates, self.timeout_ms)
    }
}

/// Removes the entries that overlap a protected table, and returns their number. `None` if others change a protected
/// table for long. All entries are for the same table.
fn allow(
    store: &TableStore,
    binding: &TableBinding,
    entries: &mut Vec<Entry<'_>>,
    patience: &mut Patience,
) -> Option<u64> {
    let before = entries.len();
    for ProtectedTable { name, listed } in entries[0].adder.protected.clone().iter() {
        let prefixes: Vec<(IpAddr, u8)> = entries.iter().map(Entry::prefix).collect();
        let listed = |&(addr, len): &(IpAddr, u8)| listed.overlaps(addr, len);
        let overlaps = match store.overlapping(binding, name, &prefixes, patience)? {
            Some(overlaps) => overlaps,
            None => prefixes.iter().map(listed).collect(),
        };
        let mut overlaps = overlaps.into_iter();
        entries.retain(|_| overlaps.next() == Some(false));
        if entries.is_empty() {
            break;
        }
    }
    Some((before - entries.len()) as u64)
}

/// Adds entries with the same timeout to the table of a turn. The first ones get the room that there is.
fn apply_run(
    (store, turn): (&TableStore, &Turn<'_>),
    binding: &TableBinding,
    table: &str,
    run: &[Entry<'_>],
    now_ns: u64,
) -> AdditionCounts {
    let wanted: Vec<(IpAddr, u8)> = run.iter().map(Entry::prefix).collect();
    let (family, (updates, timeout_ms)) = (run[0].adder.family, run[0].adder.how());
    let Ok(fitting) = store.read(binding, table, |table| table.fitting(&wanted)) else {
        return AdditionCounts { overflow: wanted.len() as u64, ..AdditionCounts::default() };
    };
    let refused = wanted.len() - fitting.len();
    let entries = &set(family, &fitting);
    // 0 is no timeout, also if the declaration of the active policy has one.
    let timeout_ms = Some(timeout_ms.unwrap_or(0));
    let change = match updates {
        true => TableChange::Update { entries, timeout_ms },
        false => TableChange::Add { entries, timeout_ms },
    };
    let done = store.change_in_turn(turn, (binding, table), (change, Visibility::Gradual), now_ns);
    store.count_refused(table, refused as u64);
    let (Changed { changed, refreshed, .. }, lost) = match done {
        Ok(changed) => (changed, 0),
        Err(_) => (Changed::default(), fitting.len()),
    };
    let [added, updated, overflow, table_full] = [changed, refreshed, lost, refused].map(|count| count as u64);
    AdditionCounts { added, updated, overflow, table_full, protected: 0 }
}

fn set(family: Family, prefixes: &[(IpAddr, u8)]) -> Table {
    let mut entries = Entries::new(family, Kind::Set);
    for &(addr, length) in prefixes {
        entries.insert_prefix(addr, length, None).expect("an adder's prefixes fit its table");
    }
    entries.settle()
}

/// The queues of all generations on interfaces, and what was done with their additions.
pub struct Additions {
    store: Arc<TableStore>,
    sources: Mutex<Vec<Source>>,
    /// Held while additions are applied.
    applied: Mutex<Applied>,
}

/// What was done with additions so far.
#[derive(Default)]
struct Applied {
    counts: AdditionCounts,
    /// Additions of earlier ticks to tables that others changed for long, with their adders.
    late: Vec<(Adders, Vec<(u32, u128)>)>,
}

/// A queue, and the tables that its additions change.
struct Source {
    rings: Arc<AdditionRings>,
    adders: Adders,
    /// Additions that were lost before the last collection.
    lost: u64,
}

impl Additions {
    /// No queues yet.
    pub fn new(store: Arc<TableStore>) -> Self {
        Additions { store, sources: Mutex::default(), applied: Mutex::default() }
    }

    /// A queue for one worker. It is collected as long as the worker has it, and once more after that.
    pub fn queue(&self, adders: &Adders) -> Arc<AdditionRings> {
        let rings = Arc::new(AdditionRings::default());
        self.register(rings.clone(), adders);
        rings
    }

    /// Collects from queues as long as the caller has them, and once more after that.
    pub fn register(&self, rings: Arc<AdditionRings>, adders: &Adders) {
        lock(&self.sources).push(Source { rings, adders: adders.clone(), lost: 0 });
    }

    /// Empties all queues and applies their additions. Timeouts begin at `now_ns`. To be called once in a tick, by one
    /// thread. A table that others change for long gets its additions in a later tick.
    pub fn collect(&self, now_ns: u64) {
        let mut applied = lock(&self.applied);
        let (mut batch, mut adders) = (Batch::default(), Vec::new());
        for (of, late) in applied.late.drain(..) {
            late.into_iter().for_each(|(adder, prefix)| batch.add(adders.len(), adder, prefix));
            adders.push(of);
        }
        lock(&self.sources).retain_mut(|source| {
            // Read before the queue is emptied, so that nothing is left in a queue that is forgotten.
            let is_used = Arc::strong_count(&source.rings) > 1;
            let index = adders.len();
            let lost = source.rings.take(|addition| batch.add(index, addition.adder, addition.key()));
            batch.overflow += lost - std::mem::replace(&mut source.lost, lost);
            adders.push(source.adders.clone());
            is_used
        });
        if batch.pending.is_empty() && batch.overflow == 0 {
            return;
        }
        applied.counts = applied.counts.plus(batch.apply(&self.store, &adders, now_ns));
        applied.late = batch
            .pending
            .chunk_by(|one, next| one.0 == next.0)
            .map(|of| (adders[of[0].0].clone(), of.iter().map(|&(_, adder, prefix)| (adder, prefix)).collect()))
            .collect();
    }

    /// Whether some queue may get additions. If not, [`Additions::collect`] need not be called.
    pub fn has_queues(&self) -> bool {
        !lock(&self.sources).is_empty() || !lock(&self.applied).late.is_empty()
    }

    /// Goes on counting from what the program before this one in its process has counted.
    pub(crate) fn continue_with(&self, counts: AdditionCounts) {
        let mut applied = lock(&self.applied);
        applied.counts = applied.counts.plus(counts);
    }

    /// What additions did since the start.
    pub fn counts(&self) -> AdditionCounts {
        lock(&self.applied).counts
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The entries that a policy lists in a table, and their timeout.
#[derive(Clone)]
pub struct ListedEntries {
    /// The name of the table.
    pub table: String,
    /// The entries.
    pub entries: Arc<Table>,
    /// The timeout of the entries, ms.
    pub timeout_ms: u64,
}

/// The tables of one policy, which change in the time of replayed packets.
#[derive(Clone)]
pub struct ReplayedTables {
    /// The state of the tables, which only this replay has. It knows no timeouts of tables, only of entries.
    pub store: Arc<TableStore>,
    /// The program's adders.
    pub adders: Adders,
    /// Entries whose timeouts begin with the first packet.
    pub listed: Vec<ListedEntries>,
}

/// Applies the additions of a replay at the ends of ticks.
pub struct Replay {
    tables: ReplayedTables,
    /// The tick of the last packet; `None` before the first.
    now: Option<u64>,
    batch: Batch,
    counts: AdditionCounts,
}

impl Replay {
    /// Begins before the first packet.
    pub fn new(tables: ReplayedTables) -> Self {
        Replay { tables, now: None, batch: Batch::default(), counts: AdditionCounts::default() }
    }

    /// The tick of a packet that was received at `time_ns`. The clock never goes back.
    pub fn tick_of(&self, time_ns: u64) -> u64 {
        tick(time_ns).max(self.now.unwrap_or(0))
    }

    /// Advances to a tick.
    ///
    /// # Errors
    /// A table that the policy lists cannot hold its own entries.
    pub fn advance(&mut self, next: u64) -> Result<(), TableError> {
        let ReplayedTables { store, adders, listed } = &self.tables;
        match self.now {
            None => {
                for ListedEntries { table, entries, timeout_ms } in listed {
                    let change = TableChange::Update { entries, timeout_ms: Some(*timeout_ms) };
                    store.change(&adders.binding, table, change, next * TICK_NS)?;
                }
            }
            Some(now) if next > now => {
                let end_ns = (now + 1) * TICK_NS;
                store.expire(end_ns);
                self.counts = self.counts.plus(self.batch.apply(store, std::slice::from_ref(adders), end_ns));
                store.expire(next * TICK_NS);
            }
            Some(_) => return Ok(()),
        }
        self.now = Some(next);
        Ok(())
    }

    /// Adds what the packets of this tick add, in their order.
    pub fn add(&mut self, additions: &[Addition]) {
        additions.iter().for_each(|addition| self.batch.add(0, addition.adder, addition.key()));
    }

    /// What additions did up to the last tick that has ended.
    pub fn counts(&self) -> AdditionCounts {
        AdditionCounts { overflow: self.counts.overflow + self.batch.overflow, ..self.counts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Declared;
    use crate::tables::{DynamicBounds, ImageDeclared, Member};
    use weir_abi::Layout;

    #[test]
    fn additions_to_a_table_that_others_change_are_late_and_not_lost() {
        let store = Arc::new(TableStore::default());
        let declared = |name: &str| {
            let (table, layout) = (Arc::new(set(Family::Ipv4, &[])), Layout::RankLeaf);
            let image = Arc::new(table.build(layout).expect("an empty table has an image"));
            let dynamic = Some(DynamicBounds { size: 9, timeout_ms: None });
            let members = vec![Member { name: name.to_owned(), table, dynamic }];
            Declared { name: name.to_owned(), declaration: ImageDeclared { members, layout, image, counted: false } }
        };
        let binding = store.bind(vec![declared("one"), declared("two")], 0).expect("there is memory");
        let adder = |table: &str| {
            let table = table.to_owned();
            TableAdder {
                table,
                family: Family::Ipv4,
                length: 32,
                timeout_ms: None,
                updates: false,
                protected: [].into(),
            }
        };
        let adders = Adders { adders: [adder("one"), adder("two")].into(), binding: binding.clone() };
        let additions = Additions::new(store.clone());
        let queue = additions.queue(&adders);
        let push = |adder, low| queue.push(&Addition { low, adder, ..Addition::default() });
        let counts = || ["one", "two"].map(|name| store.read(&binding, name, |table| table.count()));

        let turn = store.turn("one");
        (1..4).for_each(|low| push(0, low));
        push(1, 1);
        additions.collect(0);
        assert_eq!(counts(), [Ok(0), Ok(1)]);
        push(0, 3);
        push(0, 4);
        additions.collect(TICK_NS);
        assert_eq!((counts(), additions.counts().added), ([Ok(0), Ok(1)], 1));
        drop(turn);
        drop(queue);
        additions.collect(2 * TICK_NS);
        assert_eq!((counts(), additions.has_queues()), ([Ok(4), Ok(1)], false));
        assert_eq!(additions.counts(), AdditionCounts { added: 5, ..AdditionCounts::default() });
    }
}
