//! Makes up tables that say of every address where it is: countries, operators, cities.
//!
//! A block of addresses is *broken* if what is in it has more than one label. A shape says how many blocks of each length
//! are: with that it fixes what lookups meet, the share of keys that a direct table answers and the number of ranges in a
//! block. The halves of broken blocks that are not broken themselves are the prefixes, in order of address; each gets a label
//! near its neighbours'; two halves of one block never have the same. Registries' lists have more prefixes than that, since neighbours of one
//! label stay apart, so prefixes are halved until there are as many as there should be.

use crate::data::hosts::is_unicast;
use weir_engine::traffic::SplitMix;

/// How labels spread. Addresses have 64 bits: those of IPv6 the upper ones, those of IPv4 the lower 32.
#[derive(Clone, Copy, Debug)]
pub struct GeoShape {
    /// Bits of an address: 32 or 64.
    pub bits: u32,
    /// Prefix length of the first element of `broken`.
    pub top: u32,
    /// Broken blocks of each length from `top` on.
    pub broken: &'static [usize],
    /// Below blocks of these lengths the broken ones crowd together; up to the first, blocks are large.
    pub crowds: &'static [u32],
    /// Distinct labels, at least 2.
    pub labels: u32,
    /// How many of 1000 unbroken blocks, other than the upper of two halves, go on with what is before them.
    pub continued_per_mille: u64,
    /// One unbroken block of so many has no label.
    pub gap_one_in: u64,
    /// Prefixes in all, or as many as there must be.
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
    /// 0: a gap.
    label: u32,
}

/// Gives the prefixes of a shape, as address, length and label from 1.
///
/// # Panics
/// If the shape has more broken blocks of a length than halves of those around them.
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

/// The halves of broken blocks that are not broken, down to single addresses.
fn leaves(shape: &GeoShape, random: &mut SplitMix) -> Vec<Leaf> {
    let mut leaves = Vec::new();
    let mut candidates = top_blocks(shape);
    let salt = random.draw();
    for (len, count) in (shape.top..).zip(shape.broken.iter().copied().chain([0])) {
        assert!(count <= candidates.len(), "compiler bug: {count} broken /{len}s of {}", candidates.len());
        // The lot decides, but those in crowded places have better ones.
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

/// Where there are addresses at all: unicast /8s; for IPv6 what the registries were given.
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

/// Labels in order of address: one of those used just before, seldom one used long ago, and each new one in its turn. Large
/// blocks are of few.
fn label(shape: &GeoShape, leaves: &mut [Leaf], random: &mut SplitMix) {
    const RECENT: usize = 6;
    const LARGE_OWNERS: u32 = 200;
    // The last leaves have old labels, so that all new ones find their place.
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
            // One neighbour in eight is from far away, more often from where there is much.
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

/// Halves as many prefixes as are missing, or all that can be, large ones not; sorted before, sorted after.
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
