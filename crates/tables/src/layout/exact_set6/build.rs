//! Builds exact sets of IPv6.
//!
//! First every key goes to its first bucket, as long as there is room. Each of the others then goes to its second
//! bucket, or takes the slot of a key in its first bucket that can move to its own second one. A key that moves may
//! make others move (R. Pagh and F. F. Rodler, "Cuckoo hashing", Journal of Algorithms 51, 2004). Keys never move back,
//! and at most [`MOVES_MAX`] move for one. The very few that find no room go to the overflow.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use weir_abi::Layout;

use super::{
    ENTRY_WORDS, FILTER, FIRST, GROUP_ENTRIES, GROUP_WORDS, Key, KeyKind, LINE_WORDS, M1, M2, NO_HOST, SECOND, SEED,
    STATE, Words, first, is_free, reduce, second,
};
use crate::image::{BuildError, Image, Section, Writer};
use crate::layout::Room;
use crate::prefix::Prefix6;

/// Number of seeds that the builder tries.
const SEEDS: u64 = 32;
/// Maximum number of keys that move to make room for one.
const MOVES_MAX: usize = 3;
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

/// Mean number of keys in a bucket: three quarters of its slots.
const fn load(kind: KeyKind) -> usize {
    kind.slots() * 3 / 4
}

/// The seeds of the attempts. They depend on the whole list, so nobody who does not know it can choose keys that meet.
struct Seeds(u64);

impl Seeds {
    fn of(keys: &[(Key, u32)]) -> Self {
        // Which members have a key does not matter to where it is.
        let keys: Vec<Key> = keys.iter().map(|&(key, _)| key).collect();
        Seeds(BuildHasherDefault::<DefaultHasher>::default().hash_one(keys))
    }

    fn attempt(&self, attempt: u64) -> u64 {
        self.0 ^ (attempt + 1).wrapping_mul(M1).wrapping_mul(M2)
    }
}

/// Builds the image of distinct prefixes.
pub(crate) fn build(prefixes: &[Prefix6], room: Room) -> Result<Image, BuildError> {
    let layout = Layout::ExactSet6;
    let keys = prefixes.iter().map(|prefix| Ok((key(layout, prefix)?, 1))).collect::<Result<_, _>>()?;
    Contents { layout, words: Words::OneSet, keys, entries: prefixes.len(), labels: 1 }.build(room)
}

/// Builds the image of one to four sets, each of distinct prefixes.
pub(crate) fn build_fused(sets: &[&[Prefix6]], room: Room) -> Result<Image, BuildError> {
    let layout = Layout::ExactSets6;
    let entries = sets.iter().map(|set| set.len()).sum();
    let mut keys = Vec::with_capacity(entries);
    for (member, set) in sets.iter().enumerate() {
        for prefix in *set {
            keys.push((key(layout, prefix)?, 1 << member));
        }
    }
    keys.sort_unstable();
    keys.dedup_by(|(later, members), (key, all)| {
        let is_equal = later == key;
        *all |= if is_equal { *members } else { 0 };
        is_equal
    });
    Contents { layout, words: Words::Fused, keys, entries, labels: (1 << sets.len()) - 1 }.build(room)
}

fn key(layout: Layout, prefix: &Prefix6) -> Result<Key, BuildError> {
    Key::of(prefix).ok_or_else(|| BuildError::NotANetOrHost { layout, prefix: prefix.to_string() })
}

/// What an image is built of.
struct Contents {
    layout: Layout,
    words: Words,
    /// Distinct keys, each with its members (a bit each).
    keys: Vec<(Key, u32)>,
    /// Number of prefixes of all members.
    entries: usize,
    /// The mask of all members.
    labels: u32,
}

impl Contents {
    fn build(&self, room: Room) -> Result<Image, BuildError> {
        let seeds = Seeds::of(&self.keys);
        self.build_with(room, (0..SEEDS).map(|attempt| seeds.attempt(attempt)))
    }

    /// Builds the image with the first of the seeds that is good enough, or else with the last one.
    fn build_with(&self, room: Room, mut seeds: impl Iterator<Item = u64>) -> Result<Image, BuildError> {
        let Contents { layout, ref keys, entries, labels, .. } = *self;
        let nets = keys.iter().filter(|(key, _)| key.kind() == KeyKind::Net).count();
        let hosts = keys.len() - nets;
        let with_room = |count: usize| count + if count > 0 { room.beside(count, KEYS_SPARE_MIN) } else { 0 };
        let spare = room.beside(keys.len() / LEFT_SPARE_ONE_IN, LEFT_SPARE_MIN);
        // These keys are in the overflow with any seed.
        let always = keys.iter().filter(|(key, _)| key.is_only_in_overflow()).count();
        let left_max = always + LEFT_MIN.max(keys.len() / LEFT_ONE_IN);
        let mut seed = seeds.next();
        while let Some(this) = seed {
            seed = seeds.next();
            let filler = Filler::of(self, with_room(nets), with_room(hosts), this);
            if filler.left.len() > left_max && seed.is_some() {
                continue;
            }
            let Some(overflow) = filler.overflow(spare) else { continue };
            let sections =
                [Section::U64(&filler.nets.words), Section::U64(&filler.hosts.words), Section::U64(&overflow)];
            let writer = Writer { layout, entries, labels };
            return writer.write(&sections, &[(SEED, this as u32), (SEED + 1, (this >> 32) as u32)]);
        }
        Err(BuildError::Limit { layout, what: "prefixes in a group of the overflow", max: GROUP_ENTRIES })
    }
}

/// Buckets of one kind under construction.
struct Lines {
    kind: KeyKind,
    division: Words,
    words: Vec<u64>,
}

impl Lines {
    /// Buckets for `count` keys.
    fn new(kind: KeyKind, division: Words, count: usize) -> Self {
        let buckets = if count == 0 { 0 } else { count.div_ceil(load(kind)).max(division.buckets_min()) };
        let mut words = vec![0; buckets * LINE_WORDS];
        if kind == KeyKind::Host {
            words.iter_mut().skip(1).step_by(2).for_each(|high| *high = NO_HOST);
        }
        Lines { kind, division, words }
    }

    fn count(&self) -> usize {
        self.words.len() / LINE_WORDS
    }

    /// Writes a word, and a host's high half, to a slot. Does not touch the filter.
    fn write(&mut self, slot: usize, word: u64, high: u64) {
        self.words[slot] = self.words[slot] & FILTER | word;
        if self.kind == KeyKind::Host {
            self.words[slot + 1] = high;
        }
    }

    /// Records that a key went on from the bucket.
    fn went_on(&mut self, bucket: usize, hash: u64) {
        let (slot, bit) = self.kind.filter(hash);
        self.words[bucket * LINE_WORDS + slot * self.kind.words()] |= bit;
    }

    /// A free slot of the bucket. If there is none, one that a key left for its second bucket, where up to `moves - 1`
    /// others may have made room.
    fn room(&mut self, bucket: usize, moves: usize) -> Option<usize> {
        let kind = self.kind;
        let slots = || (0..kind.slots()).map(move |slot| bucket * LINE_WORDS + slot * kind.words());
        if let Some(free) = slots().find(|&slot| is_free(self.words[slot])) {
            return Some(free);
        }
        for slot in slots().filter(|_| moves > 0) {
            // The bits that the remainder lacks do not matter here.
            let held = self.words[slot];
            if held & STATE != FIRST {
                continue;
            }
            let hash = self.division.hash(held);
            if let Some(free) = self.room(second(hash, bucket, self.count()), moves - 1) {
                let moved = held & !FILTER & !STATE | SECOND;
                self.write(free, moved, self.words[slot + kind.words() - 1]);
                self.went_on(bucket, hash);
                self.write(slot, 0, NO_HOST);
                return Some(slot);
            }
        }
        None
    }

    /// Puts a key in its second bucket, or in its first one if a key there can leave. `false` if neither has room.
    fn put_on(&mut self, hash: u64, high: u64, members: u32) -> bool {
        let first = first(hash, self.count());
        let members = self.division.of_members(members);
        if let Some(free) = self.room(second(hash, first, self.count()), 0) {
            self.write(free, self.division.of(hash, SECOND) | members, high);
            self.went_on(first, hash);
            return true;
        }
        // As few keys as possible should move.
        let left = (1..=MOVES_MAX).find_map(|moves| self.room(first, moves));
        if let Some(left) = left {
            self.write(left, self.division.of(hash, FIRST) | members, high);
        }
        left.is_some()
    }
}

/// All buckets under construction, and the keys that did not fit.
struct Filler {
    seed: u64,
    nets: Lines,
    hosts: Lines,
    left: Vec<(Key, u32)>,
}

impl Filler {
    /// Buckets for `nets` and `hosts` keys, filled with the keys of `contents`.
    fn of(contents: &Contents, nets: usize, hosts: usize, seed: u64) -> Self {
        let lines = |kind: KeyKind, count: usize| Lines::new(kind, contents.words, count);
        let (nets, hosts) = (lines(KeyKind::Net, nets), lines(KeyKind::Host, hosts));
        let mut filler = Filler { seed, nets, hosts, left: Vec::new() };
        let mut crowded = Vec::new();
        for &(key, members) in &contents.keys {
            if key.is_only_in_overflow() {
                filler.left.push((key, members));
                continue;
            }
            let (lines, hash) = filler.lines(key);
            match lines.room(first(hash, lines.count()), 0) {
                Some(free) => {
                    let word = lines.division.of(hash, FIRST) | lines.division.of_members(members);
                    lines.write(free, word, key.high());
                }
                None => crowded.push((key, members)),
            }
        }
        for (key, members) in crowded {
            let (lines, hash) = filler.lines(key);
            if !lines.put_on(hash, key.high(), members) {
                let first = first(hash, lines.count());
                let second = second(hash, first, lines.count());
                [first, second].into_iter().for_each(|bucket| lines.went_on(bucket, hash));
                filler.left.push((key, members));
            }
        }
        filler
    }

    /// The buckets of a key, and its hash.
    fn lines(&mut self, key: Key) -> (&mut Lines, u64) {
        let hash = key.hash(self.seed);
        match key.kind() {
            KeyKind::Net => (&mut self.nets, hash),
            KeyKind::Host => (&mut self.hosts, hash),
        }
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
        for (key, members) in &self.left {
            let group = reduce(key.hash(self.seed) as u32, groups);
            let mut entries = words[group * GROUP_WORDS..][..GROUP_WORDS].chunks_exact_mut(ENTRY_WORDS);
            let entry = entries.find(|entry| entry[0] == 0)?;
            entry[..3].copy_from_slice(&key.entry());
            entry[3] = self.nets.division.entry_members(*members);
        }
        Some(words)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Exact6Buckets;
    use super::*;

    fn set_of(keys: &[Key]) -> Contents {
        let keys: Vec<_> = keys.iter().map(|&key| (key, 1)).collect();
        Contents { layout: Layout::ExactSet6, words: Words::OneSet, entries: keys.len(), keys, labels: 1 }
    }

    #[test]
    fn keys_that_collide_get_another_seed() {
        // Hosts of one network whose hashes under the first seed differ only in the low half: all are in one bucket.
        let high = 0x2001_0db8_0000_0000u64;
        let keys: Vec<_> = (0..1000u64).map(|low| Key::host_of(7, high, low << 8)).collect();
        assert!(keys.iter().all(|key| key.hash(7) >> 32 == 0), "the hash is undone");
        assert!(Filler::of(&set_of(&keys), 0, keys.len(), 7).left.len() > keys.len() / LEFT_ONE_IN);
        holds_all(&keys, &[7, 8]);
    }

    #[test]
    fn keys_that_collide_under_all_seeds_but_one_are_held() {
        // Under each of the others there are hosts with equal hashes, more than two buckets and a group can hold.
        let seeds: Vec<u64> = (1..=SEEDS).map(|seed| seed.wrapping_mul(M2)).collect();
        let (good, bad) = seeds.split_last().unwrap();
        let host_of = |seed, network: u64| Key::host_of(seed, 0x2001_0db8_0000_0000 + network, 0);
        let keys: Vec<_> = bad.iter().flat_map(|&seed| (0..13).map(move |network| host_of(seed, network))).collect();
        assert!(set_of(&keys).build_with(Room::None, bad.iter().copied()).is_err());
        assert!(set_of(&keys).build_with(Room::None, [*good].into_iter()).is_ok());
        holds_all(&keys, &seeds);
    }

    #[test]
    fn too_many_keys_with_one_hash_are_refused() {
        let keys: Vec<_> = (0..20).map(|network| Key::host_of(7, 0x2001_0db8_0000_0000 + network, 0)).collect();
        let error = set_of(&keys).build_with(Room::None, [7].into_iter()).unwrap_err();
        assert_eq!(error.to_string(), "layout exact-set6 holds at most 4 prefixes in a group of the overflow");
        holds_all(&keys, &[7, 8]);
    }

    #[test]
    fn seeds_depend_on_the_list() {
        let seed = |keys: &[Key]| Seeds::of(&set_of(keys).keys).attempt(0);
        assert_ne!(seed(&[Key::Net(1)]), seed(&[Key::Net(2)]));
        assert_ne!(seed(&[Key::Net(1)]), Seeds::of(&[(Key::Net(1), 1)]).attempt(1));
    }

    #[test]
    fn three_quarters_of_the_slots_are_used() {
        let random = |index: u64| Key::Host(index, 0).hash(1);
        let hosts: Vec<_> = (0..30_000).map(|index| Key::Host(random(index), random(!index))).collect();
        let nets: Vec<_> = (0..30_000).map(|index| Key::Net(random(index))).collect();
        for (keys, bytes, second_max) in [(hosts, 22, 0.12), (nets, 11, 0.06)] {
            let image = set_of(&keys).build_with(Room::None, 1..9).unwrap();
            let found: usize = image.sections().iter().skip(1).map(|&(_, bytes)| bytes).sum();
            assert!(found <= bytes * keys.len(), "{:?}", image.sections());
            assert!(image.sections()[3].1 <= 8 * GROUP_WORDS * 8, "{:?}", image.sections());
            let buckets = Exact6Buckets::open(&image.header(), image.as_bytes()).unwrap();
            let second = buckets.went_on(image.as_bytes()).count() as f64 / keys.len() as f64;
            assert!(second < second_max, "{second}");
        }
    }

    fn holds_all(keys: &[Key], seeds: &[u64]) {
        let image =
            set_of(keys).build_with(Room::None, seeds.iter().copied()).unwrap_or_else(|error| panic!("{error}"));
        assert!(image.sections()[3].1 < 100 * GROUP_WORDS * 8, "{:?}", image.sections());
        for [_, high, low] in keys.iter().map(|key| key.entry()) {
            assert_eq!(image.view().find6(u128::from(high) << 64 | u128::from(low)), 1);
            assert_eq!(image.view().find6(u128::from(high) << 64 | u128::from(!low)), 0);
        }
    }
}
