//! The sources that filters of a card drop.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use weir_abi::wire_card::CardCount;

use super::super::driver_table::DriverTable;
use super::super::room::Room;
use super::super::table::{Entry, Refused};
use super::filter::{Counting, Filter, Hits, Place, Version};
use super::kernel::{is, list, put};
use crate::live::os::netlink::Route;

/// The table of a card.
pub struct FlowerTable {
    route: Route,
    place: Place,
    counting: Counting,
    room: Room,
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
        let room = Room::new(entries, update);
        FlowerTable { route, place, counting, room, sources: HashMap::new(), free, lost: 0 }
    }

    /// Reports filters that the card no longer has. Software drops their sources.
    fn report(&mut self, lost: usize) {
        if lost > self.lost {
            eprintln!("weir: card: {lost} of {} filters are not in hardware any more", self.sources.len());
        }
        self.lost = lost;
    }
}

impl DriverTable for FlowerTable {
    fn room(&self) -> &Room {
        &self.room
    }

    fn len(&self) -> usize {
        self.sources.len()
    }

    fn sources(&self) -> Vec<IpAddr> {
        self.sources.keys().copied().collect()
    }

    fn add(&mut self, source: IpAddr) -> Result<(), Refused> {
        if self.sources.contains_key(&source) {
            return Ok(());
        }
        let handle = self.free.pop().ok_or(Refused::Full)?;
        let begun = Instant::now();
        match put(&mut self.route, self.place, handle, source, self.counting) {
            Ok(Ok(())) => {
                self.room.changed(begun, 1);
                self.sources.insert(source, (handle, CardCount::default()));
                Ok(())
            }
            Ok(Err(refusal)) => {
                self.free.push(handle);
                if is(&refusal, libc::ENOSPC) || is(&refusal, libc::ENOBUFS) {
                    self.room.is_full_with(self.sources.len());
                    return Err(Refused::Full);
                }
                Err(Refused::Failed(refusal.into_error()))
            }
            // It is unknown whether there is a filter, so its handle is not used again.
            Err(error) => Err(Refused::Failed(error)),
        }
    }

    fn delete(&mut self, sources: &[IpAddr]) -> Vec<Result<CardCount, Refused>> {
        let handle = |source: &IpAddr| self.sources.get(source).map(|one| one.0);
        let own: Vec<(IpAddr, u32)> = sources.iter().filter_map(|source| Some((*source, handle(source)?))).collect();
        let requests = own.iter().map(|(source, handle)| self.place.delete(*handle, Version::of(*source)));
        let begun = Instant::now();
        let outcomes = self.route.request(requests.collect());
        self.room.changed(begun, own.len());
        let outcomes = match outcomes {
            Ok(outcomes) => outcomes,
            Err(error) => return sources.iter().map(|_| Err(Refused::Failed(again(&error)))).collect(),
        };
        let mut deleted = HashMap::new();
        for ((source, _), outcome) in own.into_iter().zip(outcomes) {
            let last = match outcome {
                Ok(reply) => reply.and_then(|(_, body)| Filter::read(&body).ok().flatten()).map(|filter| filter.hits),
                // Another program has deleted it.
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

    fn read(&mut self) -> io::Result<Vec<Entry>> {
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
}

/// The later of two counts. The first one was read before, or belongs to a filter that was lost.
fn later(before: CardCount, Hits { packets, bytes, idle_ns }: Hits) -> CardCount {
    if packets <= before.packets {
        return before;
    }
    CardCount { packets, bytes, last_ns: weir_state::now_ns().saturating_sub(idle_ns), zero: 0 }
}

/// A copy of the error.
fn again(error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), error.to_string())
}
