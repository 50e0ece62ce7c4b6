//! The buckets of a program's limiters, and the clock that they go by.

use super::Tables;
use crate::ir::{LimitEach, LimiterId, LimiterKind, Log, Program};
use std::sync::Arc;
use weir_abi::each::{self, HashedAddress, REPLAY_SEED, WAYS};
use weir_abi::limit::{charge, ticks};
use weir_abi::{Family, LimitEntries, LimitProfile};

/// The buckets of all limiters.
pub(super) struct Buckets {
    limiters: Vec<Limiter>,
    /// Time of the last packet, ns; `None` before the first.
    clock_ns: Option<u64>,
}

enum Limiter {
    Listed(Listed),
    Each(Each),
}

struct Listed {
    entries: Arc<LimitEntries>,
    /// One a label, as the entries.
    words: Vec<u64>,
    log: Log,
    /// One a label.
    counts: Vec<Charged>,
}

/// What was counted for a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Charged {
    /// Packets that it had no room for.
    pub exceeded: u64,
    /// Packets that were charged to it.
    pub passed: u64,
}

/// A table of addresses.
struct Each {
    each: LimitEach,
    profile: LimitProfile,
    sets: Vec<[u64; WAYS]>,
}

impl Buckets {
    pub(super) fn new(program: &Program, tables: &impl Tables) -> Self {
        let listed = |entries: Arc<LimitEntries>, log| {
            let count = entries.entries.len();
            Limiter::Listed(Listed { entries, words: vec![0; count], log, counts: vec![Charged::default(); count] })
        };
        let limiter = |(id, limiter): (u16, &crate::ir::Limiter)| match limiter.kind {
            LimiterKind::Rate(limit) => listed(Arc::new(LimitEntries::single(limit.profile())), limiter.log),
            LimiterKind::Prefixes { .. } | LimiterKind::Labels => listed(tables.limits(LimiterId(id)), limiter.log),
            LimiterKind::Each(each) => Limiter::Each(Each::new(each)),
        };
        Buckets { limiters: (0..).zip(&program.limiters).map(limiter).collect(), clock_ns: None }
    }

    /// Sets the clock, which never goes back. At the first packet all buckets are full.
    pub(super) fn tick(&mut self, time_ns: u64) {
        if self.clock_ns.is_none() {
            self.limiters.iter_mut().for_each(|limiter| limiter.fill(time_ns));
        }
        self.clock_ns = self.clock_ns.max(Some(time_ns));
    }

    /// Charges a packet to the bucket of a label and, if limits are nested, to those around it: to all of them, or to none. Whether
    /// there was room. The innermost bucket without room counts the packet, or all that were charged.
    pub(super) fn has_room(&mut self, limiter: LimiterId, label: u32, bytes: u32) -> bool {
        let now_ns = self.now_ns();
        match &mut self.limiters[usize::from(limiter.0)] {
            Limiter::Listed(listed) => listed.has_room(label, ticks(now_ns), bytes),
            Limiter::Each(_) => unreachable!("compiler bug: a table of addresses has no labels"),
        }
    }

    /// Charges a packet to the bucket of an address.
    pub(super) fn has_room_for(&mut self, limiter: LimiterId, address: u128, bytes: u32) -> bool {
        let now_ns = self.now_ns();
        match &mut self.limiters[usize::from(limiter.0)] {
            Limiter::Listed(_) => unreachable!("compiler bug: a list is asked for an address"),
            Limiter::Each(each) => each.has_room(address, now_ns, bytes),
        }
    }

    /// What was counted for the buckets of a limiter, by label; a table of addresses counts nothing.
    pub(super) fn counts(&self, limiter: LimiterId) -> &[Charged] {
        match &self.limiters[usize::from(limiter.0)] {
            Limiter::Listed(listed) => &listed.counts,
            Limiter::Each(_) => &[],
        }
    }

    fn now_ns(&self) -> u64 {
        self.clock_ns.expect("the clock is set before a packet is judged")
    }
}

impl Limiter {
    fn fill(&mut self, now_ns: u64) {
        match self {
            Limiter::Listed(listed) => listed.words.fill(ticks(now_ns)),
            Limiter::Each(each) => {
                let word = each::empty(each::ticks(now_ns, each.profile.coarse));
                each.sets.fill([word; WAYS]);
            }
        }
    }
}

impl Listed {
    fn has_room(&mut self, label: u32, now: u64, bytes: u32) -> bool {
        let Listed { entries, words, log, counts } = self;
        let mut charged = Vec::new();
        let mut bucket = label as usize;
        loop {
            let entry = entries.entries[bucket];
            let profile = entries.profiles[entry.profile as usize];
            match charge(words[bucket], now, profile.cost(bytes), profile.room) {
                Some(word) => charged.push((bucket, word)),
                None => {
                    counts[bucket].exceeded += u64::from(entry.profile != 0 && *log != Log::Off);
                    return false;
                }
            }
            if entry.parent == 0 {
                break;
            }
            bucket = entry.parent as usize;
        }
        for (bucket, word) in charged {
            words[bucket] = word;
            counts[bucket].passed += u64::from(entries.entries[bucket].profile != 0 && *log == Log::All);
        }
        true
    }
}

impl Each {
    fn new(each: LimitEach) -> Self {
        let profile = each::profile(each.limit).expect("compiler bug: a burst that check refuses");
        Each { each, profile, sets: vec![[0; WAYS]; 1 << each::set_bits(each.size)] }
    }

    fn has_room(&mut self, address: u128, now_ns: u64, bytes: u32) -> bool {
        let (address, set_bits) = (address & self.each.mask(), each::set_bits(self.each.size));
        let hashed = match self.each.key.family() {
            Family::Ipv4 => HashedAddress::of_ipv4(address as u32, REPLAY_SEED, set_bits),
            Family::Ipv6 => HashedAddress::of_ipv6(address, REPLAY_SEED, set_bits),
        };
        let LimitProfile { coarse, room, .. } = self.profile;
        let set = &mut self.sets[hashed.set as usize];
        each::charge(set, hashed.tag, each::ticks(now_ns, coarse), self.profile.cost(bytes), room)
    }
}
