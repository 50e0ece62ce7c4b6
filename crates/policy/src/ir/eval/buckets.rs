//! The buckets of a program's limiters, and their clock.

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
    /// The word of each bucket, indexed by label as `entries` is.
    words: Vec<u64>,
    log: Log,
    /// The counts of each bucket, indexed by label.
    counts: Vec<Charged>,
}

/// The counts of a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Charged {
    /// Packets that exceeded it.
    pub exceeded: u64,
    /// Packets that were charged to it.
    pub passed: u64,
}

/// The buckets of a `limit each`.
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

    /// Sets the clock, which never goes back. All buckets are full at the first packet.
    pub(super) fn tick(&mut self, time_ns: u64) {
        if self.clock_ns.is_none() {
            self.limiters.iter_mut().for_each(|limiter| limiter.fill(time_ns));
        }
        self.clock_ns = self.clock_ns.max(Some(time_ns));
    }

    /// Charges a packet to the bucket of a label and, for nested limits, to the enclosing ones. It charges all of them
    /// or none, and returns whether it did. An excess packet is counted by the innermost bucket that it exceeds, a
    /// charged packet by all its buckets.
    pub(super) fn has_room(&mut self, limiter: LimiterId, label: u32, bytes: u32) -> bool {
        let now_ns = self.now_ns();
        match &mut self.limiters[usize::from(limiter.0)] {
            Limiter::Listed(listed) => listed.has_room(label, ticks(now_ns), bytes),
            Limiter::Each(_) => unreachable!("compiler bug: a table of addresses has no labels"),
        }
    }

    /// Charges a packet to the bucket of an address. Returns whether it did.
    pub(super) fn has_room_for(&mut self, limiter: LimiterId, address: u128, bytes: u32) -> bool {
        let now_ns = self.now_ns();
        match &mut self.limiters[usize::from(limiter.0)] {
            Limiter::Listed(_) => unreachable!("compiler bug: a list has no buckets of addresses"),
            Limiter::Each(each) => each.has_room(address, now_ns, bytes),
        }
    }

    /// The counts of a limiter's buckets, indexed by label. Empty for `limit each`.
    pub(super) fn counts(&self, limiter: LimiterId) -> &[Charged] {
        match &self.limiters[usize::from(limiter.0)] {
            Limiter::Listed(listed) => &listed.counts,
            Limiter::Each(_) => &[],
        }
    }

    fn now_ns(&self) -> u64 {
        self.clock_ns.expect("the clock is set before a packet is decided")
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
