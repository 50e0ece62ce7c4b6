//! Counters that never fall, from numbers that may.
//!
//! Rules of unloaded policies are summed up once there are many, and attacks that are over are forgotten. What a scrape
//! then finds is less than before, and Prometheus would take that for a restart. Here such a loss changes nothing.

use std::collections::HashMap;
use std::hash::Hash;

/// A number that was read, and what it had lost until then.
#[derive(Clone, Copy, Debug, Default)]
struct Read {
    last: u64,
    lost: u64,
}

/// Counters by key. It has at most as many as the last round had, and those that were counted until then as a sum.
#[derive(Debug)]
pub struct Growing<K> {
    known: HashMap<K, Read>,
    /// The sum of keys that have gone.
    gone: u64,
}

impl<K> Default for Growing<K> {
    fn default() -> Self {
        Growing { known: HashMap::new(), gone: 0 }
    }
}

impl<K: Eq + Hash> Growing<K> {
    /// The counters after a round of numbers. A key that has gone and comes back counts anew.
    pub fn see(&mut self, round: impl IntoIterator<Item = (K, u64)>) -> &Self {
        let mut known = HashMap::new();
        for (key, now) in round {
            let Read { last, lost } = self.known.remove(&key).unwrap_or_default();
            let lost = if now < last { lost + last - now } else { lost };
            known.insert(key, Read { last: now, lost });
        }
        self.gone += self.known.drain().map(|(_, read)| read.last + read.lost).sum::<u64>();
        self.known = known;
        self
    }

    /// The counter of a key.
    pub fn of(&self, key: &K) -> u64 {
        self.known.get(key).map_or(0, |read| read.last + read.lost)
    }

    /// The sum of all counters, with those that have gone.
    pub fn sum(&self) -> u64 {
        self.gone + self.known.values().map(|read| read.last + read.lost).sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_falls_loses_nothing() {
        let mut rules = Growing::default();
        let counted: Vec<u64> = [5, 9, 2, 4].map(|now| rules.see([("edge.weir:12", now)]).of(&"edge.weir:12")).to_vec();
        assert_eq!(counted, [5, 9, 9, 11]);
        assert_eq!((rules.of(&"edge.weir:13"), rules.sum()), (0, 11));
    }

    #[test]
    fn keys_that_have_gone_stay_in_the_sum_and_take_no_room() {
        let mut actions = Growing::default();
        let sums: Vec<u64> =
            [vec![(1, 10), (2, 1)], vec![(2, 3)], vec![], vec![(3, 7)]].map(|round| actions.see(round).sum()).to_vec();
        assert_eq!(sums, [11, 13, 13, 20]);
        assert_eq!(actions.known.len(), 1);
    }
}
