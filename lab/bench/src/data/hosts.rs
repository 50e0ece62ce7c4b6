//! Generates synthetic lists of single addresses that are clustered like block and allow lists.
//!
//! The shape of a list is the number of /16s, /18s, /20s and /24s with at least one address. Each level is filled by
//! choosing an existing block at random and adding a sibling (Yule's process). Most blocks then have one or two
//! addresses and a few are almost full, as in the lists of the paper.

use std::collections::{BTreeSet, HashSet};
use weir_engine::traffic::SplitMix;

/// The distribution of addresses.
#[derive(Clone, Copy, Debug)]
pub struct HostShape {
    /// Prefix lengths, ascending from /16 to /32, and the number of non-empty blocks of each.
    pub occupied: &'static [(u32, usize)],
    /// Per mille of new addresses that directly follow an existing one. The others are anywhere in its /24.
    pub adjacent_per_mille: u64,
}

/// The addresses of a shape, sorted: all of them, or those of a smaller shape of about `count_max` addresses.
///
/// # Panics
/// If the number of blocks of a length does not fit the number of shorter blocks.
pub fn invent(shape: &HostShape, count_max: usize, random: &mut SplitMix) -> Vec<u32> {
    let [(16, first), deeper @ ..] = shape.occupied else { panic!("compiler bug: shapes start with /16") };
    let part = deeper.last().map_or(1, |(_, addresses)| addresses.div_ceil(count_max));
    let mut blocks = networks(first.div_ceil(part), random);
    let mut len = 16;
    for &(deeper, count) in deeper {
        let adjacent = if deeper == 32 { shape.adjacent_per_mille } else { 0 };
        blocks = fill(&blocks, deeper - len, count.div_ceil(part), adjacent, random);
        len = deeper;
    }
    assert_eq!(len, 32, "compiler bug: shapes end with /32");
    blocks.sort_unstable();
    blocks
}

/// `count` IPv6 prefixes as in block lists, sorted: three /64s for each /128, in `count` / 9 sites (/48).
pub fn invent6(count: usize, random: &mut SplitMix) -> Vec<(u128, u8)> {
    let sites: Vec<u128> = (0..count.div_ceil(9)).map(|_| u128::from(random.draw() >> 19 | 1 << 45) << 80).collect();
    let mut prefixes = BTreeSet::new();
    while prefixes.len() < count {
        let site = sites[random.below(sites.len() as u64) as usize];
        let network = site | u128::from(random.below(1 << 16)) << 64;
        prefixes.insert(match random.below(4) {
            0 => (network | u128::from(random.draw()), 128),
            _ => (network, 64),
        });
    }
    prefixes.into_iter().collect()
}

/// `count` different /16s of unicast addresses.
fn networks(count: usize, random: &mut SplitMix) -> Vec<u32> {
    let mut all: Vec<u32> = (1 << 8..224 << 8).filter(|network| is_unicast(network >> 8)).collect();
    for index in 0..count {
        let other = index + random.below((all.len() - index) as u64) as usize;
        all.swap(index, other);
    }
    all.truncate(count);
    all
}

/// Whether a /8 contains public unicast addresses.
pub fn is_unicast(octet: u32) -> bool {
    (1..224).contains(&octet) && octet != 10 && octet != 127
}

/// `count` blocks that are `bits` bits longer than `parents`: one in each parent, the others next to existing ones.
fn fill(parents: &[u32], bits: u32, count: usize, adjacent_per_mille: u64, random: &mut SplitMix) -> Vec<u32> {
    assert!((parents.len()..=parents.len() << bits).contains(&count), "compiler bug: {count} blocks do not fit");
    let mut blocks: Vec<u32> = parents.iter().map(|parent| parent << bits | random.below(1 << bits) as u32).collect();
    let mut known: HashSet<u32> = blocks.iter().copied().collect();
    while blocks.len() < count {
        let there = blocks[random.below(blocks.len() as u64) as usize];
        let siblings = (1 << bits) - 1;
        let within = match random.below(1000) < adjacent_per_mille {
            true => (there + 1) & siblings,
            false => random.below(1 << bits) as u32,
        };
        let block = there & !siblings | within;
        if known.insert(block) {
            blocks.push(block);
        }
    }
    blocks
}
