//! DIR-24-8: one array for all /24s, and a block of 256 for each /24 with longer prefixes. Gupta, Lin and McKeown,
//! "Routing lookups in hardware at memory access speeds" (INFOCOM 1998).
//!
//! Equal blocks of TBL8 are stored once, as in section II of Zec et al., "RFPF: surgical DDoS filtering with fast LPM",
//! because there are only 2^15 numbers for them.
//!
//! ```text
//! TBL24      2^24 of   15 14         0    at byte 64
//!                     +--+------------+
//!                     | 0|   label    |   labels up to 2^15 - 1
//!                     | 1|   block    |
//!                     +--+------------+
//! TBL8       256 of    15 14         0    a block, at byte 33554496
//!                     +--+------------+
//!                     | 0|   label    |
//!                     +--+------------+
//! ```
//! Example: a set of 10.1.2.3/32 alone. `TBL24[0x0a0102]` is `1 << 15 | 0`, all others are 0; of block 0, `TBL8[3]` is
//! 1, all others are 0. 32 MiB and 512 bytes.

use weir_tables::blocks::Blocks;
use weir_tables::flatten::{Range, flatten};
use weir_tables::image::Section;
use weir_tables::prefix::Prefix4;
use weir_tables::unique::Unique;

use crate::image::{HEADER_BYTES, Writer};
use crate::leaf_block::{LEAF_BLOCK, leaf_block};
use crate::{Limit, SchemeError, SchemeImage};

const TO_BLOCK: u16 = 1 << 15;
const LABELS_MAX: u32 = TO_BLOCK as u32 - 1;
const BLOCKS_MAX: usize = 1 << 15;

const _: () = assert!(HEADER_BYTES + (2 << 24) == 33_554_496);

/// The built tables.
pub(super) struct Dir24x8 {
    tbl24: Vec<u16>,
    tbl8: Vec<u16>,
}

/// Builds the tables of prefixes, sorted by [`weir_tables::prefix::Address::order`], with labels `1..=labels`.
pub(super) fn build(prefixes: &[Prefix4], labels: u32) -> Result<Dir24x8, Limit> {
    if labels > LABELS_MAX {
        return Err(Limit { what: "labels", max: LABELS_MAX as usize });
    }
    let mut tbl24 = Vec::with_capacity(1 << 24);
    let mut tbl8 = Unique::new(BLOCKS_MAX * LEAF_BLOCK);
    // Whole /16s first, because most of them have one label.
    for (first, ranges) in Blocks::new(&flatten(prefixes), 0, 16) {
        if let [range] = ranges {
            tbl24.resize(tbl24.len() + 256, range.label as u16);
            continue;
        }
        for (first, ranges) in Blocks::new(ranges, first, 8).take(256) {
            tbl24.push(match ranges {
                [range] => range.label as u16,
                _ => TO_BLOCK | add_block(&mut tbl8, first, ranges)?,
            });
        }
    }
    Ok(Dir24x8 { tbl24, tbl8: tbl8.into_words() })
}

/// The number of the block of the /24 at `first`, which is added if it is new.
fn add_block(tbl8: &mut Unique<u16>, first: u32, ranges: &[Range<u32>]) -> Result<u16, Limit> {
    let labels = leaf_block(first, ranges, |label| label as u16);
    let limit = Limit { what: "distinct leaf blocks", max: BLOCKS_MAX };
    Ok((tbl8.store(&labels).ok_or(limit)? / LEAF_BLOCK) as u16)
}

impl Dir24x8 {
    /// Writes the image.
    pub fn write(&self, writer: &Writer) -> Result<SchemeImage, SchemeError> {
        writer.write(&[("tbl24", Section::U16(&self.tbl24)), ("tbl8", Section::U16(&self.tbl8))])
    }
}

/// The tables in an image.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub tbl24: &'a [[u8; 2]],
    pub tbl8: &'a [[u8; 2]],
}

impl View<'_> {
    /// The label of `addr`, or 0.
    pub fn find(&self, addr: u32) -> u32 {
        let entry = u16::from_le_bytes(self.tbl24[(addr >> 8) as usize]);
        if entry & TO_BLOCK == 0 {
            return u32::from(entry);
        }
        let block = usize::from(entry & !TO_BLOCK);
        u32::from(u16::from_le_bytes(self.tbl8[block * LEAF_BLOCK + addr as usize % LEAF_BLOCK]))
    }
}
