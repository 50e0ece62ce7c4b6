//! What all tables have that drivers keep.

use std::io;
use std::net::IpAddr;

use weir_abi::wire_card::CardCount;

use super::room::Room;
use super::table::{Entry, Refused};

/// A table of sources whose packets a card drops, which its driver programs.
pub trait DriverTable {
    /// Its room.
    fn room(&self) -> &Room;

    /// Number of entries.
    fn len(&self) -> usize;

    /// Whether it has no entries.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a source. A source that is there stays.
    ///
    /// # Errors
    /// There is no room, or the driver refuses.
    fn add(&mut self, source: IpAddr) -> Result<(), Refused>;

    /// Deletes sources. Returns what each has dropped, in the same order: nothing for one that is not there.
    fn delete(&mut self, sources: &[IpAddr]) -> Vec<Result<CardCount, Refused>>;

    /// The sources.
    fn sources(&self) -> Vec<IpAddr>;

    /// Reads the counters of the card. Returns the sources, with what each has dropped.
    ///
    /// # Errors
    /// The driver refuses, or its answer is malformed.
    fn read(&mut self) -> io::Result<Vec<Entry>>;

    /// Deletes all sources. Returns what they have dropped.
    ///
    /// # Errors
    /// The driver refuses one. All others are deleted.
    fn clear(&mut self) -> Result<Vec<Entry>, Refused> {
        let all = self.sources();
        let (mut entries, mut refused) = (Vec::new(), None);
        for (source, outcome) in all.iter().zip(self.delete(&all)) {
            match outcome {
                Ok(count) => entries.push(Entry { source: *source, count }),
                Err(error) => refused = Some(error),
            }
        }
        refused.map_or(Ok(entries), Err)
    }
}
