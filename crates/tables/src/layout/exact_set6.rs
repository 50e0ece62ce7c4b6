//! Exact set of IPv6: a set whose prefixes are all /64 or /128. A lookup compares the key with one cache line for each
//! of the two lengths.
//!
//! Keys are stored whole. A seeded hash selects a bucket of one cache line: 8 networks (the high 64 bits) or 4 hosts. A
//! set with both kinds searches both. A set without keys of a kind has no buckets for it.
//!
//! ```text
//! x        = (high ^ seed) * M1               a network's: 0 is added to it, a host's: rotated right by 32, low is added to it
//! hash     = x ^ x >> 32, * M2, ^ >> 29, * M3, ^ >> 32                       64 bits, M1 to M3 odd
//! bucket   = (hash div 2^32) * buckets div 2^32,       group of the overflow = (hash mod 2^32) * groups div 2^32
//!
//! nets      63    0 63    0         63    0     8 words each; ff..ff: the slot is free
//!          +-------+-------+  ...  +-------+
//!          | high  | high  |       | high  |    in the last one ff..fe: the bucket has overflowed
//!          +-------+-------+  ...  +-------+
//! hosts     63    0 63    0  63    0 63    0    4 pairs each; high ff..ff: the slot is free
//!          +-------+-------+-------+-------+
//!          | high  | low   | high  | low   |    in the last one high ff..fe: the bucket has overflowed
//!          +-------+-------+-------+-------+
//! overflow  63    0 63    0 63    0 63    0    groups of 4 entries, 128 bytes
//!          +-------+-------+-------+-------+
//!          | kind  | high  | low   | 0     |    kind 0: free, 1: a network (low is 0), 2: a host
//!          +-------+-------+-------+-------+
//! header    section[6], section[7] = low and high half of the seed; how many buckets and groups there are, the sections' bytes say
//! ```
//! Keys that look like a mark are only stored in the overflow: high ff..fe and ff..ff, and hosts with low ff..ff, which
//! is the low half of a free pair.
//!
//! Example: 2001:db8:1:2::/64 is the word `0x20010db800010002` in one of the 8 slots of its bucket.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use weir_abi::Layout;

use crate::cells::Cells;
use crate::image::{BuildError, Header, Image, ImageError, Section, Writer};
use crate::layout::Room;
use crate::prefix::Prefix6;
use crate::trace::{Trace, TracedLines};

const M1: u64 = 0x9e37_79b9_7f4a_7c15;
const M2: u64 = 0xbf58_476d_1ce4_e5b9;
const M3: u64 = 0x94d0_49bb_1331_11eb;

/// Words per bucket: one cache line.
const LINE_WORDS: usize = 8;
pub(crate) const WORD_BYTES: usize = 8;
const GROUP_ENTRIES: usize = 4;
const ENTRY_WORDS: usize = 4;
const GROUP_WORDS: usize = GROUP_ENTRIES * ENTRY_WORDS;

/// The high half, or network, of a free slot, and the low half of a free pair.
pub(crate) const FREE: u64 = u64::MAX;
/// The mark: the high half in the last slot of a bucket that has overflowed.
pub(crate) const OVERFLOWED: u64 = u64::MAX - 1;

/// The kind of an overflow entry.
const KIND_NET: u64 = 1;
const KIND_HOST: u64 = 2;

/// Number of seeds that the builder tries.
const SEEDS: u64 = 32;
/// The first seeds are the same for all tables, so a hostile list can defeat them all. The others depend on the whole
/// list.
const KNOWN_SEEDS: u64 = 8;
/// The overflow has at most this many times the entries stored in it.
const OVERFLOW_GROWTH_MAX: usize = 16;
/// A seed is accepted if at most one key in this many goes to the overflow.
const LEFT_ONE_IN: usize = 64;
/// This number of keys in the overflow is always accepted.
const LEFT_MIN: usize = 8;
/// A set that may change has spare room in the overflow for one key in this many, and for at least [`LEFT_SPARE_MIN`].
const LEFT_SPARE_ONE_IN: usize = 16;
const LEFT_SPARE_MIN: usize = 64;
/// If such a set has keys of a kind, it has room for at least this many more.
const KEYS_SPARE_MIN: usize = 256;

const NETS: usize = 0;
const HOSTS: usize = 1;
const OVERFLOW: usize = 2;
const SEED: usize = 6;

pub(crate) const SECTIONS: [&str; 3] = ["nets", "hosts", "overflow"];

/// A key: a network or a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Key {
    /// The high 64 bits of a /64.
    Net(u64),
    /// The high and low 64 bits of a /128.
    Host(u64, u64),
}

impl Key {
    /// The key of a prefix, if it is a /64 or a /128.
    pub fn of(prefix: &Prefix6) -> Option<Self> {
        let (high, low) = ((prefix.addr >> 64) as u64, prefix.addr as u64);
        match prefix.len {
            64 => Some(Key::Net(high)),
            128 => Some(Key::Host(high, low)),
            _ => None,
        }
    }

    fn hash(self, seed: u64) -> u64 {
        let mut x = match self {
            Key::Net(high) => (high ^ seed).wrapping_mul(M1),
            Key::Host(high, low) => (high ^ seed).wrapping_mul(M1).rotate_right(32).wrapping_add(low),
        };
        x = (x ^ x >> 32).wrapping_mul(M2);
        x = (x ^ x >> 29).wrapping_mul(M3);
        x ^ x >> 32
    }

    /// Whether the key looks like a mark and so cannot be in a bucket.
    pub fn looks_like_a_mark(self) -> bool {
        match self {
            Key::Net(high) => high >= OVERFLOWED,
            Key::Host(high, low) => high >= OVERFLOWED || low == FREE,
        }
    }

    /// Number of slots per bucket.
    pub fn slots(self) -> usize {
        LINE_WORDS / self.words()
    }

    /// Number of words per slot.
    pub fn words(self) -> usize {
        match self {
            Key::Net(_) => 1,
            Key::Host(..) => 2,
        }
    }

    /// The key of an overflow entry; `None` if the entry is free.
    pub fn of_entry(entry: [u64; 3]) -> Option<Self> {
        match entry {
            [KIND_NET, high, _] => Some(Key::Net(high)),
            [KIND_HOST, high, low] => Some(Key::Host(high, low)),
            _ => None,
        }
    }

    /// Kind, high and low half, as stored in the overflow.
    pub fn entry(self) -> [u64; 3] {
        match self {
            Key::Net(high) => [KIND_NET, high, 0],
            Key::Host(high, low) => [KIND_HOST, high, low],
        }
    }
}

/// Maps `hash div 2^32` or `hash mod 2^32` to a number below `count`.
fn reduce(half: u32, count: usize) -> usize {
    ((u64::from(half) * count as u64) >> 32) as usize
}

/// The hash seed of an attempt.
fn seed(keys: &[Key], attempt: u64) -> u64 {
    let known = (attempt + 1).wrapping_mul(M1).wrapping_mul(M2);
    if attempt < KNOWN_SEEDS {
        return known;
    }
    BuildHasherDefault::<DefaultHasher>::default().hash_one((known, keys))
}

/// Builds the image of distinct prefixes.
pub(crate) fn build(prefixes: &[Prefix6], room: Room) -> Result<Image, BuildError> {
    let layout = Layout::ExactSet6;
    let mut keys = Vec::with_capacity(prefixes.len());
    for prefix in prefixes {
        let refused = || BuildError::NotANetOrHost { layout, prefix: prefix.to_string() };
        keys.push(Key::of(prefix).ok_or_else(refused)?);
    }
    let nets = keys.iter().filter(|key| matches!(key, Key::Net(_))).count();
    let hosts = keys.len() - nets;
    let with_room = |count: usize| count + if count > 0 { room.beside(count, KEYS_SPARE_MIN) } else { 0 };
    let spare = room.beside(keys.len() / LEFT_SPARE_ONE_IN, LEFT_SPARE_MIN);
    // These keys are in the overflow with any seed.
    let marks = keys.iter().filter(|key| key.looks_like_a_mark()).count();
    let left_max = marks + LEFT_MIN.max(keys.len() / LEFT_ONE_IN);
    for attempt in 0..SEEDS {
        let mut filler = Filler::new(with_room(nets), with_room(hosts), seed(&keys, attempt));
        keys.iter().for_each(|&key| filler.insert(key));
        let last = attempt + 1 == SEEDS;
        if filler.left.len() > left_max && !last {
            continue;
        }
        let Some(overflow) = filler.overflow(spare) else { continue };
        let sections = [Section::U64(&filler.nets), Section::U64(&filler.hosts), Section::U64(&overflow)];
        let seed = filler.seed;
        let writer = Writer { layout, entries: prefixes.len(), labels: 1 };
        return writer.write(&sections, &[(SEED, seed as u32), (SEED + 1, (seed >> 32) as u32)]);
    }
    Err(BuildError::Limit { layout, what: "prefixes in a group of the overflow", max: GROUP_ENTRIES })
}

/// Buckets under construction.
struct Filler {
    seed: u64,
    nets: Vec<u64>,
    hosts: Vec<u64>,
    left: Vec<Key>,
}

impl Filler {
    fn new(nets: usize, hosts: usize, seed: u64) -> Self {
        // On average 3 of 8 or 1 of 4 slots are used, and one bucket in 260 overflows.
        let lines = |count: usize| vec![FREE; count * LINE_WORDS];
        Filler { seed, nets: lines(nets.div_ceil(3)), hosts: lines(hosts), left: Vec::new() }
    }

    fn insert(&mut self, key: Key) {
        if key.looks_like_a_mark() {
            return self.left.push(key);
        }
        let lines = match key {
            Key::Net(_) => &mut self.nets,
            Key::Host(..) => &mut self.hosts,
        };
        let bucket = reduce((key.hash(self.seed) >> 32) as u32, lines.len() / LINE_WORDS);
        let line = &mut lines[bucket * LINE_WORDS..][..LINE_WORDS];
        let [_, high, low] = key.entry();
        if let Some(slot) = line.chunks_exact_mut(key.words()).find(|slot| slot[0] == FREE) {
            slot[0] = high;
            slot.iter_mut().skip(1).for_each(|word| *word = low);
            return;
        }
        self.left.push(key);
        let last = &mut line[LINE_WORDS - key.words()..];
        match (key, last[0]) {
            (_, OVERFLOWED) => {}
            (Key::Net(_), high) => self.left.push(Key::Net(high)),
            (Key::Host(..), high) => self.left.push(Key::Host(high, last[1])),
        }
        last.fill(FREE);
        last[0] = OVERFLOWED;
    }

    /// The groups of the overflow, with room for `spare` more keys. `None` if too many keys share a group.
    fn overflow(&self, spare: usize) -> Option<Vec<u64>> {
        let least = (self.left.len() + spare).max(2);
        let mut groups = least;
        while groups <= least * OVERFLOW_GROWTH_MAX {
            if let Some(words) = self.overflow_of(groups) {
                return Some(words);
            }
            groups *= 2;
        }
        None
    }

    fn overflow_of(&self, groups: usize) -> Option<Vec<u64>> {
        let mut words = vec![0; groups * GROUP_WORDS];
        for key in &self.left {
            let group = reduce(key.hash(self.seed) as u32, groups);
            let mut entries = words[group * GROUP_WORDS..][..GROUP_WORDS].chunks_exact_mut(ENTRY_WORDS);
            entries.find(|entry| entry[0] == 0)?[..3].copy_from_slice(&key.entry());
        }
        Some(words)
    }
}

/// The positions of buckets and overflow in an image.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exact6Buckets {
    seed: u64,
    nets: Lines,
    hosts: Lines,
    overflow: Lines,
}

/// Byte offset and number of buckets or groups.
#[derive(Clone, Copy, Debug)]
struct Lines {
    at: usize,
    count: usize,
}

impl Exact6Buckets {
    /// Locates the sections and checks their bounds.
    pub fn open(header: &Header, image: &[u8]) -> Result<Self, ImageError> {
        if header.labels != 1 {
            return Err(header.corrupt("header", "label count"));
        }
        let lines = |section: usize, words: usize| {
            let name = SECTIONS[section];
            let found: &[[u8; WORD_BYTES]] = header.section(image, section, name)?;
            match found.len().is_multiple_of(words) {
                true => Ok(Lines { at: header.section[2 * section] as usize, count: found.len() / words }),
                false => Err(header.corrupt(name, "section size")),
            }
        };
        let buckets = Exact6Buckets {
            seed: u64::from(header.section[SEED]) | u64::from(header.section[SEED + 1]) << 32,
            nets: lines(NETS, LINE_WORDS)?,
            hosts: lines(HOSTS, LINE_WORDS)?,
            overflow: lines(OVERFLOW, GROUP_WORDS)?,
        };
        match buckets.overflow.count {
            0 => Err(header.corrupt("overflow", "section size")),
            _ => Ok(buckets),
        }
    }

    /// Number of buckets of both kinds.
    pub fn count(&self) -> usize {
        self.nets.count + self.hosts.count
    }

    /// Byte offset of the key's bucket, if the set has buckets of its kind.
    pub fn bucket(&self, key: Key) -> Option<usize> {
        let lines = match key {
            Key::Net(_) => self.nets,
            Key::Host(..) => self.hosts,
        };
        let bucket = reduce((key.hash(self.seed) >> 32) as u32, lines.count);
        (lines.count > 0).then_some(lines.at + bucket * LINE_WORDS * WORD_BYTES)
    }

    /// Byte offsets of all overflow entries.
    pub fn all_entries(&self) -> impl Iterator<Item = usize> + use<> {
        let at = self.overflow.at;
        (0..self.overflow.count * GROUP_ENTRIES).map(move |entry| at + entry * ENTRY_WORDS * WORD_BYTES)
    }

    /// Byte offsets of the slots, of the size for `key`, in the bucket at byte `bucket`.
    pub fn slots(&self, bucket: usize, key: Key) -> impl DoubleEndedIterator<Item = usize> + ExactSizeIterator + use<> {
        let bytes = key.words() * WORD_BYTES;
        (0..key.slots()).map(move |slot| bucket + slot * bytes)
    }

    /// Byte offsets of the entries in the key's group of the overflow.
    pub fn entries(&self, key: Key) -> impl Iterator<Item = usize> + use<> {
        let group = reduce(key.hash(self.seed) as u32, self.overflow.count);
        let at = self.overflow.at + group * GROUP_WORDS * WORD_BYTES;
        (0..GROUP_ENTRIES).map(move |entry| at + entry * ENTRY_WORDS * WORD_BYTES)
    }

    /// Whether the set holds exactly this key.
    pub fn holds(&self, cells: &(impl Cells + ?Sized), key: Key) -> bool {
        let Some(bucket) = self.bucket(key) else { return false };
        let mut overflows = key.looks_like_a_mark();
        if !overflows {
            let [_, high, low] = key.entry();
            for slot in self.slots(bucket, key) {
                // The slot is read once, because its key and its mark must be consistent.
                let found = cells.u64(slot);
                if found == high && (key.words() == 1 || cells.u64(slot + WORD_BYTES) == low) {
                    return true;
                }
                overflows = found == OVERFLOWED;
            }
        }
        overflows && self.entries(key).any(|entry| self.is(cells, entry, key))
    }

    /// Whether the overflow entry at `entry` holds the key. The kind is read first, because it is written last.
    pub fn is(&self, cells: &(impl Cells + ?Sized), entry: usize, key: Key) -> bool {
        let [kind, high, low] = key.entry();
        cells.u64(entry) == kind && cells.u64(entry + WORD_BYTES) == high && cells.u64(entry + 2 * WORD_BYTES) == low
    }

    /// 1 if `addr` is in a prefix of the set, 0 if not.
    pub fn find(&self, cells: &(impl Cells + ?Sized), addr: u128) -> u32 {
        let (high, low) = ((addr >> 64) as u64, addr as u64);
        u32::from(self.holds(cells, Key::Net(high)) || self.holds(cells, Key::Host(high, low)))
    }
}

/// The checked sections of an image.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    image: &'a [u8],
    buckets: Exact6Buckets,
}

impl<'a> View<'a> {
    /// Locates the sections and checks their bounds. The sections contain no index, so lookups stay inside them
    /// whatever the words are.
    pub fn open(header: &Header, image: &'a [u8]) -> Result<Self, ImageError> {
        Ok(View { image, buckets: Exact6Buckets::open(header, image)? })
    }

    /// 1 if `addr` is in a prefix of the set, 0 if not.
    pub fn find(&self, addr: u128) -> u32 {
        self.buckets.find(self.image, addr)
    }

    /// Records what a lookup in C reads. It searches both kinds without waiting for the first.
    pub fn trace(&self, addr: u128, trace: &mut Trace) {
        let (high, low) = ((addr >> 64) as u64, addr as u64);
        let cells = TracedLines::new(self.image, trace);
        self.buckets.holds(&cells, Key::Net(high));
        self.buckets.holds(&cells, Key::Host(high, low));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_collide_get_another_seed() {
        // Hosts of one network whose hashes under the first seed differ only in the low half: all are in one bucket.
        let seed = seed(&[], 0);
        let high = 0x2001_0db8_0000_0000u64;
        let keys: Vec<_> = (0..1000u64).map(|low| host(seed, high, low << 8)).collect();
        assert!(keys.iter().all(|key| key.hash(seed) >> 32 == 0), "the hash is undone");
        holds_all(&keys);
    }

    #[test]
    fn keys_that_collide_under_every_known_seed_are_held() {
        // Under each seed there are hosts with equal hashes, more than a bucket and an overflow group can hold.
        let host_of = |attempt, network: u64| host(seed(&[], attempt), 0x2001_0db8_0000_0000 + network, 0);
        let keys: Vec<_> =
            (0..SEEDS).flat_map(|attempt| (0..9).map(move |network| host_of(attempt, network))).collect();
        holds_all(&keys);
    }

    /// The host of a network whose hash is `hash`.
    fn host(seed: u64, high: u64, hash: u64) -> Key {
        let inverse = |odd: u64| (0..6).fold(odd, |x, _| x.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(x))));
        let x = (hash ^ hash >> 32).wrapping_mul(inverse(M3));
        let x = (x ^ x >> 29 ^ x >> 58).wrapping_mul(inverse(M2));
        let base = (high ^ seed).wrapping_mul(M1).rotate_right(32);
        Key::Host(high, (x ^ x >> 32).wrapping_sub(base))
    }

    fn holds_all(keys: &[Key]) {
        let address = |[_, high, low]: [u64; 3]| u128::from(high) << 64 | u128::from(low);
        let prefixes: Vec<_> = keys.iter().map(|key| Prefix6::new(address(key.entry()), 128, 1)).collect();
        let image = build(&prefixes, Room::None).unwrap_or_else(|error| panic!("{error}"));
        assert!(image.sections()[3].1 < 100 * GROUP_WORDS * WORD_BYTES, "{:?}", image.sections());
        assert!(prefixes.iter().all(|prefix| image.view().find6(prefix.addr) == 1));
    }
}
