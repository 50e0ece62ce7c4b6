//! The hash of keys: the universal hash NH (RFC 4418, section 5.2) and a mixing step, both keyed.
//!
//! For two different keys, the sums of NH are equal with a probability of 2^-32 over the choice of the seed. The mixing
//! step is a permutation. An attacker who does not know the seed cannot choose keys of one bucket. A multiplication is
//! of 32 by 32 bits, which vectors and BPF have too.

use super::{FlowKey, TAG_HASH};

/// The keys of the hash, expanded from a seed. An attacker who knows them can fill a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct HashKeys {
    words: [u64; 5],
    start: u64,
    mix: u64,
}

/// The hash of a key in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hashed {
    /// The two buckets that may hold the flow. They may be equal.
    pub buckets: [u32; 2],
    /// The bits of the tag below the class, never 0.
    pub tag: u16,
}

impl HashKeys {
    /// Expands a seed with SplitMix64.
    pub const fn of(seed: u64) -> Self {
        let mut words = [0; 5];
        let mut index = 0;
        while index < 5 {
            words[index] = split_mix(seed, index as u64 + 1);
            index += 1;
        }
        HashKeys { words, start: split_mix(seed, 6), mix: split_mix(seed, 7) }
    }

    /// Its words in memory.
    pub fn all(&self) -> [u64; 7] {
        let [one, two, three, four, five] = self.words;
        [one, two, three, four, five, self.start, self.mix]
    }

    /// The keys with these words in memory, as of [`HashKeys::all`].
    pub fn of_words([one, two, three, four, five, start, mix]: [u64; 7]) -> Self {
        HashKeys { words: [one, two, three, four, five], start, mix }
    }

    /// Hashes a key for a table with a number of buckets, at least 1.
    pub const fn hash(&self, key: &FlowKey, buckets: u32) -> Hashed {
        let mut sum = self.start.wrapping_add(key.is_ipv6 as u64);
        let mut index = 0;
        while index < 5 {
            let (word, secret) = (key.words[index], self.words[index]);
            let low = (word as u32).wrapping_add(secret as u32);
            let high = ((word >> 32) as u32).wrapping_add((secret >> 32) as u32);
            sum = sum.wrapping_add(low as u64 * high as u64);
            index += 1;
        }
        let hash = mixed(sum ^ self.mix);
        let first = (((hash as u32) as u64 * buckets as u64) >> 32) as u32;
        let second = (((hash >> 32) * buckets as u64) >> 32) as u32;
        // The low bits of both halves hardly influence the buckets.
        let tag = (hash & 0xff | hash >> 24 & 0x3f00) as u16 & TAG_HASH;
        Hashed { buckets: [first, second], tag: if tag == 0 { 1 } else { tag } }
    }
}

/// The `nth` number of SplitMix64 (Steele, Lea, Flood, 2014).
const fn split_mix(seed: u64, nth: u64) -> u64 {
    mixed(seed.wrapping_add(nth.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}

/// The finalizer of SplitMix64, a permutation.
const fn mixed(number: u64) -> u64 {
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::Arrival;

    fn key(nth: u64) -> FlowKey {
        FlowKey::of(
            Arrival::Outside,
            (0x0a00_0001, 1024 + (nth % 60_000) as u16),
            (0x0a00_0002 + u128::from(nth / 60_000), 80),
            6,
            [0; 2],
            false,
        )
    }

    /// Computed by another implementation. C must have the same numbers.
    #[test]
    fn known_hashes() {
        assert_eq!(HashKeys::of(1).words[0], 0x910a_2dec_8902_5cc1, "SplitMix64 with seed 1");
        let hashed = HashKeys::of(1).hash(&key(0), 1000);
        assert_eq!(hashed, Hashed { buckets: [523, 93], tag: 6931 });
        let address = 0x2001_0db8 << 96;
        let key = FlowKey::of(Arrival::Outside, (address | 1, 1024), (address | 2, 80), 6, [100, 7], true);
        let hashed = HashKeys::of(0).hash(&key, 312_500);
        assert_eq!(hashed, Hashed { buckets: [151355, 296673], tag: 9398 });
    }

    #[test]
    fn buckets_and_tags_are_spread_evenly() {
        const BUCKETS: u32 = 1000;
        let (mut first, mut second) = (vec![0u32; BUCKETS as usize], vec![0u32; BUCKETS as usize]);
        let mut tags = std::collections::HashSet::new();
        let keys = HashKeys::of(7);
        for nth in 0..100_000 {
            let Hashed { buckets, tag } = keys.hash(&key(nth), BUCKETS);
            first[buckets[0] as usize] += 1;
            second[buckets[1] as usize] += 1;
            assert!(tag != 0 && tag <= TAG_HASH);
            tags.insert(tag);
        }
        // 100 in each bucket, with a standard deviation of 10.
        assert!(first.iter().chain(&second).all(|count| (50..160).contains(count)), "{first:?}");
        // Of 16384 tags, 100,000 keys leave out one in 446.
        assert!(tags.len() > 16_000, "{}", tags.len());
    }
}
