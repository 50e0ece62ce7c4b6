//! Which blocked sources a card drops: the paper's section IV-A1, with what it leaves out.
//!
//! The card is a cache: every entry stays in software too, so a packet that the card misses is dropped all the same. An
//! entry that leaves the list of blocked sources leaves the card at once.

mod select;
pub mod simulated;

pub use select::{Change, Rate, Selection, Thresholds};

use std::collections::HashMap;
use std::hash::Hash;

/// Why a card refuses a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableError {
    /// The card has no room.
    Full,
    /// The change failed; the entry is as before.
    Failed,
}

/// What an entry of a card has dropped since it was added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hits {
    /// Packets.
    pub packets: u64,
    /// Bytes of the packets.
    pub bytes: u64,
    /// The time of the last one, ns of the system's monotonic clock; 0 if there was none.
    pub last_ns: u64,
}

impl Hits {
    /// What was dropped after `before`, earlier hits of the same entry.
    pub fn since(self, before: Hits) -> Hits {
        let packets = self.packets.saturating_sub(before.packets);
        let bytes = self.bytes.saturating_sub(before.bytes);
        Hits { packets, bytes, last_ns: self.last_ns }
    }

    /// The sum of both.
    pub fn plus(self, other: Hits) -> Hits {
        let (packets, bytes) = (self.packets + other.packets, self.bytes + other.bytes);
        Hits { packets, bytes, last_ns: self.last_ns.max(other.last_ns) }
    }
}

/// The table of a card that drops packets of its entries.
pub trait OffloadTable<K> {
    /// Entries that it holds at most.
    fn capacity(&self) -> usize;

    /// Adds an entry.
    ///
    /// # Errors
    /// The card refuses.
    fn add(&mut self, key: K) -> Result<(), TableError>;

    /// Deletes an entry. Returns what it has dropped, which is nothing for an entry that the card does not have.
    ///
    /// # Errors
    /// The card refuses.
    fn delete(&mut self, key: K) -> Result<Hits, TableError>;

    /// Deletes entries. Returns the outcome of each. A card with a faster way than one after the other has its own.
    fn delete_all(&mut self, keys: &[K]) -> Vec<Result<Hits, TableError>>
    where
        K: Copy,
    {
        keys.iter().map(|key| self.delete(*key)).collect()
    }

    /// Deletes all entries, in the time of [`OffloadTable::clear_ns`]. Returns what they have dropped.
    ///
    /// # Errors
    /// The card refuses. Some entries may be left.
    fn clear(&mut self) -> Result<Vec<(K, Hits)>, TableError>;

    /// What each entry has dropped.
    fn counters(&mut self) -> Vec<(K, Hits)>;

    /// Time that one change takes, ns. The paper's card needs up to 2 ms.
    fn update_ns(&self) -> u64;

    /// Time that [`OffloadTable::clear`] takes, ns: the time of one change, unless the card deletes one entry after the
    /// other.
    fn clear_ns(&self) -> u64 {
        self.update_ns()
    }
}

/// Adds up what software and card have dropped in the same window.
#[derive(Clone, Debug)]
pub struct Meter<K> {
    /// The counters of the card at the end of the previous window.
    before: HashMap<K, u64>,
}

impl<K> Default for Meter<K> {
    fn default() -> Self {
        Meter { before: HashMap::new() }
    }
}

impl<K: Copy + Eq + Hash> Meter<K> {
    /// The rates of all blocked sources. `software` are the packets of the window that software has dropped, `card` the
    /// counters of the card at its end. A counter that has fallen belongs to an entry that was added again.
    pub fn rates(&mut self, software: &[(K, u64)], card: &[(K, u64)]) -> Vec<Rate<K>> {
        let before = std::mem::replace(&mut self.before, card.iter().copied().collect());
        let by_card = |key: &K| {
            let now = self.before.get(key).copied().unwrap_or(0);
            now.checked_sub(before.get(key).copied().unwrap_or(0)).unwrap_or(now)
        };
        software.iter().map(|(key, packets)| Rate { key: *key, packets: packets + by_card(key) }).collect()
    }
}

/// Carries out changes, deletions first. Returns those that the card refused.
pub fn carry_out<K: Copy + Eq + Hash>(changes: &[Change<K>], table: &mut dyn OffloadTable<K>) -> Vec<Change<K>> {
    let refused = |change: &&Change<K>| match **change {
        Change::Add(key) => table.add(key).is_err(),
        Change::Delete(key) => table.delete(key).is_err(),
    };
    changes.iter().filter(refused).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::{Meter, Rate};

    #[test]
    fn rates_are_of_one_window_of_software_and_card() {
        let mut meter = Meter::default();
        let rate = |key, packets| Rate { key, packets };
        assert_eq!(meter.rates(&[(1, 5), (2, 7)], &[(1, 100)]), [rate(1, 105), rate(2, 7)]);
        assert_eq!(meter.rates(&[(1, 0), (2, 7)], &[(1, 150), (2, 3)]), [rate(1, 50), rate(2, 10)]);
        // The entry of source 1 was deleted and added again.
        assert_eq!(meter.rates(&[(1, 1), (2, 0)], &[(1, 20), (2, 3)]), [rate(1, 21), rate(2, 0)]);
    }
}
