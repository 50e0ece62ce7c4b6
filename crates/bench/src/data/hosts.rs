//! Makes up lists of single addresses that crowd together as those of block and allow lists do.
//!
//! A list's shape is how many /16s, /18s, /20s and /24s have an address in them. Each level fills up by drawing a block
//! that is there already and adding a sibling, so that the rich get richer (Yule's process): most neighbourhoods have one
//! or two addresses, a few are nearly full, as the paper's lists are.

use std::collections::{BTreeSet, HashSet};
use weir_engine::traffic::SplitMix;

/// How addresses spread.
#[derive(Clone, Copy, Debug)]
pub struct HostShape {
    /// Prefix length, and how many blocks of it are not empty: ascending, from /16 to /32.
    pub occupied: &'static [(u32, usize)],
    /// How many of 1000 new addresses stand right above one that is there, instead of anywhere in its /24.
    pub adjacent_per_mille: u64,
}

/// The addresses of a shape, sorted.
///
/// # Panics
/// If the shape has more blocks of a length than those around them can hold, or fewer.
pub fn invent(shape: &HostShape, random: &mut SplitMix) -> Vec<u32> {
    let [(16, first), deeper @ ..] = shape.occupied else { panic!("compiler bug: shapes start with /16") };
    let mut blocks = networks(*first, random);
    let mut len = 16;
    for &(deeper, count) in deeper {
        let adjacent = if deeper == 32 { shape.adjacent_per_mille } else { 0 };
        blocks = fill(&blocks, deeper - len, count, adjacent, random);
        len = deeper;
    }
    assert_eq!(len, 32, "compiler bug: shapes end with /32");
    blocks.sort_unstable();
    blocks
}

/// `count` prefixes of IPv6 as block lists have them, sorted: three /64s to a /128, in a ninth as many sites (/48).
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

/// Distinct /16s of unicast space.
fn networks(count: usize, random: &mut SplitMix) -> Vec<u32> {
    let mut all: Vec<u32> = (1 << 8..224 << 8).filter(|network| is_unicast(network >> 8)).collect();
    for index in 0..count {
        let other = index + random.below((all.len() - index) as u64) as usize;
        all.swap(index, other);
    }
    all.truncate(count);
    all
}

/// Whether a /8 is of public unicast space.
pub fn is_unicast(octet: u32) -> bool {
    (1..224).contains(&octet) && octet != 10 && octet != 127
}

/// `count` blocks of `bits` more bits: one in each of `parents`, the others wherever there are some already.
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
