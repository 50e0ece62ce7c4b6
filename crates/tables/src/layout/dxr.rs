//! D16X4R: enhanced DXR, IPv4 prefixes to labels. Section II and figure 1 of Zec et al., "RFPF: surgical DDoS
//! filtering with fast LPM", after "DXR: towards a billion routing lookups per second in software" (CCR 2012).
//!
//! The key's bits 31..16 index the *direct* table, which names a block of 16 *extension* entries, indexed by bits 15..12.
//! An extension entry is a label (a hit) or a block of *ranges*, searched with bits 11..0. Equal extension blocks are
//! stored once, and so are equal range blocks. No limit on the length of a block: one that does not fit the entry has its
//! length at its head.
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
//! everywhere but in entry 0 (bits 15..12 of the address are 0), which is `0 << 10 | 3`: ranges `0x000_00000` (from 0, label 0),
//! `0x203_00001` (from 2.3, label 1), `0x204_00000` (from 2.4, label 0).

use std::collections::HashMap;

use weir_abi::Layout;

use crate::flatten::{Range, flatten};
use crate::image::{BuildError, HEADER_BYTES, Header, Image, ImageError, LABELS_MAX, Section, Writer};
use crate::prefix::Prefix4;

const DIRECT_ENTRIES: usize = 1 << 16;
const BLOCK_ENTRIES: usize = 1 << EXTENSION_BITS;
const EXTENSION_BITS: u32 = 4;
const RANGE_BITS: u32 = 12;
const RANGES_MAX: usize = 1 << 22;

const COUNT_BITS: u32 = 10;
const COUNT_MASK: u32 = (1 << COUNT_BITS) - 1;
const COUNT_AT_HEAD: u32 = COUNT_MASK;
const LABEL_BITS: u32 = 20;
const LABEL_MASK: u32 = (1 << LABEL_BITS) - 1;

const DIRECT_OFFSET: usize = HEADER_BYTES;
const EXTENSION_OFFSET: usize = DIRECT_OFFSET + DIRECT_ENTRIES * 2;

const _: () = assert!(EXTENSION_OFFSET == 131_136);
const _: () = assert!(LABELS_MAX == 1 << LABEL_BITS);

pub(crate) const SECTIONS: [&str; 3] = ["direct", "extension", "ranges"];

/// Builds the image of prefixes in [`crate::prefix::Address::order`] with labels `1..=labels`.
pub(crate) fn build(prefixes: &[Prefix4], labels: u32) -> Result<Image, BuildError> {
    let layout = Layout::Dxr16x4;
    if labels >= LABELS_MAX {
        return Err(BuildError::Limit { layout, what: "labels", max: LABELS_MAX as usize - 1 });
    }
    let mut builder = Builder::default();
    let mut ranges = Ranges { ranges: &flatten(prefixes), label: 0 };
    for top in 0..DIRECT_ENTRIES as u32 {
        let block = ranges.block(top, &mut builder)?;
        builder.push_block(block);
    }
    let Builder { direct, extension, ranges, .. } = builder;
    let sections = [Section::U16(&direct), Section::U32(extension.as_flattened()), Section::U32(&ranges)];
    Writer { layout, entries: prefixes.len(), labels }.write(&sections, &[])
}

type Block = [u32; BLOCK_ENTRIES];

/// The ranges not yet built in, and the label in force before the first of them.
struct Ranges<'a> {
    ranges: &'a [Range<u32>],
    label: u32,
}

impl<'a> Ranges<'a> {
    /// Takes the ranges that start up to `last`.
    fn take_to(&mut self, last: u32) -> &'a [Range<u32>] {
        let count = self.ranges.iter().take_while(|range| range.start <= last).count();
        let (taken, rest) = self.ranges.split_at(count);
        self.ranges = rest;
        taken
    }

    /// The extension block of the addresses whose high half is `top`.
    fn block(&mut self, top: u32, builder: &mut Builder) -> Result<Block, BuildError> {
        if self.ranges.first().is_none_or(|range| range.start >> 16 > top) {
            return Ok([hit(self.label); BLOCK_ENTRIES]);
        }
        let mut block = [0; BLOCK_ENTRIES];
        for (index, entry) in block.iter_mut().enumerate() {
            let first = top << 16 | (index as u32) << RANGE_BITS;
            let chunk = self.take_to(first | ((1 << RANGE_BITS) - 1));
            *entry = builder.entry(self.label, first, chunk)?;
            if let Some(range) = chunk.last() {
                self.label = range.label;
            }
        }
        Ok(block)
    }
}

fn hit(label: u32) -> u32 {
    label << COUNT_BITS
}

#[derive(Default)]
struct Builder {
    direct: Vec<u16>,
    extension: Vec<Block>,
    ranges: Vec<u32>,
    blocks: HashMap<Block, u16>,
    /// Where the first range block of each hash lies. A second block of the same hash is stored without being found again.
    chunks: HashMap<u64, usize>,
    scratch: Vec<u32>,
}

impl Builder {
    fn push_block(&mut self, block: Block) {
        // As many blocks as numbers, at most.
        let number = *self.blocks.entry(block).or_insert_with(|| {
            self.extension.push(block);
            (self.extension.len() - 1) as u16
        });
        self.direct.push(number);
    }

    /// The extension entry of 2^12 addresses from `first`: `label` up to the first of `chunk`, then as it says.
    fn entry(&mut self, label: u32, first: u32, chunk: &[Range<u32>]) -> Result<u32, BuildError> {
        let leading = chunk.first().is_none_or(|range| range.start != first);
        let count = chunk.len() + usize::from(leading);
        if count == 1 {
            return Ok(hit(chunk.first().map_or(label, |range| range.label)));
        }
        self.scratch.clear();
        let count_field = match count as u32 {
            count if count < COUNT_AT_HEAD => count,
            count => {
                self.scratch.push((count - 1) << LABEL_BITS);
                COUNT_AT_HEAD
            }
        };
        if leading {
            self.scratch.push(label);
        }
        self.scratch.extend(chunk.iter().map(|range| (range.start - first) << LABEL_BITS | range.label));
        Ok((self.store_scratch()? as u32) << COUNT_BITS | count_field)
    }

    /// Where the words of `scratch` lie in `ranges`, after storing them if they are new.
    fn store_scratch(&mut self) -> Result<usize, BuildError> {
        let hash = self.scratch.iter().fold(self.scratch.len() as u64, |hash, &word| {
            (hash.rotate_left(5) ^ u64::from(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        });
        let base = self.ranges.len();
        let known = *self.chunks.entry(hash).or_insert(base);
        if self.ranges[known..].starts_with(&self.scratch) {
            return Ok(known);
        }
        if base + self.scratch.len() > RANGES_MAX {
            return Err(BuildError::Limit { layout: Layout::Dxr16x4, what: "ranges", max: RANGES_MAX });
        }
        self.ranges.extend_from_slice(&self.scratch);
        Ok(base)
    }
}

/// Checked sections of an image.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    direct: &'a [[u8; 2]],
    extension: &'a [[u8; 4]],
    ranges: &'a [[u8; 4]],
}

impl<'a> View<'a> {
    /// The sections, their bounds checked.
    pub fn open(header: &Header, image: &'a [u8]) -> Result<Self, ImageError> {
        let view = View {
            direct: header.section_at(image, 0, "direct", DIRECT_OFFSET)?,
            extension: header.section_at(image, 1, "extension", EXTENSION_OFFSET)?,
            ranges: header.section(image, 2, "ranges")?,
        };
        if view.direct.len() != DIRECT_ENTRIES {
            return Err(header.corrupt("direct", "section size"));
        }
        if !view.extension.len().is_multiple_of(BLOCK_ENTRIES) {
            return Err(header.corrupt("extension", "section size"));
        }
        if view.ranges.len() > RANGES_MAX {
            return Err(header.corrupt("ranges", "section size"));
        }
        Ok(view)
    }

    /// Checks every index and label inside.
    pub fn check(&self, header: &Header) -> Result<(), ImageError> {
        let blocks = self.extension.len() / BLOCK_ENTRIES;
        if self.direct.iter().any(|&block| usize::from(u16::from_le_bytes(block)) >= blocks) {
            return Err(header.corrupt("direct", "block number"));
        }
        // Heads have label 0, so every word of the section can be checked alike, once.
        if self.ranges.iter().any(|&range| u32::from_le_bytes(range) & LABEL_MASK > header.labels) {
            return Err(header.corrupt("ranges", "label"));
        }
        for &entry in self.extension {
            let entry = u32::from_le_bytes(entry);
            self.check_entry(entry, header.labels).map_err(|what| header.corrupt("extension", what))?;
        }
        Ok(())
    }

    fn check_entry(&self, entry: u32, labels: u32) -> Result<(), &'static str> {
        let base = (entry >> COUNT_BITS) as usize;
        let in_bounds = match entry & COUNT_MASK {
            0 if base <= labels as usize => return Ok(()),
            0 => return Err("label"),
            COUNT_AT_HEAD => {
                self.ranges.get(base).is_some_and(|&head| base + 1 + head_count(head) <= self.ranges.len())
            }
            count => base + count as usize <= self.ranges.len(),
        };
        if in_bounds { Ok(()) } else { Err("range block") }
    }

    /// The label of `addr`, 0 if none.
    pub fn find(&self, addr: u32) -> u32 {
        let block = usize::from(u16::from_le_bytes(self.direct[(addr >> 16) as usize]));
        let index = (addr >> RANGE_BITS) as usize % BLOCK_ENTRIES;
        let entry = u32::from_le_bytes(self.extension[block * BLOCK_ENTRIES + index]);
        let base = (entry >> COUNT_BITS) as usize;
        let mut block = match entry & COUNT_MASK {
            0 => return base as u32,
            COUNT_AT_HEAD => &self.ranges[base + 1..base + 1 + head_count(self.ranges[base])],
            count => &self.ranges[base..base + count as usize],
        };
        let key = addr % (1 << RANGE_BITS);
        while block.len() > 1 {
            let half = block.len() / 2;
            block = match u32::from_le_bytes(block[half]) >> LABEL_BITS <= key {
                true => &block[half..],
                // As many steps as the C lookup takes, whose loop does not depend on what it reads.
                false => &block[..block.len() - half],
            };
        }
        u32::from_le_bytes(block[0]) & LABEL_MASK
    }
}

fn head_count(head: [u8; 4]) -> usize {
    (u32::from_le_bytes(head) >> LABEL_BITS) as usize + 1
}
