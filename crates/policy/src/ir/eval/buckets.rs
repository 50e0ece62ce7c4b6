//! The buckets of a program's limiters, and their clock.

use super::Tables;
use super::tracking::Holding;
use crate::ir::{EachLimit, LimitEach, LimiterId, LimiterKind, Log, Program};
use std::sync::Arc;
use weir_abi::each::{self, EXCEEDER_SET_BITS, EXCEEDER_SETS, HashedAddress, REPLAY_SEED, Record, WAYS};
use weir_abi::limit::{charge, ticks};
use weir_abi::{Family, Limit, LimitEntries, LimitProfile, seats};

/// The buckets of all limiters.
pub(super) struct Buckets {
    limiters: Vec<Limiter>,
    /// Time of the last packet, ns; `None` before the first.
    clock_ns: Option<u64>,
}

enum Limiter {
    Listed(Listed),
    Each(Each),
    Connections(Connections),
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
    exceeders: Exceeders,
}

/// The seats of a `limit each` of connections.
struct Connections {
    each: LimitEach,
    seats: u16,
    /// The words of all sets.
    words: Vec<u64>,
    exceeders: Exceeders,
}

/// Records of the addresses that were exceeded most; empty if nothing is counted.
struct Exceeders {
    family: Family,
    sets: Vec<[Record; WAYS]>,
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
            LimiterKind::Each(each) => match each.limit {
                EachLimit::Rate(limit) => Limiter::Each(Each::new(each, limit, limiter.log)),
                EachLimit::Connections(number) => Limiter::Connections(Connections::new(each, number, limiter.log)),
            },
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
            Limiter::Each(_) | Limiter::Connections(_) => {
                unreachable!("compiler bug: a table of addresses has no labels")
            }
        }
    }

    /// Charges a packet to the bucket of an address. Returns whether it did.
    pub(super) fn has_room_for(&mut self, limiter: LimiterId, address: u128, bytes: u32) -> bool {
        let now_ns = self.now_ns();
        match &mut self.limiters[usize::from(limiter.0)] {
            Limiter::Each(each) => each.has_room(address, now_ns, bytes),
            Limiter::Listed(_) | Limiter::Connections(_) => {
                unreachable!("compiler bug: a limiter without buckets of addresses")
            }
        }
    }

    /// Whether an address may hold the connection of a packet.
    pub(super) fn may_hold(&mut self, limiter: LimiterId, address: u128, holding: Holding<'_>) -> bool {
        match &mut self.limiters[usize::from(limiter.0)] {
            Limiter::Connections(connections) => connections.may_hold(address, holding),
            Limiter::Listed(_) | Limiter::Each(_) => unreachable!("compiler bug: a limiter without seats"),
        }
    }

    /// Calls `visit` with the counts of a limiter's buckets that are not 0: by label, and by address in `limit each`.
    pub(super) fn counts(&self, limiter: LimiterId, visit: &mut dyn FnMut(u128, Charged)) {
        match &self.limiters[usize::from(limiter.0)] {
            Limiter::Listed(listed) => {
                let counts = (0..).zip(&listed.counts).filter(|(_, count)| **count != Charged::default());
                counts.for_each(|(label, count)| visit(label, *count));
            }
            Limiter::Each(each) => each.exceeders.counts(visit),
            Limiter::Connections(connections) => connections.exceeders.counts(visit),
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
            Limiter::Connections(_) => {}
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

impl Exceeders {
    fn new(each: LimitEach, log: Log) -> Self {
        let sets = if log == Log::Off { 0 } else { EXCEEDER_SETS };
        Exceeders { family: each.key.family(), sets: vec![[Record::default(); WAYS]; sets] }
    }

    fn counts(&self, visit: &mut dyn FnMut(u128, Charged)) {
        for (set, records) in self.sets.iter().enumerate() {
            for record in records {
                if let Some(address) = each::exceeder(record, set, self.family, REPLAY_SEED) {
                    visit(address, Charged { exceeded: record[0] & each::PACKETS_MASK, passed: 0 });
                }
            }
        }
    }

    fn count(&mut self, address: u128) {
        let hashed = HashedAddress::of(address, self.family, REPLAY_SEED, EXCEEDER_SET_BITS);
        if let Some(records) = self.sets.get_mut(hashed.set as usize) {
            each::count_exceeded(records, hashed.tag, address);
        }
    }
}

impl Each {
    fn new(each: LimitEach, limit: Limit, log: Log) -> Self {
        let profile = each::profile(limit).expect("compiler bug: a burst that check refuses");
        let sets = vec![[0; WAYS]; 1 << each::set_bits(each.size)];
        Each { each, profile, sets, exceeders: Exceeders::new(each, log) }
    }

    fn has_room(&mut self, address: u128, now_ns: u64, bytes: u32) -> bool {
        let (address, family) = (address & self.each.mask(), self.each.key.family());
        let hashed = HashedAddress::of(address, family, REPLAY_SEED, each::set_bits(self.each.size));
        let LimitProfile { coarse, room, .. } = self.profile;
        let set = &mut self.sets[hashed.set as usize];
        let has_room = each::charge(set, hashed.tag, each::ticks(now_ns, coarse), self.profile.cost(bytes), room);
        if !has_room {
            self.exceeders.count(address);
        }
        has_room
    }
}

impl Connections {
    fn new(each: LimitEach, seats: u16, log: Log) -> Self {
        Connections { each, seats, words: vec![0; each.words()], exceeders: Exceeders::new(each, log) }
    }

    fn may_hold(&mut self, address: u128, holding: Holding<'_>) -> bool {
        let (address, family) = (address & self.each.mask(), self.each.key.family());
        let hashed = HashedAddress::of(address, family, REPLAY_SEED, each::set_bits(self.each.size));
        let words = seats::set_words(self.seats);
        let set = &mut self.words[hashed.set as usize * words..][..words];
        let Holding { seat, claim, mut is_live } = holding;
        let may_hold = seats::grant(set, self.seats, hashed.tag, seat, claim, &mut is_live);
        if !may_hold {
            self.exceeders.count(address);
        }
        may_hold
    }
}
