//! Exact sets of IPv6 networks and hosts that change in place. The steps are as in exact.rs. Unlike there, a host takes
//! two words and an overflow entry takes three.
//!
//! A pair of words is free if its high half says so, and lookups match the high half first. An insert therefore writes
//! the low half first, and a removal writes only the high half. A reader that loads one half of the old pair and one of
//! the new would see a host that was never in the set. So a pair is reused in two steps, and each step waits for all
//! readers:
//!
//! ```text
//! remove           high = free               readers may have loaded the old high half before this store
//! readers passed   low  = ff..ff             no host in a pair has this low half
//! readers passed   the pair may be used      no reader holds the old low half any more
//! insert           low, then high            a reader sees ff..ff or the new low half: the new host, or none
//! ```
//! The kind of an overflow entry says whether it is free. It is written last and read first. A free entry may be reused
//! after all readers have passed once. A network is one word, and its slot can be reused at once.
//!
//! A lookup searches for the network and then for the host. If a host were removed just after its network was inserted,
//! a reader between the two searches could find neither. The same holds with network and host exchanged. So a key is
//! removed in place only if all readers have passed since a key of the other kind was inserted. Otherwise the table is
//! rebuilt.

use std::collections::{HashMap, HashSet};

use crate::cells::CellsMut;
use crate::layout::exact_set6::{Exact6Buckets, FREE, Key, OVERFLOWED, WORD_BYTES};
use crate::live::epochs::{Quiescence, Unlinked};
use crate::live::exact::{Full, MARKED_ONE_IN};
use crate::live::rib::Net;
use crate::prefix::Prefix6;

/// What to do with a pair or entry when all readers have passed.
enum Reclaim {
    /// Overwrite the low half of the pair.
    Forget(usize),
    /// Reuse the pair or the entry.
    Reuse(usize),
    /// All readers began after this key was inserted.
    Settle(Young),
}

/// A recently inserted key that some readers may not have seen: its words (1 for a network, 2 for a host) and its high
/// half.
type Young = (usize, u64);

/// Limit on steps that wait for readers. More accumulate only if readers are stuck in a burst.
const STEPS_MAX: usize = 1 << 16;

/// The writer's state of one set image.
pub(super) struct Exact6Writer {
    buckets: Exact6Buckets,
    /// Entries in the overflow of each bucket that has the mark, by the bucket's byte offset.
    overflowed: HashMap<usize, u32>,
    /// Above this number of marks, lookups are faster in a rebuilt image.
    marks_max: usize,
    /// Byte offsets of pairs and entries that are free but cannot be reused yet.
    resting: HashSet<usize>,
    /// Number of young keys, by key.
    young: HashMap<Young, u32>,
    deferred: Unlinked<Reclaim>,
}

impl Exact6Writer {
    pub fn new(cells: &impl CellsMut, buckets: Exact6Buckets) -> Self {
        let mut overflowed = HashMap::new();
        for at in buckets.all_entries() {
            let entry = [0, 1, 2].map(|word| cells.u64(at + word * WORD_BYTES));
            let bucket =
                Key::of_entry(entry).filter(|key| !key.looks_like_a_mark()).and_then(|key| buckets.bucket(key));
            if let Some(bucket) = bucket {
                *overflowed.entry(bucket).or_default() += 1;
            }
        }
        let marks_max = (buckets.count() / MARKED_ONE_IN).max(2 * overflowed.len());
        let (resting, young) = (HashSet::new(), HashMap::new());
        Exact6Writer { buckets, overflowed, marks_max, resting, young, deferred: Unlinked::default() }
    }

    /// Inserts or removes a network or host.
    pub fn change(&mut self, cells: &impl CellsMut, readers: &impl Quiescence, net: Net, new: u32) -> Result<(), Full> {
        let key = Key::of(&Prefix6 { addr: net.first, len: net.len, label: 1 });
        let key = key.expect("the prefix was checked");
        match new {
            0 => self.remove(cells, readers, key),
            _ => self.insert(cells, readers, key),
        }
    }

    /// Inserts a key that the set does not hold.
    pub fn insert(&mut self, cells: &impl CellsMut, readers: &impl Quiescence, key: Key) -> Result<(), Full> {
        self.reclaim(cells, readers);
        if self.deferred.len() > STEPS_MAX {
            return Err(Full);
        }
        self.place_key(cells, readers, key)?;
        let young = (key.words(), key.entry()[1]);
        *self.young.entry(young).or_default() += 1;
        self.deferred.push(readers, Reclaim::Settle(young));
        Ok(())
    }

    fn place_key(&mut self, cells: &impl CellsMut, readers: &impl Quiescence, key: Key) -> Result<(), Full> {
        // A set built without keys of this kind has no bucket for them.
        let bucket = self.buckets.bucket(key).ok_or(Full)?;
        if key.looks_like_a_mark() {
            return self.insert_overflow(cells, key);
        }
        let is_free = |&at: &usize| cells.u64(at) == FREE && !self.resting.contains(&at);
        if let Some(free) = self.buckets.slots(bucket, key).find(is_free) {
            let [_, high, low] = key.entry();
            if key.words() == 2 {
                cells.set_u64(free + WORD_BYTES, low);
            }
            cells.set_u64(free, high);
            return Ok(());
        }
        let last = self.buckets.slots(bucket, key).next_back().expect("a bucket has slots");
        if cells.u64(last) != OVERFLOWED && self.overflowed.len() >= self.marks_max {
            return Err(Full);
        }
        let driven_out = match (cells.u64(last), key) {
            (OVERFLOWED, _) => return self.insert_overflow(cells, key),
            (FREE, _) => None,
            (high, Key::Net(_)) => Some(Key::Net(high)),
            (high, Key::Host(..)) => Some(Key::Host(high, cells.u64(last + WORD_BYTES))),
        };
        if let Some(driven_out) = driven_out {
            self.insert_overflow(cells, driven_out)?;
        }
        if let Err(full) = self.insert_overflow(cells, key) {
            if let Some(driven_out) = driven_out {
                self.remove_overflow(cells, readers, driven_out);
            }
            return Err(full);
        }
        cells.set_u64(last, OVERFLOWED);
        if driven_out.is_some() {
            self.rest_slot(readers, last, key);
        }
        Ok(())
    }

    /// Removes a key that the set holds.
    pub fn remove(&mut self, cells: &impl CellsMut, readers: &impl Quiescence, key: Key) -> Result<(), Full> {
        self.reclaim(cells, readers);
        let other_kind = 3 - key.words();
        if self.young.contains_key(&(other_kind, key.entry()[1])) {
            return Err(Full);
        }
        self.take_key(cells, readers, key);
        Ok(())
    }

    fn take_key(&mut self, cells: &impl CellsMut, readers: &impl Quiescence, key: Key) {
        let Some(bucket) = self.buckets.bucket(key) else { return };
        if !key.looks_like_a_mark() {
            let [_, high, low] = key.entry();
            let holds = |&at: &usize| cells.u64(at) == high && (key.words() == 1 || cells.u64(at + WORD_BYTES) == low);
            if let Some(at) = self.buckets.slots(bucket, key).find(holds) {
                cells.set_u64(at, FREE);
                return self.rest_slot(readers, at, key);
            }
        }
        self.remove_overflow(cells, readers, key);
        if !key.looks_like_a_mark() && !self.overflowed.contains_key(&bucket) {
            let last = self.buckets.slots(bucket, key).next_back().expect("a bucket has slots");
            cells.set_u64(last, FREE);
        }
    }

    /// Whether any step waits for readers.
    pub fn is_waiting(&self) -> bool {
        self.deferred.len() > 0
    }

    /// Does the steps for which all readers have passed.
    pub fn reclaim(&mut self, cells: &impl CellsMut, readers: &impl Quiescence) {
        while let Some(step) = self.deferred.pop(readers) {
            match step {
                Reclaim::Forget(pair) => {
                    cells.set_u64(pair + WORD_BYTES, FREE);
                    self.deferred.push(readers, Reclaim::Reuse(pair));
                }
                Reclaim::Reuse(at) => {
                    self.resting.remove(&at);
                }
                Reclaim::Settle(young) => {
                    if let Some(count) = self.young.get_mut(&young) {
                        *count -= 1;
                        if *count == 0 {
                            self.young.remove(&young);
                        }
                    }
                }
            }
        }
    }

    fn rest_slot(&mut self, readers: &impl Quiescence, at: usize, key: Key) {
        if key.words() == 2 {
            self.resting.insert(at);
            self.deferred.push(readers, Reclaim::Forget(at));
        }
    }

    fn insert_overflow(&mut self, cells: &impl CellsMut, key: Key) -> Result<(), Full> {
        let is_free = |&at: &usize| cells.u64(at) == 0 && !self.resting.contains(&at);
        let free = self.buckets.entries(key).find(is_free).ok_or(Full)?;
        let [kind, high, low] = key.entry();
        cells.set_u64(free + WORD_BYTES, high);
        cells.set_u64(free + 2 * WORD_BYTES, low);
        cells.set_u64(free, kind);
        if let Some(bucket) = self.buckets.bucket(key).filter(|_| !key.looks_like_a_mark()) {
            *self.overflowed.entry(bucket).or_default() += 1;
        }
        Ok(())
    }

    fn remove_overflow(&mut self, cells: &impl CellsMut, readers: &impl Quiescence, key: Key) {
        let Some(at) = self.buckets.entries(key).find(|&at| self.buckets.is(cells, at, key)) else { return };
        cells.set_u64(at, 0);
        self.resting.insert(at);
        self.deferred.push(readers, Reclaim::Reuse(at));
        if let Some(bucket) = self.buckets.bucket(key)
            && let Some(entries) = self.overflowed.get_mut(&bucket)
        {
            *entries -= 1;
            if *entries == 0 {
                self.overflowed.remove(&bucket);
            }
        }
    }
}
