//! Rank leaf: prefixes of both families to labels. The key is divided into chunks of 16 bits. A chunk leads to a short
//! sorted leaf inside one cache line, and one vector comparison finds the chunk's rank in it.
//!
//! The *root* has one value for each value of the key's first 16 bits: the label, if all these keys have the same one,
//! else the name of a *block* of *entries*. A block divides the next chunk's 2^16 values into 2^X equal parts. Each
//! block has its own X. An entry is the label of the whole part, or a *leaf*: 2 to 32 *lanes* of one line of 32
//! *starts*, the first values of runs that share a label, in order. A part with more runs is divided once more, by a
//! *nested* block. The rank of the chunk among a leaf's starts is the lane of its run, and the lane's *value* is the
//! label. In IPv6 a value may instead name the block of the next chunk, so prefixes longer than /32 take further steps.
//!
//! ```text
//! root      2^16 of  31 30                         5 4        0   at byte 64
//!                   +--+---------------------------------------+
//!           label   |0 |                 label                 |
//!                   +--+----------------------------+----------+
//!           block   |1 |            base            |  shift   |   entries[base + (chunk >> shift)]; shift is 16 - X
//!                   +--+----------------------------+----------+
//! entries   label   |0 |           label            |    0     |
//!                   +--+----------------------------+----------+
//!           leaf    |0 |            lane            |  n - 1   |   lanes [lane..lane + n] of one line, 2 <= n <= 32
//!                   +--+-----------------+-------+--+----------+
//!           nested  |1 |      base       | shift |    width    |   entries[base + (chunk >> shift & (1 << width) - 1)],
//!                   +--+-----------------+-------+-------------+   no nested one; base has 22 bits, shift 4, width 5
//! starts    16 bits a lane, 32 lanes a line: the first value of the chunk that is in the run; 0 in a leaf's first lane,
//!           which is never compared
//! values    1 to 4 bytes a lane, as the labels need: the label, or in IPv6 a block as in the root
//! ```
//! Leaves of several parts share a line if they fit. Equal leaves and equal blocks are stored once. So a lookup reads
//! one to four cache lines: root, entry, starts, value. For a country table all but some of the last two stay in L2,
//! and most keys need neither.
//!
//! A part whose only value does not fit into an entry, a label from 2^26 on or in IPv6 a block, is a leaf of two lanes
//! with the same value.
//!
//! Example: a set of 10.1.2.3/32 alone. `root[0x0a01]` is a block with X = 0, whose one entry is a leaf of three lanes:
//! starts 0, 0x0203, 0x0204 and values 0, 1, 0. For 10.1.2.3 the chunk is 0x0203; one start after the first is not
//! above it, so the rank is 1 and the value is 1. All other words of the root are the label 0.

pub(crate) mod build;
pub(crate) mod encode;
pub(crate) mod view;

pub(crate) use build::{build4, build6};
pub(crate) use view::{Offsets, View};

use crate::image::HEADER_BYTES;

/// Lanes per line of starts: 64 bytes.
pub(crate) const LINE_LANES: usize = 32;
pub(crate) const CHUNK_BITS: u32 = 16;
pub(crate) const ROOT_WORDS: usize = 1 << CHUNK_BITS;
pub(crate) const ROOT_OFFSET: usize = HEADER_BYTES;
const ENTRIES_OFFSET: usize = ROOT_OFFSET + ROOT_WORDS * 4;
/// Header field: bytes per value.
pub(crate) const VALUE_BYTES: usize = 8;
/// Bytes after the last value, because lookups read four at once.
pub(crate) const VALUES_PADDING: usize = 3;

/// Number of bits in the numbers of blocks and leaves.
const NUMBER_BITS: u32 = 26;
pub(crate) const NUMBERS: usize = 1 << NUMBER_BITS;
pub(crate) const NUMBER_SHIFT: u32 = 5;
pub(crate) const LOW_MASK: u32 = (1 << NUMBER_SHIFT) - 1;
/// Marks a nested entry, or a value that is a block. Other values are labels.
pub(crate) const FLAG: u32 = 1 << 31;
pub(crate) const NESTED_BASE_SHIFT: u32 = 9;
const NESTED_BASES: usize = 1 << 22;
pub(crate) const NESTED_SHIFT_MASK: u32 = 15;

/// Number of chunks of an IPv6 address after the first.
const STEPS_MAX: usize = 7;

pub(crate) const SECTIONS: [&str; 4] = ["root", "entries", "starts", "values"];

const _: () = assert!(ENTRIES_OFFSET == 262_208);

/// First entry and number of entries of the block that a root word or a value names.
pub(crate) fn block_of(word: u32) -> (usize, usize) {
    (((word & !FLAG) >> NUMBER_SHIFT) as usize, 1 << (CHUNK_BITS - (word & LOW_MASK)))
}

/// First entry and number of entries of the block that a nested entry names.
pub(crate) fn nested_of(entry: u32) -> (usize, usize) {
    (((entry & !FLAG) >> NESTED_BASE_SHIFT) as usize, 1 << (entry & LOW_MASK))
}

/// First lane and number of lanes of a leaf.
pub(crate) fn leaf_of(entry: u32) -> (usize, usize) {
    ((entry >> NUMBER_SHIFT) as usize, (entry & LOW_MASK) as usize + 1)
}

/// The label of an entry that is one.
pub(crate) fn label_of(entry: u32) -> Option<u32> {
    (entry & (FLAG | LOW_MASK) == 0).then_some(entry >> NUMBER_SHIFT)
}

/// The entry of a part in which all keys have this value. `None` if the value does not fit into an entry.
pub(crate) fn answer(value: u32) -> Option<u32> {
    ((value as usize) < NUMBERS).then_some(value << NUMBER_SHIFT)
}

#[cfg(test)]
mod tests;
