//! Counted leaf: IPv4 prefixes to labels that count up from prefix to prefix, as the buckets of a list of limits do.
//! Such labels are not stored. A label is the first one of its /16 plus the number of labelled runs in between.
//!
//! It is a rank leaf (`rank_leaf/mod.rs`) whose root also has, for each block, the label from which its leaves count.
//! Leaves are *counted* or *listed*. A leaf with a label out of order lists its values like a rank leaf; this occurs
//! with nested prefixes, several rates and reassigned buckets. Runs without a label (gaps) do not count.
//!
//! ```text
//! root      2^16 of  63              32 31 30                         5 4        0   at byte 64
//!                   +------------------+--+----------------------------+----------+
//!                   |      before      |0 |            base            |  shift   |   block as in a rank leaf
//!                   +------------------+--+----------------------------+----------+
//! entries   as in a rank leaf, at byte 524,352
//! starts    16 bits a lane, 32 lanes a line. Lines before lane `counted`, a multiple of 32, are of listed leaves, as in a rank leaf. Later ones:
//!
//!                    lane 0                                     29       30      31
//!                   +----------+----------+-- ... --+----------+-------------------+
//!                   |  offset  |  start   |         |  start   |     labelled      |   of a leaf's first lane no start, but its offset
//!                   +----------+----------+-- ... --+----------+-------------------+
//! values    1 to 4 bytes a lane of listed leaves
//! ```
//! Bit `i` of `labelled` is set if the run of lane `i` has a label. The label is `before + offset +` the number of such
//! runs from the leaf's first to this one. A lookup reads three cache lines: root, entry and starts. Two /16s that are
//! divided alike share everything except their words in the root, whatever their labels.
//!
//! Example: all /20s, labelled 1, 2, 3 and so on, are one leaf of 16 lanes (starts 0x1000, 0x2000 and so on; offset 0,
//! `labelled` 0xffff) and one entry. `root[0x0a01]` says `before` = 16 * 0x0a01 = 40,976. For 10.1.66.7 (chunk 0x4207)
//! four starts after the first are not above it, five of the runs up to there have labels, and the label is 40,981.
//!
//! If few labels count or the table is small, this saves nothing. The builder then makes rank leaves, and the image's
//! layout tells lookups so.

mod build;
#[cfg(test)]
mod tests;
mod view;

pub(crate) use build::build4;
pub(crate) use view::View;

use super::rank_leaf::{LINE_LANES, ROOT_OFFSET, ROOT_WORDS};

/// Lanes per line that counted leaves use.
const COUNTED_LANES: usize = LINE_LANES - 2;
const ENTRIES_OFFSET: usize = ROOT_OFFSET + ROOT_WORDS * 8;
/// Header field: the first lane of counted leaves.
const COUNTED: usize = 9;

const _: () = assert!(ENTRIES_OFFSET == 524_352);
