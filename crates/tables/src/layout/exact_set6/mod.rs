//! Exact sets of IPv6: one set whose prefixes are all /64 or /128, or up to four such sets for the same key. A lookup
//! compares the key with one cache line for each of the two lengths, and rarely with a second one.
//!
//! A bucket is one cache line: 8 networks or 4 hosts. A key has two buckets. It is in the second one only if the first
//! one is full, and the first one says so: bits of its words, the *filter*, say which keys went on from there. A set
//! with both kinds of keys searches both. A set without keys of a kind has no buckets for it.
//!
//! For a given network, the hash is a permutation of the hosts, so network and hash identify a host. The hash alone
//! identifies a network. A word stores 58 bits of the hash, the *remainder*; the bucket says the others, because a kind
//! has no buckets or at least 64. From a remainder follow also the distance of the two buckets and the filter bit.
//!
//! ```text
//! x        = (high ^ seed) * M1               a network's: 0 is added to it, a host's: rotated right by 32, low is added to it
//! hash     = x ^ x >> 32, * M2, ^ >> 29, * M3, ^ >> 32                       64 bits, M1 to M3 odd
//! first    = (hash div 2^32) * buckets div 2^32
//! second   = first + 1 + (hash mod 2^32) * (buckets - 1) div 2^32 mod buckets
//!
//! word       63         6 5   4 3      0
//!           +------------+-----+--------+  state 0: the slot is free, 1: a key in its first bucket, 2: in its second
//!           | remainder  |state| filter |  filter: belongs to the bucket, not to the slot
//!           +------------+-----+--------+  remainder = hash mod 2^58
//! nets      8 words each
//!           | word  | word  |  ...  | word  |    filter bit of a key: bit hash div 8 mod 4 of word hash mod 8
//! hosts     4 pairs each; filter bit of a key: bit hash div 4 mod 4 of the word of pair hash mod 4
//!           | word  | high  |  ...  | word  | high  |
//! group    = (hash mod 2^32) * groups div 2^32
//! overflow  63    0 63    0 63    0 63    0    groups of 4 entries, 128 bytes
//!          +-------+-------+-------+-------+
//!          | kind  | high  | low   | 0     |    kind 0: free, 1: a network (low is 0), 2: a host
//!          +-------+-------+-------+-------+
//! header    section[6], section[7] = low and high half of the seed; how many buckets and groups there are, the sections' bytes say
//! ```
//! A lookup compares the first bucket. If the key is not there, and its filter bit is set, it compares the second
//! bucket, and if the filter bit is set there too, its group of the overflow. So no key reads more than three lines of
//! a kind. The high half of a free pair is ff..ff, and hosts of that network are only in the overflow (live/exact6.rs
//! says why).
//!
//! Fused sets (`exact-sets6`) store a key once, and its word says which *members* have it. A lookup returns one bit per
//! member. A kind has at least 1024 buckets, so that a word can lack 4 bits of the hash more:
//!
//! ```text
//! word       63        10 9     6 5   4 3      0
//!           +------------+-------+-----+--------+
//!           | remainder  |members|state| filter |  remainder = hash mod 2^54; the last word of an overflow entry has the
//!           +------------+-------+-----+--------+  members; labels = 2^members - 1
//! ```
//!
//! On average 6 of 8 and 3 of 4 slots are used: 11 bytes a network and 21 a host. One network in 19 and one host in 9
//! are then in their second bucket. A key that is not in the set finds its filter bit set in one lookup of 100
//! (networks) or 50 (hosts).
//!
//! Example: 2001:db8:1:2::/64 with the hash `0x4000_0000_8000_0019` in 64 buckets. Its first bucket is 16, its second
//! 16 + 1 + 31 = 48. The remainder is `0x8000_0019`, as the 58 bits lack the leading `0x4`. Its filter bit is bit 3 of
//! word 1.

use weir_abi::Layout;

use crate::cells::Cells;
use crate::image::{Header, ImageError};
use crate::layout::exact_sets::MEMBERS_MAX;
use crate::prefix::Prefix6;
use crate::trace::{Trace, TracedLines};

mod build;
mod words;

pub(crate) use build::{build, build_fused};
use words::STATE;
pub(crate) use words::{FILTER, FIRST, SECOND, Words, is_free};

const M1: u64 = 0x9e37_79b9_7f4a_7c15;
const M2: u64 = 0xbf58_476d_1ce4_e5b9;
const M3: u64 = 0x94d0_49bb_1331_11eb;

/// Words per bucket: one cache line.
const LINE_WORDS: usize = 8;
pub(crate) const WORD_BYTES: usize = 8;
const GROUP_ENTRIES: usize = 4;
const ENTRY_WORDS: usize = 4;
const GROUP_WORDS: usize = GROUP_ENTRIES * ENTRY_WORDS;
/// Byte of an overflow entry where its members are, in fused sets.
pub(crate) const MEMBERS_AT: usize = 3 * WORD_BYTES;

/// The high half of a free pair.
pub(crate) const NO_HOST: u64 = u64::MAX;

const NETS: usize = 0;
const HOSTS: usize = 1;
const OVERFLOW: usize = 2;
const SEED: usize = 6;

pub(crate) const SECTIONS: [&str; 3] = ["nets", "hosts", "overflow"];

/// The kind of a key, with its number in an entry of the overflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum KeyKind {
    Net = 1,
    Host = 2,
}

impl KeyKind {
    /// Number of words per slot.
    pub const fn words(self) -> usize {
        self as usize
    }

    /// The other kind.
    pub const fn other(self) -> Self {
        match self {
            KeyKind::Net => KeyKind::Host,
            KeyKind::Host => KeyKind::Net,
        }
    }

    /// Number of slots per bucket.
    pub const fn slots(self) -> usize {
        LINE_WORDS / self.words()
    }

    /// The slot and the bit in its word that say whether keys of this hash went on from a bucket.
    fn filter(self, hash: u64) -> (usize, u64) {
        let slots = self.slots() as u64;
        ((hash % slots) as usize, 1 << (hash / slots % 4))
    }
}

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

    pub fn kind(self) -> KeyKind {
        match self {
            Key::Net(_) => KeyKind::Net,
            Key::Host(..) => KeyKind::Host,
        }
    }

    /// The high 64 bits.
    pub fn high(self) -> u64 {
        self.entry()[1]
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

    /// The host of a network whose hash under a seed is `hash`.
    #[cfg(test)]
    fn host_of(seed: u64, high: u64, hash: u64) -> Self {
        let inverse = |odd: u64| (0..6).fold(odd, |x, _| x.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(x))));
        let x = (hash ^ hash >> 32).wrapping_mul(inverse(M3));
        let x = (x ^ x >> 29 ^ x >> 58).wrapping_mul(inverse(M2));
        let base = (high ^ seed).wrapping_mul(M1).rotate_right(32);
        Key::Host(high, (x ^ x >> 32).wrapping_sub(base))
    }

    /// Whether the key is a host with the high half by which buckets mark a free pair. Only the overflow can have it.
    pub fn is_only_in_overflow(self) -> bool {
        matches!(self, Key::Host(NO_HOST, _))
    }

    /// The key of an overflow entry; `None` if the entry is free.
    pub fn of_entry([kind, high, low]: [u64; 3]) -> Option<Self> {
        match kind {
            _ if kind == KeyKind::Net as u64 => Some(Key::Net(high)),
            _ if kind == KeyKind::Host as u64 => Some(Key::Host(high, low)),
            _ => None,
        }
    }

    /// Kind, high and low half, as stored in the overflow.
    pub fn entry(self) -> [u64; 3] {
        match self {
            Key::Net(high) => [KeyKind::Net as u64, high, 0],
            Key::Host(high, low) => [KeyKind::Host as u64, high, low],
        }
    }
}

/// Maps `hash div 2^32` or `hash mod 2^32` to a number below `count`.
fn reduce(half: u32, count: usize) -> usize {
    ((u64::from(half) * count as u64) >> 32) as usize
}

/// The number of the hash's first bucket of `count`.
fn first(hash: u64, count: usize) -> usize {
    reduce((hash >> 32) as u32, count)
}

/// How far the second bucket is after the first one. Depends on the low half of the hash only.
fn distance(hash: u64, count: usize) -> usize {
    1 + reduce(hash as u32, count - 1)
}

/// The number of the second bucket, if `first` is the first one.
fn second(hash: u64, first: usize, count: usize) -> usize {
    (first + distance(hash, count)) % count
}

/// A filter bit: byte offset of its word, and the bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FilterBit {
    pub at: usize,
    pub bit: u64,
}

impl FilterBit {
    /// Whether keys went on from the bucket.
    pub fn is_set(self, cells: &(impl Cells + ?Sized)) -> bool {
        cells.u64(self.at) & self.bit != 0
    }
}

/// A bucket where a key may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    /// Byte offset of the bucket.
    pub bucket: usize,
    /// The key's word there, without filter and members.
    pub word: u64,
    /// Says whether the key may have gone on from here.
    pub filter: FilterBit,
}

/// The positions of buckets and overflow in an image.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exact6Buckets {
    pub words: Words,
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

impl Lines {
    /// The way of a hash to the bucket with this number, where its word is `word`.
    fn way(self, kind: KeyKind, bucket: usize, hash: u64, word: u64) -> Way {
        let bucket = self.at + bucket * LINE_WORDS * WORD_BYTES;
        let (slot, bit) = kind.filter(hash);
        let filter = FilterBit { at: bucket + slot * kind.words() * WORD_BYTES, bit };
        Way { bucket, word, filter }
    }
}

impl Exact6Buckets {
    /// Locates the sections and checks their bounds.
    pub fn open(header: &Header, image: &[u8]) -> Result<Self, ImageError> {
        let (words, highest) = match header.layout {
            Layout::ExactSets6 => (Words::Fused, (1 << MEMBERS_MAX) - 1),
            _ => (Words::OneSet, 1),
        };
        // Each member has one bit.
        if header.labels == 0 || header.labels > highest || !(header.labels + 1).is_power_of_two() {
            return Err(header.corrupt("header", "label count"));
        }
        let lines = |section: usize, each: usize, least: usize| {
            let name = SECTIONS[section];
            let found: &[[u8; WORD_BYTES]] = header.section(image, section, name)?;
            let count = found.len() / each;
            match found.len().is_multiple_of(each) && (count == 0 || count >= least) {
                true => Ok(Lines { at: header.section[2 * section] as usize, count }),
                false => Err(header.corrupt(name, "section size")),
            }
        };
        let buckets = Exact6Buckets {
            words,
            seed: u64::from(header.section[SEED]) | u64::from(header.section[SEED + 1]) << 32,
            nets: lines(NETS, LINE_WORDS, words.buckets_min())?,
            hosts: lines(HOSTS, LINE_WORDS, words.buckets_min())?,
            overflow: lines(OVERFLOW, GROUP_WORDS, 1)?,
        };
        match buckets.overflow.count {
            0 => Err(header.corrupt("overflow", "section size")),
            _ => Ok(buckets),
        }
    }

    #[cfg(test)]
    pub fn hash(&self, key: Key) -> u64 {
        key.hash(self.seed)
    }

    /// The host of a network whose hash is `hash`.
    #[cfg(test)]
    pub fn host_of(&self, high: u64, hash: u64) -> Key {
        Key::host_of(self.seed, high, hash)
    }

    /// Number of buckets of both kinds.
    pub fn count(&self) -> usize {
        self.nets.count + self.hosts.count
    }

    fn lines(&self, kind: KeyKind) -> Lines {
        match kind {
            KeyKind::Net => self.nets,
            KeyKind::Host => self.hosts,
        }
    }

    /// The first and the second bucket of a key, if the set has buckets of its kind.
    pub fn ways(&self, key: Key) -> Option<[Way; 2]> {
        let lines = self.lines(key.kind());
        if lines.count == 0 {
            return None;
        }
        let hash = key.hash(self.seed);
        let first = first(hash, lines.count);
        let second = second(hash, first, lines.count);
        let way = |bucket: usize, state: u64| lines.way(key.kind(), bucket, hash, self.words.of(hash, state));
        Some([way(first, FIRST), way(second, SECOND)])
    }

    /// The filter bits, in their first buckets, of all keys that are in their second buckets. A bit occurs once for
    /// each key.
    pub fn went_on(&self, cells: &(impl Cells + ?Sized)) -> impl Iterator<Item = FilterBit> {
        let buckets = |kind: KeyKind| (0..self.lines(kind).count).map(move |bucket| (kind, bucket));
        buckets(KeyKind::Net).chain(buckets(KeyKind::Host)).flat_map(move |(kind, bucket)| {
            let lines = self.lines(kind);
            let words = slots(lines.at + bucket * LINE_WORDS * WORD_BYTES, kind).map(|slot| cells.u64(slot));
            words.filter(|word| word & STATE == SECOND).map(move |word| {
                let hash = self.words.hash(word);
                let first = (bucket + lines.count - distance(hash, lines.count)) % lines.count;
                lines.way(kind, first, hash, word).filter
            })
        })
    }

    /// Byte offsets of all overflow entries.
    pub fn all_entries(&self) -> impl Iterator<Item = usize> + use<> {
        let at = self.overflow.at;
        (0..self.overflow.count * GROUP_ENTRIES).map(move |entry| at + entry * ENTRY_WORDS * WORD_BYTES)
    }

    /// Byte offsets of the entries in the key's group of the overflow.
    pub fn entries(&self, key: Key) -> impl Iterator<Item = usize> + use<> {
        let group = reduce(key.hash(self.seed) as u32, self.overflow.count);
        let at = self.overflow.at + group * GROUP_WORDS * WORD_BYTES;
        (0..GROUP_ENTRIES).map(move |entry| at + entry * ENTRY_WORDS * WORD_BYTES)
    }

    /// The members (a bit each) that have exactly this key.
    pub fn members(&self, cells: &(impl Cells + ?Sized), key: Key) -> u32 {
        let Some(ways) = self.ways(key) else { return 0 };
        if !key.is_only_in_overflow() {
            for way in ways {
                if let Some(members) =
                    slots(way.bucket, key.kind()).find_map(|slot| self.of_slot(cells, slot, key, way))
                {
                    return members;
                }
                if !way.filter.is_set(cells) {
                    return 0;
                }
            }
        }
        self.entries(key).find_map(|entry| self.of_entry(cells, entry, key)).unwrap_or(0)
    }

    /// The members of the slot, if it has the key in this bucket. The word is written last and read first.
    pub fn of_slot(&self, cells: &(impl Cells + ?Sized), slot: usize, key: Key, way: Way) -> Option<u32> {
        let word = cells.u64(slot);
        let is_equal = word & self.words.compared() == way.word
            && (key.kind() == KeyKind::Net || cells.u64(slot + WORD_BYTES) == key.high());
        // A word without members is in no image that a builder made.
        is_equal.then(|| self.words.members(word)).filter(|&members| members != 0)
    }

    /// The members of the overflow entry at `entry`, if it has the key. The kind is read first, because it is written
    /// last.
    pub fn of_entry(&self, cells: &(impl Cells + ?Sized), entry: usize, key: Key) -> Option<u32> {
        let [kind, high, low] = key.entry();
        let is_equal = cells.u64(entry) == kind
            && cells.u64(entry + WORD_BYTES) == high
            && cells.u64(entry + 2 * WORD_BYTES) == low;
        is_equal.then(|| self.words.members_of_entry(cells.u64(entry + MEMBERS_AT))).filter(|&members| members != 0)
    }

    /// The members (a bit each) that have `addr` in a prefix. The one set is member 0.
    pub fn find(&self, cells: &(impl Cells + ?Sized), addr: u128) -> u32 {
        let (high, low) = ((addr >> 64) as u64, addr as u64);
        self.members(cells, Key::Net(high)) | self.members(cells, Key::Host(high, low))
    }
}

/// Byte offsets of the slots in the bucket at byte `bucket`.
pub(crate) fn slots(bucket: usize, kind: KeyKind) -> impl Iterator<Item = usize> + use<> {
    (0..kind.slots()).map(move |slot| bucket + slot * kind.words() * WORD_BYTES)
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

    /// Checks that no word and no entry of the overflow has a member that the image does not have.
    pub fn check(&self, header: &Header) -> Result<(), ImageError> {
        if self.buckets.words == Words::OneSet {
            return Ok(());
        }
        let of_kind = |kind: KeyKind| {
            let lines = self.buckets.lines(kind);
            (0..lines.count).flat_map(move |bucket| slots(lines.at + bucket * LINE_WORDS * WORD_BYTES, kind))
        };
        let words = of_kind(KeyKind::Net).chain(of_kind(KeyKind::Host)).map(|slot| self.image.u64(slot));
        let in_buckets = words.map(|word| u64::from(self.buckets.words.members(word)));
        let in_overflow = self.buckets.all_entries().map(|entry| self.image.u64(entry + MEMBERS_AT));
        match in_buckets.chain(in_overflow).all(|members| members <= header.labels.into()) {
            true => Ok(()),
            false => Err(header.corrupt("buckets", "label")),
        }
    }

    /// The members (a bit each) that have `addr` in a prefix. The one set is member 0.
    pub fn find(&self, addr: u128) -> u32 {
        self.buckets.find(self.image, addr)
    }

    /// Records what a lookup in C reads. It searches both kinds without waiting for the first.
    pub fn trace(&self, addr: u128, trace: &mut Trace) {
        let (high, low) = ((addr >> 64) as u64, addr as u64);
        let cells = TracedLines::new(self.image, trace);
        self.buckets.members(&cells, Key::Net(high));
        self.buckets.members(&cells, Key::Host(high, low));
    }
}
