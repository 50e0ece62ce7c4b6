//! SAIL_L: arrays at three levels, 16, 24 and 32 bits deep. Yang et al., "Guarantee IP lookup performance with FIB
//! explosion" (SIGCOMM 2014), section 4. Prefixes are pushed to the next level, and the bitmap of a level is merged
//! into its array. An entry with longer prefixes below holds the number of a *chunk* of the next level.
//!
//! A label is one byte. Level 24 needs two codes of that byte: one means "see C24", one means "no prefix". Equal chunks
//! of level 32 (leaf blocks) are stored once, as in section II of Zec et al., "RFPF: surgical DDoS filtering with fast
//! LPM". Without that, few tables with /32s fit. The paper's level 16 entries have a flag bit. Here a threshold
//! separates labels from chunks in the same 2 bytes, so nearly every /16 can have a chunk.
//!
//! ```text
//! BCN16      2^16 of   15            0    at byte 64
//!                     +---------------+
//!                     | below 256: label; else 256 + chunk of level 24
//!                     +---------------+
//! BN24       256 of    7      0           a chunk, at byte 131136
//!                     +--------+
//!                     | 0: see C24 at the same place; else 1 + label
//!                     +--------+
//! C24        256 of    15            0    a chunk
//!                     +---------------+
//!                     | chunk of level 32, 0 if BN24 is not 0
//!                     +---------------+
//! N32        256 of    7      0           a chunk: labels
//!                     +--------+
//! ```
//! A /16 with longer prefixes takes 256 * 3 bytes, a /24 with longer prefixes 256 (or nothing if another is equal).
//!
//! Example: a set of 10.1.2.3/32 alone. `BCN16[0x0a01]` is 256, all others are 0. In chunk 0 of level 24, `BN24[2]` is
//! 0 and `C24[2]` is 0, all other BN24 are 1 (label 0). Chunk 0 of level 32 is 0 but for `N32[3]`, which is 1.

use weir_tables::blocks::Blocks;
use weir_tables::flatten::{Range, flatten};
use weir_tables::image::Section;
use weir_tables::prefix::Prefix4;
use weir_tables::unique::Unique;

use crate::image::{Byte, HEADER_BYTES, Writer};
use crate::leaf_block::{LEAF_BLOCK, leaf_block};
use crate::{Limit, SchemeError, SchemeImage};

const CHUNK: usize = LEAF_BLOCK;
/// Entries of BCN16 from this value on are chunks.
const CHUNK_BASE: usize = 256;
/// Two codes of a byte are not labels.
const LABELS_MAX: u32 = 254;
const CHUNKS24_MAX: usize = (1 << 16) - CHUNK_BASE;
const CHUNKS32_MAX: usize = 1 << 16;

const _: () = assert!(HEADER_BYTES + (2 << 16) == 131_136);

/// The built arrays.
pub(super) struct Sail {
    bcn16: Vec<u16>,
    bn24: Vec<u8>,
    c24: Vec<u16>,
    n32: Vec<u8>,
}

/// Builds the arrays of prefixes, sorted by [`weir_tables::prefix::Address::order`], with labels `1..=labels`.
pub(super) fn build(prefixes: &[Prefix4], labels: u32) -> Result<Sail, Limit> {
    if labels > LABELS_MAX {
        return Err(Limit { what: "labels", max: LABELS_MAX as usize });
    }
    let mut bcn16 = Vec::with_capacity(1 << 16);
    let mut level24 = Level24 { bn24: Vec::new(), c24: Vec::new(), n32: Unique::new(CHUNKS32_MAX * CHUNK) };
    for (first, ranges) in Blocks::new(&flatten(prefixes), 0, 16) {
        bcn16.push(match ranges {
            [range] => range.label as u16,
            _ => level24.add_chunk(first, ranges)?,
        });
    }
    Ok(Sail { bcn16, bn24: level24.bn24, c24: level24.c24, n32: level24.n32.into_words() })
}

struct Level24 {
    bn24: Vec<u8>,
    c24: Vec<u16>,
    n32: Unique<u8>,
}

impl Level24 {
    /// Adds the chunk of the /16 at `first`, in which `ranges` lie. Returns its entry for BCN16.
    fn add_chunk(&mut self, first: u32, ranges: &[Range<u32>]) -> Result<u16, Limit> {
        let chunk = self.bn24.len() / CHUNK;
        if chunk == CHUNKS24_MAX {
            return Err(Limit { what: "chunks of level 24", max: CHUNKS24_MAX });
        }
        for (first, ranges) in Blocks::new(ranges, first, 8).take(CHUNK) {
            let (bn, c) = match ranges {
                [range] => (1 + range.label as u8, 0),
                _ => (0, self.leaf_chunk(first, ranges)?),
            };
            self.bn24.push(bn);
            self.c24.push(c);
        }
        Ok((CHUNK_BASE + chunk) as u16)
    }

    /// The number of the chunk of the /24 at `first`, which is added if it is new.
    fn leaf_chunk(&mut self, first: u32, ranges: &[Range<u32>]) -> Result<u16, Limit> {
        let labels = leaf_block(first, ranges, |label| label as u8);
        let limit = Limit { what: "distinct chunks of level 32", max: CHUNKS32_MAX };
        Ok((self.n32.store(&labels).ok_or(limit)? / CHUNK) as u16)
    }
}

impl Sail {
    /// Writes the image.
    pub fn write(&self, writer: &Writer) -> Result<SchemeImage, SchemeError> {
        writer.write(&[
            ("bcn16", Section::U16(&self.bcn16)),
            ("bn24", Section::U8(&self.bn24)),
            ("c24", Section::U16(&self.c24)),
            ("n32", Section::U8(&self.n32)),
        ])
    }
}

/// The arrays in an image.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub bcn16: &'a [[u8; 2]],
    pub bn24: &'a [Byte],
    pub c24: &'a [[u8; 2]],
    pub n32: &'a [Byte],
}

impl View<'_> {
    /// The label of `addr`, or 0.
    pub fn find(&self, addr: u32) -> u32 {
        let entry = usize::from(u16::from_le_bytes(self.bcn16[(addr >> 16) as usize]));
        if entry < CHUNK_BASE {
            return entry as u32;
        }
        let index = (entry - CHUNK_BASE) * CHUNK + (addr >> 8) as usize % CHUNK;
        let [bn] = self.bn24[index];
        if bn != 0 {
            return u32::from(bn) - 1;
        }
        let chunk = usize::from(u16::from_le_bytes(self.c24[index]));
        let [label] = self.n32[chunk * CHUNK + addr as usize % CHUNK];
        u32::from(label)
    }
}
