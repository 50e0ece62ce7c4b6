//! D16X4R: enhanced DXR, IPv4 prefixes to labels. Section II and figure 1 of Zec et al., "RFPF: surgical DDoS filtering
//! with fast LPM", after "DXR: towards a billion routing lookups per second in software" (CCR 2012).
//!
//! Bits 31..16 of the key index the *direct* table, which names a block of 16 *extension* entries. Bits 15..12 index
//! the block. An extension entry is a label (a hit) or a block of *ranges*, searched with bits 11..0. Equal extension
//! blocks are stored once, and so are equal range blocks. The length of a block is unlimited: a length that does not
//! fit the entry is stored in the block's head.
//!
//! ```text
//! direct     2^16 of   15            0    at byte 64
//!                     +---------------+
//!                     | block number  |
//!                     +---------------+
//! extension  16 of     31         10 9       0   a block, at byte 131136
//!                     +-------------+---------+
//!                     |    base     |  count  |   count 0: a hit, base is the label
//!                     +-------------+---------+   count 2..=1022: ranges[base..base + count]
//!                                                 count 1023: ranges[base] is the head, the block follows
//! ranges     count of  31   20 19             0
//!                     +-------+---------------+
//!                     | start |     label     |   start: bits 11..0 of the first address; the first of a block is 0
//!                     +-------+---------------+
//! head                 31   20 19             0
//!                     +-------+---------------+
//!                     | n - 1 |       0       |   n ranges follow
//!                     +-------+---------------+
//! ```
//! Example: a set of 10.1.2.3/32 alone. Block 0 is all hits of label 0. `direct[0x0a01]` is 1; block 1 has the hit 0
//! everywhere but in entry 0 (bits 15..12 of the address are 0), which is `0 << 10 | 3`: ranges `0x000_00000` (from 0,
//! label 0), `0x203_00001` (from 2.3, label 1), `0x204_00000` (from 2.4, label 0).

pub(crate) mod build;
mod view;

pub(crate) use build::build;
pub use view::Stages;
pub(crate) use view::View;

use crate::image::{HEADER_BYTES, LABELS_MAX};

/// Number of key bits that index the direct table.
const DIRECT_BITS: u32 = 16;
/// Number of key bits that index an extension block.
const EXTENSION_BITS: u32 = 4;
/// Number of key bits that a range block is searched with: the low bits.
const RANGE_BITS: u32 = 32 - DIRECT_BITS - EXTENSION_BITS;
/// Number of bits of a range's word for the label.
const LABEL_BITS: u32 = 32 - RANGE_BITS;
const LABEL_MASK: u32 = (1 << LABEL_BITS) - 1;
/// Number of bits of an entry for the length of its range block.
const COUNT_BITS: u32 = 10;
const COUNT_MASK: u32 = (1 << COUNT_BITS) - 1;
/// The count of an entry whose block has its length at the head.
const COUNT_AT_HEAD: u32 = COUNT_MASK;
/// Number of entries in an extension block.
const BLOCK_ENTRIES: usize = 1 << EXTENSION_BITS;
/// Maximum number of words of the ranges.
const RANGES_MAX: usize = 1 << (32 - COUNT_BITS);

const DIRECT_ENTRIES: usize = 1 << DIRECT_BITS;
const DIRECT_OFFSET: usize = HEADER_BYTES;
const EXTENSION_OFFSET: usize = DIRECT_OFFSET + DIRECT_ENTRIES * 2;

const _: () = assert!(EXTENSION_OFFSET == 131_136);
const _: () = assert!(LABELS_MAX == 1 << LABEL_BITS);

pub(crate) const SECTIONS: [&str; 3] = ["direct", "extension", "ranges"];
