//! Rank leaf: prefixes of both families to labels. The key is taken in chunks of 16 bits; what a chunk leads to is a short
//! sorted leaf inside one cache line, ranked by one vector comparison.
//!
//! The *root* has one word for each value of the key's first 16 bits: the *block* of *entries* that divides the next
//! chunk's 2^16 values into 2^X equal parts, X as each block needs it. An entry is a *leaf*: up to 32 *lanes* of one line
//! of 32 *starts*, the first values of runs that share a label, in order. A part with more runs is divided once more, by
//! a *nested* block. The rank of the chunk among a leaf's starts is the lane of its run, and the lane's *value* is the
//! label. In IPv6 a value may be the block of the chunk after it instead: prefixes longer than /32 take further steps.
//!
//! ```text
//! root      2^16 of  31 30                         5 4        0   at byte 64
//!                   +--+----------------------------+----------+
//!                   |0 |            base            |  shift   |   entries[base + (chunk >> shift)]; shift is 16 - X
//!                   +--+----------------------------+----------+
//! entries   leaf    |0 |            lane            |  n - 1   |   lanes [lane..lane + n] of one line, n <= 32
//!                   +--+-----------------+-------+--+----------+
//!           nested  |1 |      base       | shift |    width    |   entries[base + (chunk >> shift & (1 << width) - 1)],
//!                   +--+-----------------+-------+-------------+   a leaf; base has 22 bits, shift 4, width 5
//! starts    16 bits a lane, 32 lanes a line: the first value of the chunk that is in the run; 0 in a leaf's first lane,
//!           which is never compared
//! values    1 to 4 bytes a lane, as the labels need: the label, or in IPv6 with bit 31 set a word as in the root
//! ```
//! Leaves of several parts share a line where they fit; equal leaves and equal blocks are stored once, and so a part with one
//! label costs nothing but its entry. Three cache lines answer for a key (root, entry, starts) and a fourth gives the
//! label; of a country table all but some of the last two stay in L2.
//!
//! Example: a set of 10.1.2.3/32 alone. `root[0x0a01]` is a block with X = 0, whose one entry is a leaf of three lanes:
//! starts 0, 0x0203, 0x0204 and values 0, 1, 0. For 10.1.2.3 the chunk is 0x0203; one start after the first is not above it,
//! so the rank is 1 and the value is 1. All other words of the root name the block whose entry is the leaf of label 0.

pub(crate) mod build;
pub(crate) mod encode;
pub(crate) mod view;

pub(crate) use build::{build4, build6};
pub(crate) use view::{Place, View};

use crate::image::HEADER_BYTES;

/// Lanes of a line of starts: 64 bytes.
pub(crate) const LINE_LANES: usize = 32;
pub(crate) const CHUNK_BITS: u32 = 16;
pub(crate) const ROOT_WORDS: usize = 1 << CHUNK_BITS;
pub(crate) const ROOT_OFFSET: usize = HEADER_BYTES;
const ENTRIES_OFFSET: usize = ROOT_OFFSET + ROOT_WORDS * 4;
/// Header field: bytes of a value.
pub(crate) const VALUE_BYTES: usize = 8;
/// Bytes after the last value: lookups read four at once.
pub(crate) const VALUES_PADDING: usize = 3;

/// Blocks and leaves are numbered with this many bits.
const NUMBER_BITS: u32 = 26;
pub(crate) const NUMBERS: usize = 1 << NUMBER_BITS;
pub(crate) const NUMBER_SHIFT: u32 = 5;
pub(crate) const LOW_MASK: u32 = (1 << NUMBER_SHIFT) - 1;
/// A nested entry, or a value that is a block.
pub(crate) const FLAG: u32 = 1 << 31;
pub(crate) const NESTED_BASE_SHIFT: u32 = 9;
const NESTED_BASES: usize = 1 << 22;
pub(crate) const NESTED_SHIFT_MASK: u32 = 15;

/// Chunks of an IPv6 address after the first.
const STEPS_MAX: usize = 7;

pub(crate) const SECTIONS: [&str; 4] = ["root", "entries", "starts", "values"];

const _: () = assert!(ENTRIES_OFFSET == 262_208);
