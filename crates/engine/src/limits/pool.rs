//! Assigns buckets to limiters.
//!
//! A generation requests the buckets of its limiters before its images are built. It gets the buckets that a previous,
//! still loaded generation holds under the same name. The name consists of the list, the direction, the position among
//! statements, and the prefix or label. Other buckets are new and full. A bucket is free again when no generation holds
//! it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use weir_abi::limit::ticks;
use weir_abi::{Family, each};
use weir_tables::LimitTable;
use weir_tables::limit_image::Logged;

use super::buckets::Buckets;
use super::counts::{Counted, Counts, LimiterBuckets};
use crate::EngineError;

/// The names of a limiter's buckets, in the order of its entries.
#[derive(Clone, Debug)]
pub enum Names {
    /// A single bucket.
    One,
    /// One bucket for all other addresses, then one for each prefix.
    Prefixes(Arc<LimitTable>, Family),
    /// An unused bucket, then one for each label.
    Labels(Arc<[Box<str>]>),
}

impl Wanted {
    /// Number of buckets needed, including unused ones for alignment.
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

    /// Whether there are no entries, which never occurs.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Calls `same` for each pair of entries, of these names and of others, with equal names.
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

/// The meaning of the words of buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Each word is a bucket ([`weir_abi::limit`]).
    Buckets,
    /// The words are a table for addresses ([`weir_abi::each`]), with ticks of 2^`coarse` usual ticks.
    Each {
        /// See [`weir_abi::LimitProfile::coarse`].
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

    /// Alignment of the first bucket in words: sets are cache lines.
    fn alignment(self) -> usize {
        match self {
            Kind::Buckets => 1,
            Kind::Each { .. } => each::WAYS,
        }
    }
}

/// A request for the buckets of limiters of one list.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The name of the limiters, the same in every generation.
    pub name: String,
    /// The names of their entries.
    pub names: Names,
    /// Number of limiters: each entry has this many neighbouring buckets. For a table of addresses, its number of
    /// words.
    pub width: u32,
    /// The meaning of the words.
    pub kind: Kind,
}

/// A request with its buckets: the first one of each entry.
#[derive(Debug)]
struct HeldBy {
    wanted: Wanted,
    slots: Vec<u32>,
}

/// The buckets of a generation. They are released on drop.
#[derive(Debug)]
pub struct Held {
    limiters: Vec<HeldBy>,
    state: Weak<Mutex<State>>,
}

impl Held {
    /// The first bucket of each entry of request `wanted`.
    pub fn slots(&self, wanted: usize) -> &[u32] {
        &self.limiters[wanted].slots
    }

    /// Fills all held buckets among `buckets`. No program charges them meanwhile.
    pub(crate) fn fill(&self, buckets: &Buckets, now_ns: u64) {
        for HeldBy { wanted, slots } in &self.limiters {
            let full = wanted.kind.full(now_ns);
            let all = slots.iter().flat_map(|&first| first..first + wanted.width);
            all.for_each(|slot| buckets.set(slot, full));
        }
    }

    /// The names of the entries of request `wanted`.
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

/// The buckets and their holders.
#[derive(Clone)]
pub struct Pool {
    seed: u32,
    buckets: Arc<Buckets>,
    counts: Arc<Counts>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    /// Number of generations that hold each run of neighbouring buckets, by its first slot. The length is the number of
    /// slots ever assigned.
    holders: Vec<u16>,
    /// Free runs of neighbouring buckets: their first slots, by width.
    free: BTreeMap<u32, Vec<u32>>,
    /// The generations that hold buckets, oldest first.
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

    /// Takes a free run of `width` neighbouring buckets. Returns the first.
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

    /// Number of new buckets that limiters need, beyond the free ones of their width and alignment.
    fn missing(&self, limiters: &[HeldBy]) -> usize {
        let mut wanted: BTreeMap<(u32, u32), usize> = BTreeMap::new();
        for HeldBy { wanted: of, slots } in limiters {
            let key = (of.width, of.kind.alignment() as u32);
            *wanted.entry(key).or_default() += slots.iter().filter(|&&slot| slot == 0).count();
        }
        let beyond = |((width, alignment), count): ((u32, u32), usize)| {
            let fits = |free: &Vec<u32>| free.iter().filter(|first| first.is_multiple_of(alignment)).count();
            let more = count.saturating_sub(self.free.get(&width).map_or(0, fits));
            // Includes the buckets that alignment may leave unused before each run.
            more * (width as usize + alignment as usize - 1)
        };
        wanted.into_iter().map(beyond).sum()
    }
}

impl Pool {
    /// A pool of these buckets, all but the first. `seed` is the hash seed of addresses, which must be unpredictable.
    pub fn new(seed: u32, buckets: Buckets) -> Self {
        let state = State { holders: vec![1], free: BTreeMap::new(), standing: vec![] };
        Pool { seed, buckets: Arc::new(buckets), counts: Arc::default(), state: Arc::new(Mutex::new(state)) }
    }

    /// The hash seed of addresses.
    pub fn seed(&self) -> u32 {
        self.seed
    }

    /// The buckets.
    pub fn buckets(&self) -> &Arc<Buckets> {
        &self.buckets
    }

    /// Assigns buckets to the limiters of a generation. Buckets that no other generation holds are full at `now_ns`.
    ///
    /// # Errors
    /// Not enough buckets are left. Nothing is assigned then.
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
        // If these are the last owners of older generations, they release buckets, which takes the lock.
        drop(state);
        drop(standing);
        Ok(held)
    }

    /// The counts of a generation's limiters for the buckets that it holds, by limiter number; `None` if no limiter
    /// counts.
    ///
    /// # Errors
    /// There is no memory for counts.
    pub fn count(&self, held: &Arc<Held>, limiters: Vec<LimiterBuckets>) -> Result<Option<Counted>, EngineError> {
        let counted = Counted::new(self.counts.clone(), held.clone(), limiters);
        if counted.logged() == Logged::Nothing {
            return Ok(None);
        }
        self.counts.make(&self.buckets.0, counted.logged())?;
        Ok(Some(counted))
    }

    /// Sets words in the past to the present ([`Buckets::refresh`]). No bucket is assigned meanwhile: assignment fills
    /// buckets, and decides the meaning of their words.
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
        // If these are the last owners of generations, they release buckets, which takes the lock.
        drop(state);
        drop(standing);
    }
}

/// The tables for addresses that loaded generations hold, in the order of their buckets, with the coarseness of their
/// ticks.
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

/// Buckets that loaded generations, newest first, hold under the same names; 0 where there is none.
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
