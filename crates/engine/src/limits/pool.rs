//! Which bucket is whose.
//!
//! A generation asks for the buckets of its limiters before it is compiled into images. What an older one that still stands ready holds
//! under the same name (the list, the direction, the place among statements, and the prefix or label) it is given again; the rest is new and
//! full. A bucket is free again when no generation holds it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use weir_abi::limit::ticks;
use weir_abi::{Family, each};
use weir_tables::LimitTable;
use weir_tables::limit_image::Logged;

use super::buckets::Buckets;
use super::counts::{Counted, Counts, Place};
use crate::EngineError;

/// What tells the buckets of a limiter from each other, in the order of its entries.
#[derive(Clone, Debug)]
pub enum Names {
    /// There is only one.
    One,
    /// One a prefix, after one for all other addresses.
    Prefixes(Arc<LimitTable>, Family),
    /// One a label, after one that nobody uses.
    Labels(Arc<[Box<str>]>),
}

impl Wanted {
    /// Buckets that they need, and those that stay unused before them.
    pub fn buckets(&self) -> usize {
        self.names.len() * self.width as usize + self.kind.alignment() - 1
    }
}

impl Names {
    /// Number of entries.
    pub fn len(&self) -> usize {
        match self {
            Names::One => 1,
            Names::Prefixes(table, family) => 1 + table.len(*family),
            Names::Labels(labels) => 1 + labels.len(),
        }
    }

    /// Whether there are none: never.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Calls with each pair of entries, of these and of others, that are the same.
    fn shared(&self, others: &Names, mut same: impl FnMut(usize, usize)) {
        same(0, 0);
        match (self, others) {
            (Names::Prefixes(table, family), Names::Prefixes(other, of)) if family == of => {
                table.shared(other, *family, |own, other| same(own as usize, other as usize));
            }
            (Names::Labels(labels), Names::Labels(others)) => {
                let known: std::collections::HashMap<&str, usize> =
                    others.iter().enumerate().map(|(index, label)| (&**label, 1 + index)).collect();
                for (index, label) in labels.iter().enumerate() {
                    if let Some(&other) = known.get(&**label) {
                        same(1 + index, other);
                    }
                }
            }
            _ => {}
        }
    }
}

/// What the words of buckets mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One bucket each ([`weir_abi::limit`]).
    Buckets,
    /// A table for addresses ([`weir_abi::each`]), whose ticks are 2^`coarse` usual ones.
    Each {
        /// As [`weir_abi::LimitProfile::coarse`].
        coarse: u64,
    },
}

impl Kind {
    /// The word of a full bucket.
    fn full(self, now_ns: u64) -> u64 {
        match self {
            Kind::Buckets => ticks(now_ns),
            Kind::Each { coarse } => each::empty(each::ticks(now_ns, coarse)),
        }
    }

    /// Where such buckets may begin: sets are cache lines.
    fn alignment(self) -> usize {
        match self {
            Kind::Buckets => 1,
            Kind::Each { .. } => each::WAYS,
        }
    }
}

/// Limiters of one list that ask for buckets.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// What they are called, the same in every generation that has them.
    pub name: String,
    /// Their entries.
    pub names: Names,
    /// How many limiters there are: each entry has as many neighbouring buckets. Of a table for addresses, its words.
    pub width: u32,
    /// What the buckets' words mean.
    pub kind: Kind,
}

/// The first bucket of each entry.
#[derive(Debug)]
struct HeldBy {
    wanted: Wanted,
    slots: Vec<u32>,
}

/// The buckets of a generation, given back when dropped.
#[derive(Debug)]
pub struct Held {
    limiters: Vec<HeldBy>,
    state: Weak<Mutex<State>>,
}

impl Held {
    /// The first bucket of each entry of what was wanted at this place.
    pub fn slots(&self, wanted: usize) -> &[u32] {
        &self.limiters[wanted].slots
    }

    /// Fills all buckets that it holds, among `buckets`; nobody charges them meanwhile.
    pub(crate) fn fill(&self, buckets: &Buckets, now_ns: u64) {
        for HeldBy { wanted, slots } in &self.limiters {
            let full = wanted.kind.full(now_ns);
            let all = slots.iter().flat_map(|&first| first..first + wanted.width);
            all.for_each(|slot| buckets.set(slot, full));
        }
    }

    /// What the entries there are.
    pub fn names(&self, wanted: usize) -> &Names {
        &self.limiters[wanted].wanted.names
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let Some(state) = self.state.upgrade() else { return };
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        for limiter in &self.limiters {
            limiter.slots.iter().for_each(|&slot| state.give_back(slot, limiter.wanted.width));
        }
    }
}

/// Buckets and their holders.
#[derive(Clone)]
pub struct Pool {
    seed: u32,
    buckets: Arc<Buckets>,
    counts: Arc<Counts>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    /// By slot, below the highest ever given: how many generations hold it and its neighbours. Counted at the first of them.
    holders: Vec<u16>,
    /// By width, the first of neighbours that nobody holds.
    free: BTreeMap<u32, Vec<u32>>,
    /// Oldest first.
    standing: Vec<Weak<Held>>,
}

impl State {
    fn give_back(&mut self, slot: u32, width: u32) {
        let holders = &mut self.holders[slot as usize];
        *holders -= 1;
        if *holders == 0 {
            self.free.entry(width).or_default().push(slot);
        }
    }

    /// The first of so many neighbours that nobody holds.
    fn take(&mut self, Wanted { width, kind, .. }: &Wanted) -> u32 {
        let free = self.free.get_mut(width).and_then(|free| {
            let fits = free.iter().rposition(|first| first.is_multiple_of(kind.alignment() as u32))?;
            Some(free.swap_remove(fits))
        });
        free.unwrap_or_else(|| {
            let first = self.holders.len().next_multiple_of(kind.alignment());
            self.holders.resize(first + *width as usize, 0);
            first as u32
        })
    }

    /// How many more buckets limiters need than are free in their width and as they must begin.
    fn missing(&self, limiters: &[HeldBy]) -> usize {
        let mut wanted: BTreeMap<(u32, u32), usize> = BTreeMap::new();
        for HeldBy { wanted: of, slots } in limiters {
            let key = (of.width, of.kind.alignment() as u32);
            *wanted.entry(key).or_default() += slots.iter().filter(|&&slot| slot == 0).count();
        }
        let beyond = |((width, alignment), count): ((u32, u32), usize)| {
            let fits = |free: &Vec<u32>| free.iter().filter(|first| first.is_multiple_of(alignment)).count();
            let more = count.saturating_sub(self.free.get(&width).map_or(0, fits));
            // With what may be left out before each.
            more * (width as usize + alignment as usize - 1)
        };
        wanted.into_iter().map(beyond).sum()
    }
}

impl Pool {
    /// Gives out these buckets, all but the first. Addresses are hashed with the seed, which nobody outside should know.
    pub fn new(seed: u32, buckets: Buckets) -> Self {
        let state = State { holders: vec![1], free: BTreeMap::new(), standing: vec![] };
        Pool { seed, buckets: Arc::new(buckets), counts: Arc::default(), state: Arc::new(Mutex::new(state)) }
    }

    /// What addresses are hashed with.
    pub fn seed(&self) -> u32 {
        self.seed
    }

    /// The buckets.
    pub fn buckets(&self) -> &Arc<Buckets> {
        &self.buckets
    }

    /// Buckets for the limiters of a generation; those that no other has are full at `now_ns`.
    ///
    /// # Errors
    /// There are not as many left. Nothing is held then.
    pub fn hold(&self, wanted: Vec<Wanted>, now_ns: u64) -> Result<Arc<Held>, EngineError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.standing.retain(|held| held.strong_count() > 0);
        let standing: Vec<Arc<Held>> = state.standing.iter().rev().filter_map(Weak::upgrade).collect();
        let mut limiters: Vec<HeldBy> = wanted.into_iter().map(|wanted| inherit(wanted, &standing)).collect();
        let missing = state.missing(&limiters);
        let left = self.buckets.count().saturating_sub(state.holders.len());
        if missing > left {
            let advice = if self.buckets.map().is_some() { "; start Weir with a larger --limits-room" } else { "" };
            let problem = format!("{left} are left, {missing} more are needed{advice}");
            drop(state);
            return Err(EngineError::Buckets { count: self.buckets.count(), problem });
        }
        for limiter in &mut limiters {
            let HeldBy { wanted, slots } = limiter;
            let full = wanted.kind.full(now_ns);
            for slot in slots {
                if *slot == 0 {
                    *slot = state.take(wanted);
                    (*slot..*slot + wanted.width).for_each(|slot| {
                        self.buckets.set(slot, full);
                        self.counts.clear(slot);
                    });
                }
                state.holders[*slot as usize] += 1;
            }
        }
        let held = Arc::new(Held { limiters, state: Arc::downgrade(&self.state) });
        state.standing.push(Arc::downgrade(&held));
        // Last owners of older generations must not give back while the lock is held.
        drop(state);
        drop(standing);
        Ok(held)
    }

    /// What limiters of a generation count for the buckets that it holds, by their numbers; `None` if none of them counts.
    ///
    /// # Errors
    /// There is no memory for counts.
    pub fn count(&self, held: &Arc<Held>, limiters: Vec<Place>) -> Result<Option<Counted>, EngineError> {
        let counted = Counted::new(self.counts.clone(), held.clone(), limiters);
        if counted.logged() == Logged::Nothing {
            return Ok(None);
        }
        self.counts.make(&self.buckets.0, counted.logged())?;
        Ok(Some(counted))
    }

    /// Brings buckets that nobody charges to the present ([`Buckets::refresh`]). None is given out meanwhile: what nobody holds is filled
    /// when it is given, and only who gives it out knows what its words mean.
    pub fn refresh(&self, now_ns: u64) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let given = state.holders.len() as u32;
        let standing: Vec<Arc<Held>> = state.standing.iter().filter_map(Weak::upgrade).collect();
        let mut begin = 0;
        for (addresses, coarse) in tables(&standing) {
            self.buckets.refresh(begin..addresses.start, now_ns);
            self.buckets.refresh_addresses(addresses.clone(), now_ns, coarse);
            begin = addresses.end;
        }
        self.buckets.refresh(begin..given, now_ns);
        // Last owners of generations must not give back while the lock is held.
        drop(state);
        drop(standing);
    }
}

/// Tables for addresses that standing generations have, in the order of their buckets, and how coarse their ticks are.
fn tables(standing: &[Arc<Held>]) -> Vec<(Range<u32>, u64)> {
    let mut tables = Vec::new();
    for HeldBy { wanted, slots } in standing.iter().flat_map(|held| &held.limiters) {
        let Kind::Each { coarse } = wanted.kind else { continue };
        tables.extend(slots.iter().map(|&first| (first..first + wanted.width, coarse)));
    }
    tables.sort_unstable_by_key(|(slots, _)| slots.start);
    tables.dedup();
    tables
}

/// The buckets that standing generations, the newest first, have under the same names; 0 for those that none has.
fn inherit(wanted: Wanted, standing: &[Arc<Held>]) -> HeldBy {
    let mut slots = vec![0; wanted.names.len()];
    for older in standing {
        let same = |HeldBy { wanted: of, .. }: &&HeldBy| {
            of.name == wanted.name && of.width == wanted.width && of.kind == wanted.kind
        };
        let Some(of_older) = older.limiters.iter().find(same) else { continue };
        wanted.names.shared(&of_older.wanted.names, |own, other| {
            if slots[own] == 0 {
                slots[own] = of_older.slots[other];
            }
        });
    }
    HeldBy { wanted, slots }
}
