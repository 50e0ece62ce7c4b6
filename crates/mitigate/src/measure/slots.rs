//! A table of fixed capacity in sets of eight, as the datapath can have it.
//!
//! A new entry takes a free slot of its set, else the slot of the least valuable entry. So an attack that fills the
//! table displaces its own entries and entries of little value. Memory is bounded whatever it sends.

use serde::{Deserialize, Serialize};

/// Entries of a set.
const WAYS: usize = 8;

/// A table of entries that are found by a hash.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Slots<E> {
    entries: Vec<Option<E>>,
    mask: u64,
}

impl<E> Slots<E> {
    /// A table with room for at least this many entries: a power of two.
    pub fn new(capacity: usize) -> Self {
        let sets = capacity.div_ceil(WAYS).next_power_of_two();
        Slots { entries: std::iter::repeat_with(|| None).take(sets * WAYS).collect(), mask: sets as u64 - 1 }
    }

    fn set(&mut self, hash: u64) -> &mut [Option<E>] {
        let first = (hash & self.mask) as usize * WAYS;
        &mut self.entries[first..first + WAYS]
    }

    /// The entry of a hash that is the wanted one.
    pub fn find(&mut self, hash: u64, is_wanted: impl Fn(&E) -> bool) -> Option<&mut E> {
        self.set(hash).iter_mut().flatten().find(|entry| is_wanted(entry))
    }

    /// As [`Slots::find`], without a right to change it.
    pub fn get(&self, hash: u64, is_wanted: impl Fn(&E) -> bool) -> Option<&E> {
        let first = (hash & self.mask) as usize * WAYS;
        self.entries[first..first + WAYS].iter().flatten().find(|entry| is_wanted(entry))
    }

    /// Adds an entry that is not in the table. It displaces the entry of its set with the lowest value, unless all
    /// values are above `limit`. Returns the new entry, or `None` if there is no room.
    pub fn add(&mut self, hash: u64, entry: E, limit: u64, value: impl Fn(&E) -> u64) -> Option<&mut E> {
        let value = |slot: &Option<E>| slot.as_ref().map_or((0, 0), |entry| (1, value(entry)));
        let slot = self.set(hash).iter_mut().min_by_key(|slot| value(slot))?;
        if slot.is_some() && value(slot).1 > limit {
            return None;
        }
        Some(slot.insert(entry))
    }

    /// All entries.
    pub fn iter(&self) -> impl Iterator<Item = &E> {
        self.entries.iter().flatten()
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        self.entries.iter_mut().for_each(|slot| *slot = None);
    }
}

/// A hash that an attacker without the seed cannot predict well enough to fill one set (the finisher of splitmix64 over
/// seeded words).
pub fn hash(seed: u64, words: &[u64]) -> u64 {
    words.iter().fold(seed, |state, &word| {
        let mut mixed = (state ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    })
}

/// The hash of an address.
pub fn address_hash(seed: u64, is_ipv6: bool, address: u128) -> u64 {
    hash(seed, &[address as u64, (address >> 64) as u64, is_ipv6.into()])
}

#[cfg(test)]
mod tests {
    use super::Slots;

    #[test]
    fn a_flood_displaces_only_entries_of_little_value() {
        let mut slots: Slots<(u64, u64)> = Slots::new(8);
        for key in 0..4 {
            slots.add(0, (key, 100), 10, |entry| entry.1);
        }
        for key in 4..1000 {
            assert!(slots.add(0, (key, 1), 10, |entry| entry.1).is_some());
        }
        assert_eq!(slots.iter().count(), 8);
        assert!((0..4).all(|key| slots.get(0, |entry| entry.0 == key).is_some()));
        slots.iter().for_each(|entry| assert_eq!(entry.1 == 100, entry.0 < 4));
    }

    #[test]
    fn valuable_entries_leave_no_room() {
        let mut slots: Slots<(u64, u64)> = Slots::new(8);
        for key in 0..8 {
            slots.add(0, (key, 100), 10, |entry| entry.1);
        }
        assert!(slots.add(0, (8, 100), 10, |entry| entry.1).is_none());
        assert!(slots.find(0, |entry| entry.0 == 7).is_some());
    }
}
