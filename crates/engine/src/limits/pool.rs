//! Which bucket is whose.
//!
//! A generation asks for the buckets of its limiters before it is compiled into images. What an older one that still stands ready holds
//! under the same name (the list, the direction, the place among statements, and the prefix or label) it is given again; the rest is new and
//! full. A bucket is free again when no generation holds it.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use weir_abi::Family;
use weir_tables::LimitTable;

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

/// A limiter that asks for buckets.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// What it is called, the same in every generation that has it.
    pub name: String,
    /// Its entries.
    pub names: Names,
}

/// Buckets of a limiter, by entry.
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
    /// The buckets of a limiter, by entry.
    pub fn slots(&self, limiter: usize) -> &[u32] {
        &self.limiters[limiter].slots
    }

    /// What a limiter's entries are.
    pub fn names(&self, limiter: usize) -> &Names {
        &self.limiters[limiter].wanted.names
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let Some(state) = self.state.upgrade() else { return };
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        self.limiters.iter().flat_map(|limiter| &limiter.slots).for_each(|&slot| state.give_back(slot));
    }
}

/// Buckets and their holders.
#[derive(Clone)]
pub struct Pool {
    buckets: Arc<Buckets>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    /// By slot, below the highest ever given: how many generations hold it.
    holders: Vec<u16>,
    free: Vec<u32>,
    /// Oldest first.
    standing: Vec<Weak<Held>>,
}

impl State {
    fn give_back(&mut self, slot: u32) {
        let holders = &mut self.holders[slot as usize];
        *holders -= 1;
        if *holders == 0 {
            self.free.push(slot);
        }
    }
}

impl Pool {
    /// Gives out these buckets, all but the first.
    pub fn new(buckets: Buckets) -> Self {
        let state = State { holders: vec![1], free: vec![], standing: vec![] };
        Pool { buckets: Arc::new(buckets), state: Arc::new(Mutex::new(state)) }
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
        let missing = limiters.iter().flat_map(|limiter| &limiter.slots).filter(|&&slot| slot == 0).count();
        let left = state.free.len() + self.buckets.count().saturating_sub(state.holders.len());
        if missing > left {
            let problem = format!("{left} are left, {missing} more are needed");
            drop(state);
            return Err(EngineError::Buckets { count: self.buckets.count(), problem });
        }
        for slot in limiters.iter_mut().flat_map(|limiter| &mut limiter.slots) {
            if *slot == 0 {
                *slot = state.free.pop().unwrap_or_else(|| {
                    state.holders.push(0);
                    state.holders.len() as u32 - 1
                });
                self.buckets.fill(*slot, now_ns);
            }
            state.holders[*slot as usize] += 1;
        }
        let held = Arc::new(Held { limiters, state: Arc::downgrade(&self.state) });
        state.standing.push(Arc::downgrade(&held));
        // Last owners of older generations must not give back while the lock is held.
        drop(state);
        drop(standing);
        Ok(held)
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
        let Some(of_older) = older.limiters.iter().find(|limiter| limiter.wanted.name == wanted.name) else { continue };
        wanted.names.shared(&of_older.wanted.names, |own, other| {
            if slots[own] == 0 {
                slots[own] = of_older.slots[other];
            }
        });
    }
    HeldBy { wanted, slots }
}
