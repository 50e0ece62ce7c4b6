//! Exact sets of IPv6 networks and hosts that change in place. Every change is a sequence of aligned stores, and
//! lookups are correct after each of them.
//!
//! ```text
//! insert, a free slot in the first bucket     slot = the key                                  the key is in
//! insert, a free slot in the second one       slot of the second bucket = the key             nothing changes
//!                                             filter bit of the first one                     the key is in
//! insert, no free slot                        overflow += the key                             nothing changes
//!                                             filter bit of the second bucket, then           nothing changes
//!                                             of the first one                                the key is in
//! remove                                      slot = free, or overflow -= the key             the key is out
//!   no other key went on by a filter bit      filter bit = 0                                  nothing changes
//! other members (fused sets)                  the key's word, or the entry's last word        the key has these members
//! ```
//! If a filter bit is set already, its store is left out. A key never moves. So a reader may load the words of a bucket
//! in any order, and must only load the next bucket or the overflow after the filter bit that leads there.
//!
//! A store of a slot keeps the filter bits in its word, which belong to the bucket.
//!
//! A pair of words is free if its first word says so. An insert therefore writes the high half first, and a removal
//! writes only the first word. A reader that loads one word of the old pair and one of the new would see a host that
//! was never in the set. So a pair is reused in two steps, and each step waits for all readers:
//!
//! ```text
//! remove           word = free               readers may have loaded the old word before this store
//! readers passed   high = ff..ff             no host in a pair has this high half
//! readers passed   the pair may be used      no reader holds the old high half any more
//! insert           high, then word           a reader sees ff..ff or the new high half: the new host, or none
//! ```
//! The kind of an overflow entry says whether it is free. It is written last and read first. A free entry may be reused
//! after all readers have passed once. A network is one word, and its slot can be reused at once.
//!
//! A lookup searches for the network and then for the host. If a host were removed just after its network was inserted,
//! a reader between the two searches could find neither. The same holds with network and host exchanged. So a key is
//! removed in place only if all readers have passed since a key of the other kind was inserted. Otherwise the table is
//! rebuilt. A member of fused sets that gets or loses a key is treated in the same way.

use std::collections::{HashMap, HashSet};

use crate::cells::CellsMut;
use crate::layout::exact_set6::{
    Exact6Buckets, FILTER, FilterBit, Key, KeyKind, MEMBERS_AT, NO_HOST, WORD_BYTES, Way, is_free, slots,
};
use crate::live::epochs::{Quiescence, Unlinked};
use crate::live::exact::Full;
use crate::live::rib::Net;
use crate::prefix::Prefix6;

/// What to do with a pair or entry when all readers have passed.
enum Reclaim {
    /// Overwrite the high half of the pair.
    Forget(usize),
    /// Reuse the pair or the entry.
    Reuse(usize),
    /// All readers began after this key was inserted.
    Settle(Young),
}

/// A recently inserted key that some readers may not have seen: its kind and its high half.
type Young = (KeyKind, u64);

/// Limit on steps that wait for readers. More accumulate only if readers are stuck in a burst.
const STEPS_MAX: usize = 1 << 16;

/// Up to one key for this many buckets may be in the overflow, or twice as many as when the image was built if that is
/// more. With more of them, lookups are faster in a rebuilt image.
const LEFT_ONE_IN: usize = 16;

/// The writer's state of one set image.
pub(super) struct Exact6Writer {
    buckets: Exact6Buckets,
    /// Number of keys that went on by each filter bit.
    went_on: HashMap<FilterBit, u32>,
    /// Number of keys in the overflow.
    left: usize,
    left_max: usize,
    /// Byte offsets of pairs and entries that are free but cannot be reused yet.
    resting: HashSet<usize>,
    /// Number of young keys, by key.
    young: HashMap<Young, u32>,
    deferred: Unlinked<Reclaim>,
}

impl Exact6Writer {
    pub fn new(cells: &impl CellsMut, buckets: Exact6Buckets) -> Self {
        let mut went_on: HashMap<FilterBit, u32> = HashMap::new();
        buckets.went_on(cells).for_each(|filter| *went_on.entry(filter).or_default() += 1);
        let entries = buckets.all_entries().map(|at| [0, 1, 2].map(|word| cells.u64(at + word * WORD_BYTES)));
        let mut left = 0;
        for key in entries.filter_map(Key::of_entry) {
            left += 1;
            for way in buckets.ways(key).into_iter().flatten().filter(|_| !key.is_only_in_overflow()) {
                *went_on.entry(way.filter).or_default() += 1;
            }
        }
        let left_max = (buckets.count() / LEFT_ONE_IN).max(2 * left);
        let (resting, young) = (HashSet::new(), HashMap::new());
        Exact6Writer { buckets, went_on, left, left_max, resting, young, deferred: Unlinked::default() }
    }

    /// Gives a network or host the members `new` (a bit each; 1 for one set). It has `old` now; 0 is none.
    pub fn change(
        &mut self,
        cells: &impl CellsMut,
        readers: &impl Quiescence,
        net: Net,
        (old, new): (u32, u32),
    ) -> Result<(), Full> {
        let key = Key::of(&Prefix6 { addr: net.first, len: net.len, label: 1 });
        let key = key.expect("the prefix was checked");
        self.reclaim(cells, readers);
        if old & !new != 0 && self.young.contains_key(&(key.kind().other(), key.high())) {
            return Err(Full);
        }
        if new & !old != 0 && self.deferred.len() > STEPS_MAX {
            return Err(Full);
        }
        match (old, new) {
            (0, members) => self.place_key(cells, key, members)?,
            (_, 0) => self.take_key(cells, readers, key),
            (_, members) => self.set_members(cells, key, members),
        }
        if new & !old != 0 {
            let young = (key.kind(), key.high());
            *self.young.entry(young).or_default() += 1;
            self.deferred.push(readers, Reclaim::Settle(young));
        }
        Ok(())
    }

    /// Changes the members of a key that fused sets hold.
    fn set_members(&self, cells: &impl CellsMut, key: Key, members: u32) {
        let words = self.buckets.words;
        for way in self.buckets.ways(key).into_iter().flatten().filter(|_| !key.is_only_in_overflow()) {
            let has = |&slot: &usize| self.buckets.of_slot(cells, slot, key, way).is_some();
            if let Some(slot) = slots(way.bucket, key.kind()).find(has) {
                return cells.set_u64(slot, cells.u64(slot) & FILTER | way.word | words.of_members(members));
            }
        }
        let has = |&entry: &usize| self.buckets.of_entry(cells, entry, key).is_some();
        if let Some(entry) = self.buckets.entries(key).find(has) {
            cells.set_u64(entry + MEMBERS_AT, words.entry_members(members));
        }
    }

    fn place_key(&mut self, cells: &impl CellsMut, key: Key, members: u32) -> Result<(), Full> {
        // A set built without keys of this kind has no bucket for them.
        let [first, second] = self.buckets.ways(key).ok_or(Full)?;
        if key.is_only_in_overflow() {
            return self.insert_overflow(cells, key, members);
        }
        if self.place_in(cells, key, members, first) {
            return Ok(());
        }
        if !self.place_in(cells, key, members, second) {
            self.insert_overflow(cells, key, members)?;
            self.go_on(cells, second.filter);
        }
        self.go_on(cells, first.filter);
        Ok(())
    }

    /// Places a key in a bucket; `false` if the bucket has no free slot.
    fn place_in(&self, cells: &impl CellsMut, key: Key, members: u32, way: Way) -> bool {
        let usable = |&at: &usize| is_free(cells.u64(at)) && !self.resting.contains(&at);
        let Some(free) = slots(way.bucket, key.kind()).find(usable) else { return false };
        if key.kind() == KeyKind::Host {
            cells.set_u64(free + WORD_BYTES, key.high());
        }
        cells.set_u64(free, cells.u64(free) & FILTER | way.word | self.buckets.words.of_members(members));
        true
    }

    /// Counts a key that went on from a bucket.
    fn go_on(&mut self, cells: &impl CellsMut, filter: FilterBit) {
        let keys = self.went_on.entry(filter).or_default();
        *keys += 1;
        if *keys == 1 {
            cells.set_u64(filter.at, cells.u64(filter.at) | filter.bit);
        }
    }

    /// Forgets a key that went on from a bucket.
    fn come_back(&mut self, cells: &impl CellsMut, filter: FilterBit) {
        let Some(keys) = self.went_on.get_mut(&filter) else { return };
        *keys -= 1;
        if *keys == 0 {
            self.went_on.remove(&filter);
            cells.set_u64(filter.at, cells.u64(filter.at) & !filter.bit);
        }
    }

    fn take_key(&mut self, cells: &impl CellsMut, readers: &impl Quiescence, key: Key) {
        let Some([first, second]) = self.buckets.ways(key) else { return };
        if key.is_only_in_overflow() {
            return self.remove_overflow(cells, readers, key);
        }
        if self.take_from(cells, readers, key, first) {
            return;
        }
        let was_in_second = self.take_from(cells, readers, key, second);
        if !was_in_second {
            self.remove_overflow(cells, readers, key);
        }
        self.come_back(cells, first.filter);
        if !was_in_second {
            self.come_back(cells, second.filter);
        }
    }

    /// Removes a key from a bucket; `false` if the bucket does not have it.
    fn take_from(&mut self, cells: &impl CellsMut, readers: &impl Quiescence, key: Key, way: Way) -> bool {
        let has = |&at: &usize| self.buckets.of_slot(cells, at, key, way).is_some();
        let Some(at) = slots(way.bucket, key.kind()).find(has) else { return false };
        cells.set_u64(at, cells.u64(at) & FILTER);
        if key.kind() == KeyKind::Host {
            self.resting.insert(at);
            self.deferred.push(readers, Reclaim::Forget(at));
        }
        true
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
                    cells.set_u64(pair + WORD_BYTES, NO_HOST);
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

    fn insert_overflow(&mut self, cells: &impl CellsMut, key: Key, members: u32) -> Result<(), Full> {
        let usable = |&at: &usize| cells.u64(at) == 0 && !self.resting.contains(&at);
        let free = self.buckets.entries(key).find(usable).filter(|_| self.left < self.left_max).ok_or(Full)?;
        let [kind, high, low] = key.entry();
        cells.set_u64(free + WORD_BYTES, high);
        cells.set_u64(free + 2 * WORD_BYTES, low);
        cells.set_u64(free + MEMBERS_AT, self.buckets.words.entry_members(members));
        cells.set_u64(free, kind);
        self.left += 1;
        Ok(())
    }

    fn remove_overflow(&mut self, cells: &impl CellsMut, readers: &impl Quiescence, key: Key) {
        let Some(at) = self.buckets.entries(key).find(|&at| self.buckets.of_entry(cells, at, key).is_some()) else {
            return;
        };
        cells.set_u64(at, 0);
        self.left -= 1;
        self.resting.insert(at);
        self.deferred.push(readers, Reclaim::Reuse(at));
    }
}
