//! Generates synthetic tables that give each address a location: a country, an operator or a city.
//!
//! A block of addresses is *broken* if its addresses have more than one label. A shape gives the number of broken
//! blocks of each length. This fixes two properties that determine the cost of lookups. One is the share of keys that a
//! direct table answers, the other the number of ranges in a block.
//!
//! The prefixes are the unbroken halves of broken blocks, in order of address. Labels of neighbouring prefixes are
//! similar, but the two halves of a block never have the same label. Registries' lists have more prefixes, because they
//! do not merge neighbours with the same label. Prefixes are therefore halved until their number matches.

use crate::data::hosts::is_unicast;
use weir_engine::traffic::SplitMix;

/// The distribution of labels. Addresses have 64 bits: the upper half of an IPv6 address, or an IPv4 address in the
/// lower 32.
#[derive(Clone, Copy, Debug)]
pub struct GeoShape {
    /// Bits of an address: 32 or 64.
    pub bits: u32,
    /// Prefix length of the first element of `broken`.
    pub top: u32,
    /// Number of broken blocks of each length from `top` on.
    pub broken: &'static [usize],
    /// Broken blocks are clustered inside blocks of these lengths. Blocks up to the first length are large.
    pub crowds: &'static [u32],
    /// Number of labels, at least 2.
    pub labels: u32,
    /// Per mille of unbroken blocks that have the label of the previous block. Upper halves are excluded.
    pub continued_per_mille: u64,
    /// One of this many unbroken blocks has no label.
    pub gap_one_in: u64,
    /// Total number of prefixes. It is raised to the minimum that the shape requires.
    pub prefixes: usize,
}

impl GeoShape {
    /// The length of the smallest large blocks.
    fn large(&self) -> u32 {
        self.crowds.first().copied().unwrap_or(self.top)
    }
}

/// An unbroken block.
struct Leaf {
    addr: u64,
    len: u32,
    /// The label, or 0 for a gap.
    label: u32,
}

/// Generates the prefixes of a shape and calls `give` with address, length and label (from 1) of each.
///
/// # Panics
/// If the shape has more broken blocks of a length than there are halves of shorter broken blocks.
pub fn invent(shape: &GeoShape, random: &mut SplitMix, mut give: impl FnMut(u64, u8, u32)) {
    let mut leaves = leaves(shape, random);
    leaves.sort_unstable_by_key(|leaf| leaf.addr);
    label(shape, &mut leaves, random);
    leaves.retain(|leaf| leaf.label != 0);
    while leaves.len() < shape.prefixes {
        leaves = halve(shape, leaves, random);
    }
    leaves.iter().for_each(|leaf| give(leaf.addr, leaf.len as u8, leaf.label));
}

/// The unbroken halves of broken blocks, down to single addresses.
fn leaves(shape: &GeoShape, random: &mut SplitMix) -> Vec<Leaf> {
    let mut leaves = Vec::new();
    let mut candidates = top_blocks(shape);
    let salt = random.draw();
    for (len, count) in (shape.top..).zip(shape.broken.iter().copied().chain([0])) {
        assert!(count <= candidates.len(), "compiler bug: {count} broken /{len}s of {}", candidates.len());
        // Blocks are chosen at random, with a higher probability in crowded regions.
        let crowd = |block: u64, around: u32| SplitMix::new(salt ^ block >> (len - around)).draw().trailing_zeros();
        let crowds = || shape.crowds.iter().copied().filter(|&around| around < len);
        let weight = |block: u64| crowds().map(|around| crowd(block, around)).sum::<u32>();
        let mut lots: Vec<(u64, u64)> =
            candidates.iter().map(|&block| (random.draw() >> weight(block).min(32), block)).collect();
        if count < lots.len() {
            lots.select_nth_unstable(count);
        }
        let (broken, whole) = lots.split_at(count);
        let leaf = |&(_, block): &(u64, u64)| Leaf { addr: block << (shape.bits - len), len, label: 0 };
        leaves.extend(whole.iter().map(leaf));
        let mut broken: Vec<u64> = broken.iter().map(|&(_, block)| block).collect();
        broken.sort_unstable();
        candidates = broken.iter().flat_map(|block| [block << 1, block << 1 | 1]).collect();
    }
    leaves
}

/// Blocks of addresses that are in use: unicast /8s for IPv4, and the registries' allocations for IPv6.
fn top_blocks(shape: &GeoShape) -> Vec<u64> {
    const REGISTRIES: [(u64, u32); 7] =
        [(0x2001, 16), (0x2003, 16), (0x2400 >> 5, 11), (0x2600 >> 5, 11), (0x280, 12), (0x2a00 >> 5, 11), (0x2c0, 12)];
    if shape.bits == 32 {
        return (0..256).filter(|&octet| is_unicast(octet)).map(u64::from).collect();
    }
    let blocks = |(block, len): (u64, u32)| {
        let bits = shape.top - len;
        (0..1 << bits).map(move |index| block << bits | index)
    };
    REGISTRIES.into_iter().flat_map(blocks).collect()
}

/// Assigns labels in order of address: mostly a recently used label, seldom an old one, and each new label at its turn.
/// Large blocks share a few labels.
fn label(shape: &GeoShape, leaves: &mut [Leaf], random: &mut SplitMix) {
    const RECENT: usize = 6;
    const LARGE_OWNERS: u32 = 200;
    // The last leaves get old labels, so that all new labels have been assigned before.
    let total = (leaves.len() - leaves.len() / 16).max(1) as u64;
    let mut used: Vec<u32> = Vec::with_capacity(leaves.len());
    let (mut last, mut made) = (0, 0);
    let mut before = None;
    for (index, leaf) in leaves.iter_mut().enumerate() {
        let other_half = before == Some((leaf.addr ^ 1 << (shape.bits - leaf.len), leaf.len));
        before = Some((leaf.addr, leaf.len));
        if !other_half && random.below(1000) < shape.continued_per_mille {
            leaf.label = last;
            continue;
        }
        let due = made < 2 || (index as u64 + 1) * u64::from(shape.labels) / total > u64::from(made);
        let large = leaf.len <= shape.large();
        leaf.label = if due && made < shape.labels && !(large && made >= LARGE_OWNERS) {
            made += 1;
            made
        } else if last != 0 && random.below(shape.gap_one_in) == 0 {
            0
        } else if large && made >= LARGE_OWNERS {
            1 + random.below(u64::from(LARGE_OWNERS)) as u32
        } else {
            // One leaf in eight gets the label of a distant one. Frequent labels are more likely.
            let window = if random.below(8) == 0 { used.len() } else { used.len().min(RECENT) };
            let drawn = used[used.len() - 1 - random.below(window as u64) as usize];
            if drawn == last { 1 + random.below(u64::from(made)) as u32 } else { drawn }
        };
        if leaf.label == last && last != 0 {
            leaf.label = last % made + 1;
        }
        last = leaf.label;
        if last != 0 {
            used.push(last);
        }
    }
}

/// Halves as many prefixes as are missing, or all possible ones. Large prefixes are not halved. The order is preserved.
fn halve(shape: &GeoShape, leaves: Vec<Leaf>, random: &mut SplitMix) -> Vec<Leaf> {
    let can = |leaf: &Leaf| (shape.large() + 1..shape.bits).contains(&leaf.len);
    let mut left = leaves.iter().filter(|leaf| can(leaf)).count() as u64;
    let mut missing = ((shape.prefixes - leaves.len()) as u64).min(left);
    assert!(missing > 0, "compiler bug: {} prefixes are too many", shape.prefixes);
    let mut halved = Vec::with_capacity(leaves.len() + missing as usize);
    for leaf in leaves {
        if can(&leaf) {
            let chosen = random.below(left) < missing;
            left -= 1;
            if chosen {
                missing -= 1;
                let len = leaf.len + 1;
                let upper = leaf.addr | 1 << (shape.bits - len);
                halved.push(Leaf { addr: leaf.addr, len, label: leaf.label });
                halved.push(Leaf { addr: upper, len, label: leaf.label });
                continue;
            }
        }
        halved.push(leaf);
    }
    halved
}
