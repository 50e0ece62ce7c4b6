//! Counted leaf: IPv4 prefixes to labels that count up from prefix to prefix, as the buckets of a list of limits do. What counts need not be
//! stored: a label is the first one of its /16, and how many runs with a label lie between.
//!
//! A rank leaf (`rank_leaf/mod.rs`) whose root says beside each block from which label on its leaves count. Leaves are *counted* or *listed*:
//! those of which a label is out of turn (of nested prefixes, of several rates, of buckets that were given away anew) list their values as those of
//! rank leaves do. Runs without a label (gaps) do not count.
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
//! Bit `i` of `labelled` says that the run of lane `i` has a label: `before + offset +` the number of such runs from the leaf's first to
//! this one. A lookup reads three cache lines, root, entry and starts, and a /16 that is divided as another one shares all but the word in the
//! root with it, whatever their labels.
//!
//! Example: all /20s, labelled 1, 2, 3 and so on, are one leaf of 16 lanes (starts 0x1000, 0x2000 and so on; offset 0, `labelled` 0xffff)
//! and one entry. `root[0x0a01]` says `before` = 16 * 0x0a01 = 40,976. For 10.1.66.7 (chunk 0x4207) four starts after the first are not above it, five of
//! the runs up to there have labels, and the label is 40,981.
//!
//! Where that saves nothing, because few labels count or the table is small, the builder makes a rank leaf, and lookups see to that.

mod build;
#[cfg(test)]
mod tests;
mod view;

pub(crate) use build::build4;
pub(crate) use view::View;

use super::rank_leaf::{LINE_LANES, ROOT_OFFSET, ROOT_WORDS};

/// Lanes of a line that counted leaves use.
const COUNTED_LANES: usize = LINE_LANES - 2;
const ENTRIES_OFFSET: usize = ROOT_OFFSET + ROOT_WORDS * 8;
/// Header field: the first lane of counted leaves.
const COUNTED: usize = 9;

const _: () = assert!(ENTRIES_OFFSET == 524_352);
