//! Poptrie: a 64-way trie whose nodes find children and leaves by counting bits. Asai and Ohara, "Poptrie: a compressed
//! trie with population count for fast and scalable software IP routing table lookup" (SIGCOMM 2015), sections 3.1 to
//! 3.3, with direct pointing by the top 18 bits (the paper's Poptrie18).
//!
//! A node stands for 6 bits of the key. `vector` has a bit for each of its 64 slots that has a child; the children lie
//! one after the other from `base1`. All other slots are leaves. `leafvec` marks the leaves that start a run of equal
//! labels; one label for each run lies from `base0`. Below the direct table there are at most 3 nodes: for bits 13..8,
//! 7..2 and 1..0, the last padded with zero bits. Ranges of equal labels are merged before the trie is built.
//!
//! ```text
//! direct     2^18 of   31 30                     0    at byte 64
//!                     +--+------------------------+
//!                     | 1|        label           |   a leaf
//!                     | 0|       node number      |
//!                     +--+------------------------+
//! nodes      24 bytes  63                        0    at byte 1048640
//!                     +---------------------------+
//!                     |          vector           |   bit i: slot i has a child
//!                     |          leafvec          |   bit i: slot i is a leaf, and starts a run
//!                     |     base1    |   base0    |   first child, first leaf
//!                     +---------------------------+
//! leaves     u16 each: labels, so at most 2^16 - 1
//! ```
//! Example: a set of 10.1.2.3/32 alone. The top 18 bits are 0x2804: `direct[0x2804]` is 0, the root's node number, and
//! all other entries are `1 << 31 | 0`. The next 6 bits are 2: node 0 has vector `1 << 2`, base1 1, leafvec `1 << 0`
//! (one run of label 0 that goes on after the child), base0 0. The next 6 bits are 0: node 1 has vector `1 << 0`, base1
//! 2, leafvec `1 << 1`, base0 1. Of the last 2 bits, padded, slots 48..63 are address 3: node 2 has leafvec `1 << 0 | 1
//! << 48`, base0 2. Leaves are 0, 0, 0, 1. For the address itself, `base0 + popcount(leafvec & (2 << 48) - 1) - 1` is
//! 3.

use weir_tables::blocks::Blocks;
use weir_tables::flatten::{Range, flatten};
use weir_tables::image::Section;
use weir_tables::prefix::Prefix4;

use crate::image::{HEADER_BYTES, Writer};
use crate::{Limit, SchemeError, SchemeImage};

const DIRECT_BITS: u32 = 18;
const NODE_BITS: u32 = 6;
const NODE_SLOTS: usize = 1 << NODE_BITS;
const NODE_WORDS: usize = 3;
const LEAF: u32 = 1 << 31;
const LABELS_MAX: u32 = u16::MAX as u32;

const _: () = assert!(HEADER_BYTES + (4 << DIRECT_BITS) == 1_048_640);

/// The built tables.
pub(super) struct Poptrie {
    direct: Vec<u32>,
    nodes: Vec<u64>,
    leaves: Vec<u16>,
}

/// Builds the tables of prefixes, sorted by [`weir_tables::prefix::Address::order`], with labels `1..=labels`.
pub(super) fn build(prefixes: &[Prefix4], labels: u32) -> Result<Poptrie, Limit> {
    if labels > LABELS_MAX {
        return Err(Limit { what: "labels", max: LABELS_MAX as usize });
    }
    let mut trie = Poptrie { direct: Vec::with_capacity(1 << DIRECT_BITS), nodes: Vec::new(), leaves: Vec::new() };
    for (first, ranges) in Blocks::new(&flatten(prefixes), 0, 32 - DIRECT_BITS) {
        let entry = match ranges {
            [range] => LEAF | range.label,
            _ => {
                // There are at most 3 nodes per range, far fewer than 2^31.
                let number = trie.add_nodes(1);
                trie.fill(number, first, ranges, 32 - DIRECT_BITS);
                number as u32
            }
        };
        trie.direct.push(entry);
    }
    Ok(trie)
}

impl Poptrie {
    /// Allocates `count` consecutive nodes. Returns the number of the first.
    fn add_nodes(&mut self, count: usize) -> usize {
        let number = self.nodes.len() / NODE_WORDS;
        self.nodes.resize(self.nodes.len() + count * NODE_WORDS, 0);
        number
    }

    /// Fills the node of the 2^`bits` addresses from `first` on, in which `ranges` lie, and all nodes below it.
    fn fill(&mut self, number: usize, first: u32, ranges: &[Range<u32>], bits: u32) {
        let child_bits = bits.saturating_sub(NODE_BITS);
        // Number of node slots per block of addresses: more than one where the key has no bits left.
        let repeat = NODE_SLOTS >> (bits - child_bits);
        let slots: Vec<_> = Blocks::new(ranges, first, child_bits).take(NODE_SLOTS / repeat).collect();
        let base0 = self.leaves.len();
        let (mut vector, mut leafvec) = (0u64, 0u64);
        let mut run = None;
        for (index, (_, ranges)) in slots.iter().enumerate() {
            let bit = 1 << (index * repeat);
            match ranges {
                [range] if run == Some(range.label) => {}
                [range] => {
                    run = Some(range.label);
                    leafvec |= bit;
                    self.leaves.push(range.label as u16);
                }
                _ => vector |= bit,
            }
        }
        let base1 = self.add_nodes(vector.count_ones() as usize);
        let node = [vector, leafvec, (base1 as u64) << 32 | base0 as u64];
        self.nodes[number * NODE_WORDS..][..NODE_WORDS].copy_from_slice(&node);
        let children = slots.into_iter().filter(|(_, ranges)| ranges.len() > 1);
        for (child, (first, ranges)) in children.enumerate() {
            self.fill(base1 + child, first, ranges, child_bits);
        }
    }

    /// Writes the image.
    pub fn write(&self, writer: &Writer) -> Result<SchemeImage, SchemeError> {
        writer.write(&[
            ("direct", Section::U32(&self.direct)),
            ("nodes", Section::U64(&self.nodes)),
            ("leaves", Section::U16(&self.leaves)),
        ])
    }
}

/// The tables in an image.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub direct: &'a [[u8; 4]],
    pub nodes: &'a [[u8; 8]],
    pub leaves: &'a [[u8; 2]],
}

impl View<'_> {
    /// Word `word` of a node.
    fn node(&self, number: usize, word: usize) -> u64 {
        u64::from_le_bytes(self.nodes[number * NODE_WORDS + word])
    }

    /// The label of `addr`, or 0.
    pub fn find(&self, addr: u32) -> u32 {
        let entry = u32::from_le_bytes(self.direct[(addr >> (32 - DIRECT_BITS)) as usize]);
        if entry & LEAF != 0 {
            return entry & !LEAF;
        }
        let mut number = entry as usize;
        let mut rest = addr << DIRECT_BITS;
        loop {
            let slot = rest >> (32 - NODE_BITS);
            let vector = self.node(number, 0);
            // A mask of the slots up to this one.
            let below = u64::MAX >> (63 - slot);
            let base = self.node(number, 2);
            if vector >> slot & 1 == 0 {
                let leaf = base as u32 + (self.node(number, 1) & below).count_ones() - 1;
                return u32::from(u16::from_le_bytes(self.leaves[leaf as usize]));
            }
            number = (base >> 32) as usize + (vector & below).count_ones() as usize - 1;
            rest <<= NODE_BITS;
        }
    }
}
