//! A place of a card, and which tables its entries are of.

use std::collections::HashMap;
use std::net::IpAddr;
use weir_mitigate::offload::{Hits, OffloadTable};

/// The longest time in which entries leave one by one. If they would take longer, the place is cleared, which takes one
/// change, and filled again.
const LEAVE_NS: u64 = 50_000_000;
/// What the deletion of an entry takes besides the card's own time.
const DELETE_NS: u64 = 200_000;

/// A place.
pub struct Place {
    /// `table` or `cpu`.
    pub name: &'static str,
    table: Box<dyn OffloadTable<IpAddr> + Send>,
    entries: HashMap<IpAddr, Entry>,
    /// Changes that were made, and those that the card refused.
    pub updates: u64,
    pub refused: u64,
    /// What it has dropped.
    pub dropped: Hits,
}

struct Entry {
    /// The table that it is of, by number.
    of: usize,
    /// Its hits at the last look.
    seen: Hits,
}

/// What an entry has dropped since the last look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// The source.
    pub source: IpAddr,
    /// The table that it is of.
    pub of: usize,
    /// What it has dropped.
    pub hits: Hits,
}

impl Place {
    /// An empty place.
    pub fn new(name: &'static str, table: Box<dyn OffloadTable<IpAddr> + Send>) -> Self {
        Place { name, table, entries: HashMap::new(), updates: 0, refused: 0, dropped: Hits::default() }
    }

    /// Number of entries that it can have.
    pub fn capacity(&self) -> usize {
        self.table.capacity()
    }

    /// The time that a change takes.
    pub fn update_ns(&self) -> u64 {
        self.table.update_ns()
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// The sources, with the tables that they are of.
    pub fn sources(&self) -> impl Iterator<Item = (IpAddr, usize)> {
        self.entries.iter().map(|(&source, entry)| (source, entry.of))
    }

    /// Whether it has a source.
    pub fn has(&self, source: IpAddr) -> bool {
        self.entries.contains_key(&source)
    }

    /// The table that a source is of, if the place has it.
    pub fn table_of(&self, source: IpAddr) -> Option<usize> {
        self.entries.get(&source).map(|entry| entry.of)
    }

    /// The hits of each source since it was added, as they were at the last look.
    pub fn hits(&self) -> impl Iterator<Item = (IpAddr, usize, Hits)> {
        self.entries.iter().map(|(&source, entry)| (source, entry.of, entry.seen))
    }

    /// Adds a source of a table. Returns whether the card has it.
    pub fn add(&mut self, source: IpAddr, of: usize) -> bool {
        if self.has(source) {
            return true;
        }
        let is_added = self.table.add(source).is_ok();
        if is_added {
            self.updates += 1;
            self.entries.insert(source, Entry { of, seen: Hits::default() });
        } else {
            self.refused += 1;
        }
        is_added
    }

    /// Removes sources, and others with them if that is faster. Returns what all those that left have dropped, and
    /// whether others left too.
    pub fn leave(&mut self, sources: &[IpAddr]) -> (Vec<Dropped>, bool) {
        let one_by_one = sources.len() as u64 * (self.update_ns() + DELETE_NS);
        if one_by_one > LEAVE_NS.max(self.table.clear_ns()) && sources.len() > 1 {
            self.updates += 1;
            match self.table.clear() {
                Ok(gone) => {
                    return (gone.into_iter().filter_map(|(source, hits)| self.gone(source, hits)).collect(), true);
                }
                Err(_) => self.refused += 1,
            }
        }
        let mut dropped = Vec::new();
        let own: Vec<IpAddr> = sources.iter().filter(|source| self.entries.contains_key(source)).copied().collect();
        for (&source, outcome) in own.iter().zip(self.table.delete_all(&own)) {
            self.updates += 1;
            match outcome {
                Ok(hits) => dropped.extend(self.gone(source, hits)),
                Err(_) => self.refused += 1,
            }
        }
        (dropped, false)
    }

    /// What entries have dropped since the last look.
    pub fn look(&mut self) -> Vec<Dropped> {
        let counters = self.table.counters();
        let mut dropped = Vec::new();
        for (source, hits) in counters {
            let Some(entry) = self.entries.get_mut(&source) else { continue };
            let since = hits.since(std::mem::replace(&mut entry.seen, hits));
            if since.packets > 0 {
                dropped.push(Dropped { source, of: entry.of, hits: since });
            }
        }
        self.count(&dropped);
        dropped
    }

    /// An entry has left with these hits.
    fn gone(&mut self, source: IpAddr, hits: Hits) -> Option<Dropped> {
        let entry = self.entries.remove(&source)?;
        let dropped = Dropped { source, of: entry.of, hits: hits.since(entry.seen) };
        self.count(&[dropped]);
        Some(dropped).filter(|dropped| dropped.hits.packets > 0)
    }

    fn count(&mut self, dropped: &[Dropped]) {
        self.dropped = dropped.iter().fold(self.dropped, |sum, one| sum.plus(one.hits));
    }
}

#[cfg(test)]
mod tests {
    use super::{Dropped, Place};
    use std::net::IpAddr;
    use weir_mitigate::offload::simulated::SimulatedCard;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    fn place(update_ns: u64) -> Place {
        let mut place = Place::new("table", Box::new(SimulatedCard::new(100, update_ns)));
        (0..100).for_each(|last| assert!(place.add(address(last), usize::from(last % 2))));
        place
    }

    #[test]
    fn few_leave_one_by_one_and_many_by_one_change() {
        let mut few = place(2_000_000);
        assert_eq!(few.leave(&[address(1), address(2), address(200)]), (vec![], false));
        assert_eq!((few.len(), few.updates), (98, 102));
        let many: Vec<IpAddr> = (0..50).map(address).collect();
        let mut slow = place(2_000_000);
        assert_eq!(slow.leave(&many), (vec![], true));
        assert_eq!((slow.len(), slow.updates), (0, 101));
        let mut fast = place(0);
        assert_eq!(fast.leave(&many), (vec![], false));
        assert_eq!(fast.len(), 50);
    }

    #[test]
    fn a_full_place_refuses() {
        let mut place = place(0);
        assert!(!place.add(address(100), 0) && place.add(address(7), 0));
        assert_eq!((place.refused, place.look()), (1, Vec::<Dropped>::new()));
    }
}
