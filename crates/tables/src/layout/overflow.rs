//! The overflow of exact sets: the few addresses that do not fit their buckets.
//!
//! The overflow is a hash table with groups of one cache line. An address is in its group or nowhere. A lookup
//! therefore reads one line, and an insertion or deletion writes one word. No tombstones are needed.
//!
//! ```text
//! group = address * multiplier mod 2^32 >> shift            shift = 32 - log2(groups), groups >= 2, multiplier odd
//!
//! groups  63       32 31       0  63       32 31       0      8 words
//!        +-----------+----------+-----------+----------+ ...
//!        |  members  | address  |  members  | address  |      members: bit m for member m of the set, 0 for a free word
//!        +-----------+----------+-----------+----------+ ...
//! ```

use std::collections::hash_map::{Entry, HashMap};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::ops::Range;

use weir_abi::Layout;

use crate::cells::Cells;
use crate::image::{BuildError, Header, ImageError};

/// Words per group: one cache line.
const GROUP_WORDS: usize = 8;
const WORD_BYTES: usize = 8;
/// At least one of the 32 bits is left for the group number.
const SHIFTS: Range<u32> = 1..32;
/// Number of multipliers that the builder tries before it fails.
const TRIES: u32 = 64;
/// The first multipliers are the same for all tables, so a hostile list can defeat them all. The others depend on the
/// whole list.
const KNOWN_TRIES: u32 = TRIES_A_SIZE;
/// Number of tries before the number of groups is doubled.
const TRIES_A_SIZE: u32 = 4;
/// Maximum mean number of addresses per group.
const LOAD_MAX: usize = 2;

/// Header fields.
pub(super) const SHIFT: usize = 6;
pub(super) const MULTIPLIER: usize = 7;

/// A built overflow.
pub(super) struct Built {
    pub words: Vec<u64>,
    pub numbers: [(usize, u32); 2],
}

/// The word of an address, with the members (one bit each) that hold it.
pub(crate) fn word(addr: u32, members: u32) -> u64 {
    u64::from(members) << 32 | u64::from(addr)
}

/// Builds the groups for addresses, each with the members that hold it. An address may occur more than once. There is
/// room for `spare` more.
pub(super) fn build(layout: Layout, addresses: &[(u32, u32)], spare: usize) -> Result<Built, BuildError> {
    let mut members = HashMap::with_capacity(addresses.len());
    for &(addr, bits) in addresses {
        match members.entry(addr) {
            Entry::Occupied(mut held) => *held.get_mut() |= bits,
            Entry::Vacant(free) => {
                free.insert(bits);
            }
        }
    }
    let mut addresses: Vec<(u32, u32)> = members.into_iter().collect();
    // Sorting makes the bytes deterministic.
    addresses.sort_unstable();
    let mut groups = ((addresses.len() + spare) / LOAD_MAX).next_power_of_two().max(2);
    for attempt in 0..TRIES {
        let table = OverflowTable { at: 0, shift: 32 - groups.ilog2(), multiplier: multiplier(&addresses, attempt) };
        if let Some(words) = table.fill(&addresses) {
            return Ok(Built { words, numbers: [(SHIFT, table.shift), (MULTIPLIER, table.multiplier)] });
        }
        if attempt % TRIES_A_SIZE == TRIES_A_SIZE - 1 && groups < (addresses.len() + spare) * 8 {
            groups *= 2;
        }
    }
    Err(BuildError::Limit { layout, what: "addresses in a group of the overflow", max: GROUP_WORDS })
}

/// Odd numbers without a pattern (splitmix32). The first spreads runs of addresses evenly.
fn multiplier(addresses: &[(u32, u32)], attempt: u32) -> u32 {
    if attempt >= KNOWN_TRIES {
        return BuildHasherDefault::<DefaultHasher>::default().hash_one((attempt, addresses)) as u32 | 1;
    }
    let mut mixed = attempt.wrapping_mul(0x9e37_79b9);
    mixed = (mixed ^ mixed >> 16).wrapping_mul(0x85eb_ca6b);
    mixed = (mixed ^ mixed >> 13).wrapping_mul(0xc2b2_ae35);
    (mixed ^ mixed >> 16 ^ 0x9e37_79b0) | 1
}

/// The position of the overflow in an image.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OverflowTable {
    at: usize,
    shift: u32,
    multiplier: u32,
}

impl OverflowTable {
    /// Locates section 1 of the image and checks its bounds.
    pub fn open(header: &Header, image: &[u8]) -> Result<Self, ImageError> {
        let words: &[[u8; WORD_BYTES]] = header.section(image, 1, "overflow")?;
        let table = OverflowTable {
            at: header.section[2] as usize,
            shift: header.section[SHIFT],
            multiplier: header.section[MULTIPLIER],
        };
        if !SHIFTS.contains(&table.shift) || words.len() != GROUP_WORDS << (32 - table.shift) {
            return Err(header.corrupt("overflow", "section size"));
        }
        Ok(table)
    }

    /// Checks that every word's members are within the header's labels.
    pub fn check(&self, header: &Header, image: &[u8]) -> Result<(), ImageError> {
        let words: &[[u8; WORD_BYTES]] = header.section(image, 1, "overflow")?;
        match words.iter().any(|&word| u64::from_le_bytes(word) >> 32 > u64::from(header.labels)) {
            true => Err(header.corrupt("overflow", "member")),
            false => Ok(()),
        }
    }

    fn fill(&self, addresses: &[(u32, u32)]) -> Option<Vec<u64>> {
        let mut words = vec![0; GROUP_WORDS << (32 - self.shift)];
        for &(addr, members) in addresses {
            let group = &mut words[self.group(addr) * GROUP_WORDS..][..GROUP_WORDS];
            *group.iter_mut().find(|word| **word == 0)? = word(addr, members);
        }
        Some(words)
    }

    fn group(&self, addr: u32) -> usize {
        (addr.wrapping_mul(self.multiplier) >> self.shift) as usize
    }

    /// Byte offsets of the words in the address's group.
    pub fn words(&self, addr: u32) -> impl Iterator<Item = usize> + use<> {
        let group = self.at + self.group(addr) * GROUP_WORDS * WORD_BYTES;
        (0..GROUP_WORDS).map(move |index| group + index * WORD_BYTES)
    }

    /// Byte offsets of all words.
    pub fn all_words(&self) -> impl Iterator<Item = usize> + use<> {
        let at = self.at;
        (0..GROUP_WORDS << (32 - self.shift)).map(move |index| at + index * WORD_BYTES)
    }

    /// The members (one bit each) that hold the address.
    pub fn find(&self, cells: &(impl Cells + ?Sized), addr: u32) -> u32 {
        let words = self.words(addr).map(|at| cells.u64(at));
        words.filter(|&word| word as u32 == addr).fold(0, |members, word| members | (word >> 32) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Addresses that are all in group 0 under a multiplier, for any number of groups: multiples of its inverse.
    fn colliding(multiplier: u32, count: u32) -> impl Iterator<Item = (u32, u32)> {
        let inverse = (0..5).fold(multiplier, |x, _| x.wrapping_mul(2u32.wrapping_sub(multiplier.wrapping_mul(x))));
        (1..=count).map(move |index| (inverse.wrapping_mul(index), 1))
    }

    #[test]
    fn addresses_that_collide_under_every_known_multiplier_are_held() {
        let addresses: Vec<_> = (0..TRIES).flat_map(|attempt| colliding(multiplier(&[], attempt), 9)).collect();
        let built = build(Layout::ExactSet, &addresses, 0).unwrap_or_else(|error| panic!("{error}"));
        assert!(built.words.len() <= 2 * addresses.len() * GROUP_WORDS, "{} words", built.words.len());
    }

    #[test]
    fn addresses_that_collide_get_another_multiplier() {
        let first = multiplier(&[], 0);
        let addresses: Vec<_> = colliding(first, 1000).collect();
        let built = build(Layout::ExactSet, &addresses, 0).unwrap_or_else(|error| panic!("{error}"));
        assert_ne!(built.numbers[1].1, first);
        assert!(built.words.len() <= 1000 * GROUP_WORDS, "{} words", built.words.len());
    }
}
