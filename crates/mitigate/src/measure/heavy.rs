//! The heaviest sources: Space-Saving (Metwally et al., 2005).
//!
//! Chosen over a count-min sketch with a heap: one table instead of two, a bound on the error of each count, and a key
//! with more than `packets / capacity` packets is certain to be in it. A source that sends once displaces only another
//! such source.

use super::slots::address_hash;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// A source and its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heavy<K> {
    /// The key.
    pub key: K,
    /// Packets; at least the true number.
    pub packets: u64,
    /// At most this many of them belong to others.
    pub error: u64,
}

/// Counts the keys with the most packets in bounded memory.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound(deserialize = "K: Deserialize<'de> + Eq + Hash + Ord"))]
pub struct SpaceSaving<K> {
    capacity: usize,
    counts: HashMap<K, (u64, u64), Seeded>,
    /// The counts in order, with their keys.
    order: BTreeSet<(u64, K)>,
}

/// Hashes addresses that are already numbers.
type Seeded = BuildHasherDefault<Mixer>;

/// A hasher for keys of a table whose size is bounded.
#[derive(Clone, Debug, Default)]
pub struct Mixer(u64);

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(16) {
            let number = chunk.iter().rev().fold(0u128, |number, &byte| number << 8 | u128::from(byte));
            self.0 = address_hash(self.0, false, number);
        }
    }
}

impl<K: Copy + Ord + std::hash::Hash> SpaceSaving<K> {
    /// Counts at most this many keys.
    pub fn new(capacity: usize) -> Self {
        SpaceSaving { capacity: capacity.max(1), counts: HashMap::default(), order: BTreeSet::new() }
    }

    /// Counts packets of a key.
    pub fn add(&mut self, key: K, packets: u64) {
        let (before, error) = match self.counts.get(&key) {
            Some(&(count, error)) => {
                self.order.remove(&(count, key));
                (count, error)
            }
            None if self.counts.len() < self.capacity => (0, 0),
            None => {
                let (least, displaced) = self.order.pop_first().expect("a full table is not empty");
                self.counts.remove(&displaced);
                (least, least)
            }
        };
        self.counts.insert(key, (before + packets, error));
        self.order.insert((before + packets, key));
    }

    /// The keys, those with the most packets first.
    pub fn heaviest(&self) -> impl Iterator<Item = Heavy<K>> {
        self.order.iter().rev().map(|&(packets, key)| Heavy { key, packets, error: self.counts[&key].1 })
    }

    /// The packets of a key: at least the true number, unless the key has fewer than the least that is counted.
    pub fn count(&self, key: K) -> u64 {
        let least =
            if self.counts.len() < self.capacity { 0 } else { self.order.first().map_or(0, |&(count, _)| count) };
        self.counts.get(&key).map_or(least, |&(count, _)| count)
    }

    /// Begins anew.
    pub fn clear(&mut self) {
        self.counts.clear();
        self.order.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::SpaceSaving;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        #[test]
        fn counts_are_within_their_bounds(keys in prop::collection::vec(0u32..200, 1..2000), capacity in 1usize..64) {
            let mut sketch = SpaceSaving::new(capacity);
            let mut exact: HashMap<u32, u64> = HashMap::new();
            for &key in &keys {
                sketch.add(key, 1);
                *exact.entry(key).or_default() += 1;
            }
            let found: Vec<_> = sketch.heaviest().collect();
            prop_assert!(found.len() <= capacity);
            prop_assert!(found.is_sorted_by_key(|heavy| std::cmp::Reverse(heavy.packets)));
            for heavy in &found {
                let exact = exact[&heavy.key];
                prop_assert!(heavy.packets >= exact && heavy.packets - heavy.error <= exact);
            }
            for (key, packets) in exact {
                if packets > keys.len() as u64 / capacity as u64 {
                    prop_assert!(found.iter().any(|heavy| heavy.key == key), "{key} has {packets}");
                }
            }
        }
    }
}
