//! Listing 1 of the paper with hysteresis: which entries of the card are exchanged in a period.
//!
//! A source replaces an entry of the card if its rate is higher by a factor. The factor falls with the load: when the
//! software is nearly overloaded, a small gain is worth an update. It never falls below counting noise: two sources of
//! the same rate differ by chance, and exchanging them gains nothing. Free slots need no factor. All rates are of one
//! window, of software and card together, because rates of different windows differ for reasons of their own.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

/// A blocked source and its packets in the last period, whether software or the card dropped them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate<K> {
    /// The source.
    pub key: K,
    /// Its packets.
    pub packets: u64,
}

/// A change of the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Change<K> {
    /// Add an entry.
    Add(K),
    /// Delete an entry.
    Delete(K),
}

/// When an exchange is worth an update.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Thresholds {
    /// The factor at full load. An update then pays if it moves this much more.
    pub full_load: f64,
    /// The factor is at most this, so that a card without load still follows large changes.
    pub idle: f64,
    /// The difference of two counts must exceed this many standard deviations.
    pub noise_deviations: f64,
}

impl Default for Thresholds {
    /// A factor of 1.2 exchanged nothing at 37 Mpps under noise, where 1.0 exchanged 449 of 512 entries. Four standard
    /// deviations are exceeded by chance once in 30,000 pairs.
    fn default() -> Self {
        Thresholds { full_load: 1.2, idle: 4.0, noise_deviations: 4.0 }
    }
}

impl Thresholds {
    /// The factor at a load, a share of what the software can drop.
    fn factor(&self, load: f64) -> f64 {
        (self.full_load / load.max(f64::MIN_POSITIVE)).clamp(self.full_load, self.idle)
    }

    /// Whether a candidate should replace an entry. The variance of a Poisson count is its mean. The variance of a
    /// difference is the sum of both variances.
    fn is_worth(&self, candidate: u64, entry: u64, load: f64) -> bool {
        let (candidate, entry) = (candidate as f64, entry as f64);
        let noise = self.noise_deviations * (candidate + entry).sqrt();
        candidate > entry * self.factor(load) && candidate - entry > noise
    }
}

/// The entries of a card.
#[derive(Clone, Debug)]
pub struct Selection<K> {
    thresholds: Thresholds,
    capacity: usize,
    /// Most changes of a period. An exchange is two.
    budget: usize,
    entries: HashSet<K>,
}

impl<K: Copy + Ord + Hash> Selection<K> {
    /// An empty card that takes `capacity` entries, and `budget` changes a period.
    pub fn new(capacity: usize, budget: usize, thresholds: Thresholds) -> Self {
        Selection { thresholds, capacity, budget, entries: HashSet::new() }
    }

    /// The budget of a period for a card that takes `update_ns` for a change: half of the time, so that changes of the
    /// list itself have room.
    pub fn budget(period_ns: u64, update_ns: u64) -> usize {
        (period_ns / 2 / update_ns.max(1)).max(1) as usize
    }

    /// What the card takes from now on: cards fill up before their nominal capacity, and their changes take longer when
    /// they are busy.
    pub fn set_room(&mut self, capacity: usize, budget: usize) {
        (self.capacity, self.budget) = (capacity, budget);
    }

    /// The entries.
    pub fn entries(&self) -> &HashSet<K> {
        &self.entries
    }

    /// Forgets changes that the card refused.
    pub fn refused(&mut self, changes: &[Change<K>]) {
        for change in changes {
            match change {
                Change::Add(key) => self.entries.remove(key),
                Change::Delete(key) => self.entries.insert(*key),
            };
        }
    }

    /// Removes sources that are not blocked any more. This has no budget: the card must not drop what software passes.
    pub fn remove(&mut self, keys: impl IntoIterator<Item = K>) -> Vec<Change<K>> {
        let removed = keys.into_iter().filter(|key| self.entries.remove(key));
        removed.map(Change::Delete).collect()
    }

    /// Chooses the changes after a period. `rates` has every blocked source, `load` is the share of its capacity that
    /// software used.
    pub fn choose(&mut self, rates: &[Rate<K>], load: f64) -> Vec<Change<K>> {
        let of: HashMap<K, u64> = rates.iter().map(|rate| (rate.key, rate.packets)).collect();
        let gone: Vec<K> = self.entries.iter().filter(|key| !of.contains_key(key)).copied().collect();
        let mut changes = self.remove(gone);
        let mut budget = self.budget;
        // The paper's global list and list of offloaded entries. Ties have an order, so that nothing depends on a hash.
        let mut global: Vec<Rate<K>> = rates.iter().filter(|rate| rate.packets > 0).copied().collect();
        global.sort_unstable_by(|one, other| other.packets.cmp(&one.packets).then(one.key.cmp(&other.key)));
        global.truncate(self.capacity);
        let top: HashSet<K> = global.iter().map(|rate| rate.key).collect();
        let mut leaving: Vec<(u64, K)> =
            self.entries.iter().filter(|key| !top.contains(key)).map(|key| (of[key], *key)).collect();
        leaving.sort_unstable();
        let mut leaving = leaving.into_iter();
        for candidate in global.into_iter().filter(|rate| !self.entries.contains(&rate.key)).collect::<Vec<_>>() {
            if self.entries.len() < self.capacity {
                if budget < 1 {
                    break;
                }
                budget -= 1;
            } else {
                // Later pairs gain less: candidates fall and entries rise.
                let Some((packets, entry)) = leaving.next() else { break };
                if budget < 2 || !self.thresholds.is_worth(candidate.packets, packets, load) {
                    break;
                }
                budget -= 2;
                self.entries.remove(&entry);
                changes.push(Change::Delete(entry));
            }
            self.entries.insert(candidate.key);
            changes.push(Change::Add(candidate.key));
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::{Change, Rate, Selection, Thresholds};
    use proptest::prelude::*;
    use std::collections::HashSet;

    fn rates(packets: &[u64]) -> Vec<Rate<u32>> {
        (0..).zip(packets).map(|(key, &packets)| Rate { key, packets }).collect()
    }

    #[test]
    fn free_slots_need_no_threshold_and_exchanges_do() {
        let mut selection = Selection::new(2, 100, Thresholds::default());
        let added: Vec<_> = selection.choose(&rates(&[10, 30, 20]), 0.01);
        assert_eq!(added, [Change::Add(1), Change::Add(2)]);
        assert_eq!(selection.choose(&rates(&[1150, 1000, 3000]), 1.0), []);
        let swapped = selection.choose(&rates(&[1300, 1000, 3000]), 1.0);
        assert_eq!(swapped, [Change::Delete(1), Change::Add(0)]);
    }

    #[test]
    fn a_small_gain_is_worth_an_update_only_under_load() {
        for (load, exchanges) in [(1.0, 2), (0.5, 0), (0.01, 0)] {
            let mut selection = Selection::new(1, 100, Thresholds::default());
            selection.choose(&rates(&[100_000]), load);
            assert_eq!(selection.choose(&rates(&[100_000, 200_000]), load).len(), exchanges, "{load}");
        }
    }

    #[test]
    fn the_threshold_lies_above_counting_noise() {
        let mut selection = Selection::new(1, 100, Thresholds::default());
        selection.choose(&rates(&[10]), 1.0);
        // 20 to 10 is a factor of 2, and less than two standard deviations.
        assert_eq!(selection.choose(&rates(&[10, 20]), 1.0), []);
    }

    #[test]
    fn an_entry_that_is_not_blocked_any_more_leaves_without_budget() {
        let mut selection = Selection::new(4, 4, Thresholds::default());
        selection.choose(&rates(&[1, 2, 3, 4]), 1.0);
        let changes = selection.choose(&rates(&[1, 2]), 1.0);
        assert_eq!(changes.iter().copied().collect::<HashSet<_>>(), [Change::Delete(2), Change::Delete(3)].into());
        assert_eq!(selection.remove([0]), [Change::Delete(0)]);
    }

    proptest! {
        #[test]
        fn the_card_is_never_too_full_and_the_budget_holds(
            periods in prop::collection::vec(prop::collection::vec(0u64..10_000, 0..60), 1..8),
            capacity in 1usize..20,
            budget in 1usize..20,
            load in 0.0f64..1.5,
        ) {
            let mut selection = Selection::new(capacity, budget, Thresholds::default());
            let mut card: HashSet<u32> = HashSet::new();
            for period in periods {
                let blocked = period.len() as u32;
                let gone = card.iter().filter(|&&key| key >= blocked).count();
                let changes = selection.choose(&rates(&period), load);
                prop_assert!(changes.len() <= budget + gone);
                for change in changes {
                    let is_effective = match change {
                        Change::Add(key) => card.insert(key),
                        Change::Delete(key) => card.remove(&key),
                    };
                    prop_assert!(is_effective && card.len() <= capacity);
                }
                prop_assert_eq!(&card, selection.entries());
                prop_assert!(card.iter().all(|&key| key < blocked));
            }
        }
    }
}
