//! Which bucket is whose.
//!
//! A generation asks for the buckets of its limiters before it is compiled into images. What an older one that still stands ready holds
//! under the same name (the list, the direction, the place among statements, and the prefix or label) it is given again; the rest is new and
//! full. A bucket is free again when no generation holds it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use weir_abi::Family;
use weir_tables::LimitTable;
use weir_tables::limit_image::Logged;

use super::counts::{Counted, Counts, Place};
use super::{Buckets, EngineError};

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
    /// Buckets that they need.
    pub fn buckets(&self) -> usize {
        self.names.len() * self.width as usize
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

/// Limiters of one list that ask for buckets.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// What they are called, the same in every generation that has them.
    pub name: String,
    /// Their entries.
    pub names: Names,
    /// How many limiters there are: each entry has as many neighbouring buckets.
    pub width: u32,
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
    fn take(&mut self, width: u32) -> u32 {
        self.free.get_mut(&width).and_then(Vec::pop).unwrap_or_else(|| {
            let first = self.holders.len();
            self.holders.resize(first + width as usize, 0);
            first as u32
        })
    }

    /// How many more buckets limiters need than are free in their width.
    fn missing(&self, limiters: &[HeldBy]) -> usize {
        let mut wanted: BTreeMap<u32, usize> = BTreeMap::new();
        for limiter in limiters {
            *wanted.entry(limiter.wanted.width).or_default() += limiter.slots.iter().filter(|&&slot| slot == 0).count();
        }
        let beyond = |(width, count): (u32, usize)| {
            let free = self.free.get(&width).map_or(0, Vec::len);
            count.saturating_sub(free) * width as usize
        };
        wanted.into_iter().map(beyond).sum()
    }
}

impl Pool {
    /// Gives out these buckets, all but the first.
    pub fn new(buckets: Buckets) -> Self {
        let state = State { holders: vec![1], free: BTreeMap::new(), standing: vec![] };
        Pool { buckets: Arc::new(buckets), counts: Arc::default(), state: Arc::new(Mutex::new(state)) }
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
            let problem = format!("{left} are left, {missing} more are needed");
            drop(state);
            return Err(EngineError::Buckets { count: self.buckets.count(), problem });
        }
        for limiter in &mut limiters {
            let width = limiter.wanted.width;
            for slot in &mut limiter.slots {
                if *slot == 0 {
                    *slot = state.take(width);
                    (*slot..*slot + width).for_each(|slot| {
                        self.buckets.fill(slot, now_ns);
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

    /// Brings buckets that nobody charges to the present ([`Buckets::refresh`]).
    pub fn refresh(&self, now_ns: u64) {
        let given = self.state.lock().unwrap_or_else(PoisonError::into_inner).holders.len();
        self.buckets.refresh(given as u32, now_ns);
    }
}

/// The buckets that standing generations, the newest first, have under the same names; 0 for those that none has.
fn inherit(wanted: Wanted, standing: &[Arc<Held>]) -> HeldBy {
    let mut slots = vec![0; wanted.names.len()];
    for older in standing {
        let same = |limiter: &&HeldBy| limiter.wanted.name == wanted.name && limiter.wanted.width == wanted.width;
        let Some(of_older) = older.limiters.iter().find(same) else { continue };
        wanted.names.shared(&of_older.wanted.names, |own, other| {
            if slots[own] == 0 {
                slots[own] = of_older.slots[other];
            }
        });
    }
    HeldBy { wanted, slots }
}
