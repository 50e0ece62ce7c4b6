//! Tables that drivers keep, as mitigation knows cards.

use super::wire::{hits, refused};
use std::net::IpAddr;
use weir_engine::live::card::DriverTable;
use weir_mitigate::offload::{Hits, OffloadTable, TableError};

/// Such a table.
pub struct DriverPlace<T>(pub T);

impl<T: DriverTable> OffloadTable<IpAddr> for DriverPlace<T> {
    fn capacity(&self) -> usize {
        self.0.room().capacity()
    }

    fn add(&mut self, key: IpAddr) -> Result<(), TableError> {
        self.0.add(key).map_err(refused)
    }

    fn delete(&mut self, key: IpAddr) -> Result<Hits, TableError> {
        self.delete_all(&[key]).pop().expect("an outcome for each")
    }

    fn delete_all(&mut self, keys: &[IpAddr]) -> Vec<Result<Hits, TableError>> {
        self.0.delete(keys).into_iter().map(|outcome| outcome.map(hits).map_err(refused)).collect()
    }

    fn clear(&mut self) -> Result<Vec<(IpAddr, Hits)>, TableError> {
        let gone = self.0.clear().map_err(refused)?;
        Ok(gone.into_iter().map(|entry| (entry.source, hits(entry.count))).collect())
    }

    fn counters(&mut self) -> Vec<(IpAddr, Hits)> {
        match self.0.read() {
            Ok(entries) => entries.into_iter().map(|entry| (entry.source, hits(entry.count))).collect(),
            Err(error) => {
                warning!("weir: card: its counters cannot be read: {error}");
                Vec::new()
            }
        }
    }

    fn update_ns(&self) -> u64 {
        self.0.room().update().as_nanos() as u64
    }

    /// Each entry is deleted on its own.
    fn clear_ns(&self) -> u64 {
        self.update_ns() * self.0.len() as u64
    }
}
