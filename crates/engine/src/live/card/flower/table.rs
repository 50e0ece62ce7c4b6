//! The sources that filters of a card drop.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use weir_abi::wire_card::CardCount;

use super::super::table::{Entry, Refused};
use super::filter::{Counting, Filter, Hits, Place, Version};
use super::kernel::{is, list, put};
use crate::live::netlink::Route;

/// The longest time for which a card that was full counts as full.
const FULL: Duration = Duration::from_secs(60);
/// How much the latest change counts in the average time of changes.
const NEWEST: f64 = 1.0 / 16.0;

/// The table of a card.
pub struct FlowerTable {
    route: Route,
    place: Place,
    counting: Counting,
    /// Entries that the operator allows.
    entries: usize,
    /// Entries that the card had when it was full, and when that was.
    full: Option<(usize, Instant)>,
    /// Average time of a change.
    update: Duration,
    /// The handle of each source, and what was dropped when the counters were last read.
    sources: HashMap<IpAddr, (u32, CardCount)>,
    /// Handles without a filter.
    free: Vec<u32>,
    /// Filters that the card has lost, at the last look.
    lost: usize,
}

impl FlowerTable {
    pub(super) fn new(route: Route, place: Place, counting: Counting, entries: usize, update: Duration) -> Self {
        let free = (1..=entries as u32).rev().collect();
        FlowerTable { route, place, counting, entries, full: None, update, sources: HashMap::new(), free, lost: 0 }
    }

    /// Number of entries that it can have: what the operator allows, or what the card had when it was full, for a minute.
    pub fn capacity(&self) -> usize {
        let full = self.full.filter(|(_, since)| since.elapsed() < FULL);
        full.map_or(self.entries, |(entries, _)| entries.min(self.entries))
    }

    /// The time that a change takes, on average.
    pub fn update(&self) -> Duration {
        self.update
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.sources.len()
    }

    /// Whether it has no entries.
    pub fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    /// Adds a source. A source that is there stays.
    ///
    /// # Errors
    /// There is no room, or the kernel or the driver refuses.
    pub fn add(&mut self, source: IpAddr) -> Result<(), Refused> {
        if self.sources.contains_key(&source) {
            return Ok(());
        }
        let handle = self.free.pop().ok_or(Refused::Full)?;
        let begun = Instant::now();
        match put(&mut self.route, self.place, handle, source, self.counting) {
            Ok(Ok(())) => {
                self.changed(begun, 1);
                self.sources.insert(source, (handle, CardCount::default()));
                Ok(())
            }
            Ok(Err(refusal)) => {
                self.free.push(handle);
                if is(&refusal, libc::ENOSPC) || is(&refusal, libc::ENOBUFS) {
                    self.full = Some((self.sources.len(), Instant::now()));
                    return Err(Refused::Full);
                }
                Err(Refused::Failed(refusal.into_error()))
            }
            // Nobody knows whether there is a filter, so its handle is not used again.
            Err(error) => Err(Refused::Failed(error)),
        }
    }

    /// Deletes sources. Returns what each has dropped, in the same order: nothing for one that is not there.
    pub fn delete(&mut self, sources: &[IpAddr]) -> Vec<Result<CardCount, Refused>> {
        let handle = |source: &IpAddr| self.sources.get(source).map(|one| one.0);
        let own: Vec<(IpAddr, u32)> = sources.iter().filter_map(|source| Some((*source, handle(source)?))).collect();
        let requests = own.iter().map(|(source, handle)| self.place.delete(*handle, Version::of(*source)));
        let begun = Instant::now();
        let outcomes = self.route.request(requests.collect());
        self.changed(begun, own.len());
        let outcomes = match outcomes {
            Ok(outcomes) => outcomes,
            Err(error) => return sources.iter().map(|_| Err(Refused::Failed(again(&error)))).collect(),
        };
        let mut deleted = HashMap::new();
        for ((source, _), outcome) in own.into_iter().zip(outcomes) {
            let last = match outcome {
                Ok(reply) => reply.and_then(|(_, body)| Filter::read(&body).ok().flatten()).map(|filter| filter.hits),
                // Somebody else has deleted it.
                Err(refusal) if is(&refusal, libc::ENOENT) => None,
                Err(refusal) => {
                    deleted.insert(source, Err(Refused::Failed(refusal.into_error())));
                    continue;
                }
            };
            let (handle, before) = self.sources.remove(&source).expect("it has a handle");
            self.free.push(handle);
            deleted.insert(source, Ok(last.map_or(before, |hits| later(before, hits))));
        }
        sources.iter().map(|source| deleted.remove(source).unwrap_or_else(|| Ok(CardCount::default()))).collect()
    }

    /// Deletes all sources. Returns what they have dropped.
    ///
    /// # Errors
    /// The kernel refuses one. All others are deleted.
    pub fn clear(&mut self) -> Result<Vec<Entry>, Refused> {
        let all: Vec<IpAddr> = self.sources.keys().copied().collect();
        let (mut entries, mut refused) = (Vec::new(), None);
        for (source, outcome) in all.iter().zip(self.delete(&all)) {
            match outcome {
                Ok(count) => entries.push(Entry { source: *source, count }),
                Err(error) => refused = Some(error),
            }
        }
        refused.map_or(Ok(entries), Err)
    }

    /// Reads the counters of the card. Returns the sources, with what each has dropped.
    ///
    /// # Errors
    /// The kernel refuses, or its answer is malformed.
    pub fn read(&mut self) -> io::Result<Vec<Entry>> {
        let mut filters = Vec::new();
        for version in Version::BOTH {
            if self.sources.keys().any(|source| Version::of(*source) == version) {
                filters.extend(list(&mut self.route, self.place, version)?);
            }
        }
        let (mut present, mut strays) = (0, Vec::new());
        for filter in filters.iter().filter(|filter| filter.owner == Some(self.place.owner)) {
            let Some(source) = filter.source else { continue };
            match self.sources.get_mut(&source).filter(|(handle, _)| *handle == filter.handle) {
                Some((_, count)) => {
                    present += usize::from(filter.is_in_card);
                    *count = later(*count, filter.hits);
                }
                // The answer to its request was lost.
                None => strays.push(self.place.delete(filter.handle, Version::of(source))),
            }
        }
        self.route.request(strays)?;
        self.report(self.sources.len() - present);
        Ok(self.sources.iter().map(|(&source, &(_, count))| Entry { source, count }).collect())
    }

    /// Reports filters that the card no longer has. Software drops their sources.
    fn report(&mut self, lost: usize) {
        if lost > self.lost {
            eprintln!("weir: card: {lost} of {} filters are not in hardware any more", self.sources.len());
        }
        self.lost = lost;
    }

    /// Some changes were made.
    fn changed(&mut self, begun: Instant, changes: usize) {
        if changes > 0 {
            let one = begun.elapsed().div_f64(changes as f64);
            self.update = self.update.mul_f64(1.0 - NEWEST) + one.mul_f64(NEWEST);
        }
    }
}

/// The later of two counts. The first one was read before, or is that of a filter that was lost.
fn later(before: CardCount, Hits { packets, bytes, idle_ns }: Hits) -> CardCount {
    if packets <= before.packets {
        return before;
    }
    CardCount { packets, bytes, last_ns: weir_state::now_ns().saturating_sub(idle_ns), zero: 0 }
}

/// The same error once more.
fn again(error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), error.to_string())
}
