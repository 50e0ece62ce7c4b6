//! A card for tests and simulations: a table with counters that takes time for changes.

use super::{Hits, OffloadTable, TableError};
use std::collections::HashMap;
use std::hash::Hash;

/// A simulated card.
#[derive(Clone, Debug)]
pub struct SimulatedCard<K> {
    capacity: usize,
    update_ns: u64,
    counters: HashMap<K, u64>,
    /// Time that all changes took, ns.
    pub busy_ns: u64,
}

impl<K: Copy + Eq + Hash> SimulatedCard<K> {
    /// An empty card.
    pub fn new(capacity: usize, update_ns: u64) -> Self {
        SimulatedCard { capacity, update_ns, counters: HashMap::new(), busy_ns: 0 }
    }

    /// Receives packets of a source. Returns whether the card drops them.
    pub fn receive(&mut self, key: K, packets: u64) -> bool {
        match self.counters.get_mut(&key) {
            Some(counter) => {
                *counter += packets;
                true
            }
            None => false,
        }
    }

    /// Whether it has an entry.
    pub fn contains(&self, key: K) -> bool {
        self.counters.contains_key(&key)
    }
}

impl<K: Copy + Eq + Hash> OffloadTable<K> for SimulatedCard<K> {
    fn capacity(&self) -> usize {
        self.capacity
    }

    fn add(&mut self, key: K) -> Result<(), TableError> {
        if self.counters.len() >= self.capacity && !self.counters.contains_key(&key) {
            return Err(TableError::Full);
        }
        self.busy_ns += self.update_ns;
        self.counters.entry(key).or_default();
        Ok(())
    }

    fn delete(&mut self, key: K) -> Result<Hits, TableError> {
        self.busy_ns += self.update_ns;
        Ok(hits(self.counters.remove(&key).unwrap_or(0)))
    }

    fn clear(&mut self) -> Result<Vec<(K, Hits)>, TableError> {
        self.busy_ns += self.update_ns;
        Ok(self.counters.drain().map(|(key, packets)| (key, hits(packets))).collect())
    }

    fn counters(&mut self) -> Vec<(K, Hits)> {
        self.counters.iter().map(|(&key, &packets)| (key, hits(packets))).collect()
    }

    fn update_ns(&self) -> u64 {
        self.update_ns
    }
}

/// Hits of packets, without bytes: nothing reads the bytes of a simulation.
fn hits(packets: u64) -> Hits {
    Hits { packets, ..Hits::default() }
}
