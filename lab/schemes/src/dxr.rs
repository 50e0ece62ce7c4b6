//! DXR: direct tables, then binary search in ranges. Zec, Rizzo and Mikuc, "DXR: towards a billion routing lookups per
//! second in software" (CCR 2012); as enhanced by Zec et al., "RFPF: surgical DDoS filtering with fast LPM", section
//! II.
//!
//! One implementation serves all shapes. The enhanced ones, D16X2R and D16X4R, index a *direct* table with the key's
//! top 16 bits. The table names a block of 2^X *extension* entries, which the next X bits index. The original, D20R,
//! has one entry for each value of the top 20 bits and no direct table. An entry is a label (a hit) or a block of
//! *ranges*, searched with the remaining R bits. Equal range blocks are stored once, and so are equal extension blocks.
//!
//! ```text
//!                 D20R                   D16X2R                  D16X4R
//! direct     -                      2^16 of 16 bits: number of the extension block
//! entry       31       12 11    0   31         10 9      0       a word at number << X | next X bits of the key
//!            +-----------+-------+ +-------------+--------+      count 0: a hit, base is the label
//!            |   base    | count | |    base     | count  |      else: ranges[base..base + count], but enhanced ones
//!            +-----------+-------+ +-------------+--------+      with count 1023 have their length at ranges[base]
//! range       31  20 19         0   31    18 17         0        31  20 19         0
//!            +------+------------+ +--------+------------+      +------+------------+   start: low R bits of the first
//!            | start|   label    | | start  |   label    |      | start|   label    |   address, 0 in the first range
//!            +------+------------+ +--------+------------+      +------+------------+   of a block
//! head        -                     n - 1 in place of start, label 0: n ranges follow
//! R           12 bits               14 bits                      12 bits
//! labels      < 2^12                < 2^18                       < 2^20
//! ranges      2^19                  2^22                         2^22
//! of a block  < 2^12                2^14                         2^12
//! ```
//! The original's limits on labels and block lengths are those of its published code, although its words have room for
//! more.
//!
//! Example: a set of 10.1.2.3/32 alone, in D20R. Entry 0x0a010 (10.1.0) is `0 << 12 | 3`, all others are hits of label
//! 0; ranges are `0x000_00000` (from 0, label 0), `0x203_00001` (from 2.3, label 1), `0x204_00000` (from 2.4, label 0).
//! For 10.1.2.3 the key is 0x203; the search in three ranges ends at the second. In D16X4R, `direct[0x0a01]` is 1,
//! block 1 has that entry first of 16 (as `0 << 10 | 3`), and the ranges are the same.

use weir_tables::blocks::Blocks;
use weir_tables::flatten::{Range, flatten};
use weir_tables::prefix::Prefix4;
use weir_tables::unique::Unique;

use crate::Limit;

/// D and X, and the sizes of the fields that follow from them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Number of key bits that index the direct table.
    pub(crate) direct_bits: u32,
    /// Number of key bits that index an extension block. If 0, there is no direct table, only its entries.
    pub(crate) extension_bits: u32,
    count_bits: u32,
    labels_max: u32,
    ranges_max: usize,
}

/// The original DXR.
pub(crate) const D20R: Shape =
    Shape { direct_bits: 20, extension_bits: 0, count_bits: 12, labels_max: (1 << 12) - 1, ranges_max: 1 << 19 };
/// The smaller enhanced shape.
pub(crate) const D16X2R: Shape = enhanced(2);
/// The faster enhanced shape.
pub(crate) const D16X4R: Shape = enhanced(4);

/// D is 16, so a 16-bit number can name every block.
const fn enhanced(extension_bits: u32) -> Shape {
    Shape {
        direct_bits: 16,
        extension_bits,
        count_bits: 10,
        labels_max: (1 << (16 + extension_bits)) - 1,
        ranges_max: 1 << 22,
    }
}

impl Shape {
    /// The name that benchmarks use.
    pub(crate) const fn name(&self) -> &'static str {
        match self.extension_bits {
            0 => "d20r",
            2 => "d16x2r",
            _ => "d16x4r",
        }
    }

    /// The name and header of the C lookup.
    pub(crate) const fn c_function(&self) -> &'static str {
        match self.extension_bits {
            0 => "dxr20_find",
            2 => "dxr16x2_find",
            _ => "dxr16x4_find",
        }
    }

    /// Number of key bits that index a table.
    pub(crate) const fn indexed_bits(&self) -> u32 {
        self.direct_bits + self.extension_bits
    }

    /// R: number of key bits that a range block is searched with.
    const fn range_bits(&self) -> u32 {
        32 - self.indexed_bits()
    }

    /// Number of bits of a range's word that the start does not use.
    const fn label_bits(&self) -> u32 {
        self.indexed_bits()
    }

    /// Number of entries in an extension block.
    pub(crate) const fn block_entries(&self) -> usize {
        1 << self.extension_bits
    }

    const fn count_mask(&self) -> u32 {
        (1 << self.count_bits) - 1
    }

    /// The mask of the label bits in a range's word.
    pub(crate) const fn label_mask(&self) -> u32 {
        (1 << self.label_bits()) - 1
    }

    /// Whether a block length that does not fit the entry is stored in the block's head.
    const fn has_heads(&self) -> bool {
        self.extension_bits > 0
    }

    const fn hit(&self, label: u32) -> u32 {
        label << self.count_bits
    }

    fn head_count(&self, head: [u8; 4]) -> usize {
        (u32::from_le_bytes(head) >> self.label_bits()) as usize + 1
    }
}

/// The built tables.
pub(crate) struct Parts {
    /// Empty if the shape has no extension.
    pub direct: Vec<u16>,
    pub extension: Vec<u32>,
    pub ranges: Vec<u32>,
}

/// Builds the tables of prefixes, sorted by [`weir_tables::prefix::Address::order`], with labels `1..=labels`.
pub(crate) fn build(prefixes: &[Prefix4], labels: u32, shape: Shape) -> Result<Parts, Limit> {
    if labels > shape.labels_max {
        return Err(Limit { what: "labels", max: shape.labels_max as usize });
    }
    let mut ranges = RangeBlocks { shape, stored: Unique::new(shape.ranges_max), scratch: Vec::new() };
    let flat = flatten(prefixes);
    let blocks = Blocks::new(&flat, 0, 32 - shape.direct_bits);
    if shape.extension_bits == 0 {
        let extension = blocks.map(|(first, block)| ranges.entry(first, block)).collect::<Result<_, _>>()?;
        return Ok(Parts { direct: Vec::new(), extension, ranges: ranges.stored.into_words() });
    }
    let mut direct = Vec::with_capacity(1 << shape.direct_bits);
    // At most as many blocks as there are 16-bit numbers.
    let mut extension = Unique::new(shape.block_entries() << shape.direct_bits);
    let mut entries = Vec::with_capacity(shape.block_entries());
    for (first, block) in blocks {
        entries.clear();
        if let [range] = block {
            entries.resize(shape.block_entries(), shape.hit(range.label));
        } else {
            for (first, block) in Blocks::new(block, first, shape.range_bits()).take(shape.block_entries()) {
                entries.push(ranges.entry(first, block)?);
            }
        }
        let at = extension.store(&entries).expect("at most as many blocks as the direct table has entries");
        direct.push((at >> shape.extension_bits) as u16);
    }
    Ok(Parts { direct, extension: extension.into_words(), ranges: ranges.stored.into_words() })
}

struct RangeBlocks {
    shape: Shape,
    stored: Unique<u32>,
    scratch: Vec<u32>,
}

impl RangeBlocks {
    /// The entry of the 2^R addresses from `first` on, in which `ranges` lie.
    fn entry(&mut self, first: u32, ranges: &[Range<u32>]) -> Result<u32, Limit> {
        let shape = self.shape;
        if let [range] = ranges {
            return Ok(shape.hit(range.label));
        }
        self.scratch.clear();
        let count = match ranges.len() as u32 {
            count if count < shape.count_mask() + u32::from(!shape.has_heads()) => count,
            count if shape.has_heads() => {
                self.scratch.push((count - 1) << shape.label_bits());
                shape.count_mask()
            }
            _ => return Err(Limit { what: "ranges in a block", max: shape.count_mask() as usize }),
        };
        // The first range may start before the block.
        self.scratch.extend(ranges.iter().map(|range| {
            let start = range.start.max(first) - first;
            start << shape.label_bits() | range.label
        }));
        let limit = Limit { what: "ranges", max: shape.ranges_max };
        Ok((self.stored.store(&self.scratch).ok_or(limit)? as u32) << shape.count_bits | count)
    }
}

/// The tables in an image.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    /// Empty if the shape has no extension.
    pub direct: &'a [[u8; 2]],
    pub extension: &'a [[u8; 4]],
    pub ranges: &'a [[u8; 4]],
}

impl View<'_> {
    /// The label of `addr`, or 0.
    #[inline]
    pub fn find(&self, shape: Shape, addr: u32) -> u32 {
        self.label(shape, self.entry(shape, addr), addr)
    }

    /// The entry of `addr` in the extension table: what the D and X stages find.
    #[inline]
    fn entry(&self, shape: Shape, addr: u32) -> u32 {
        let index = (addr >> shape.range_bits()) as usize;
        let index = match shape.extension_bits {
            0 => index,
            bits => {
                let block = u16::from_le_bytes(self.direct[index >> bits]);
                (usize::from(block) << bits) + index % shape.block_entries()
            }
        };
        u32::from_le_bytes(self.extension[index])
    }

    /// The label of `addr` from its entry: the R stage. Only the last R bits of `addr` matter.
    #[inline]
    fn label(&self, shape: Shape, entry: u32, addr: u32) -> u32 {
        let read = |cell: &[u8; 4]| u32::from_le_bytes(*cell);
        let base = (entry >> shape.count_bits) as usize;
        let mut block = match entry & shape.count_mask() {
            0 => return base as u32,
            count if count == shape.count_mask() && shape.has_heads() => {
                &self.ranges[base + 1..base + 1 + shape.head_count(self.ranges[base])]
            }
            count => &self.ranges[base..base + count as usize],
        };
        let key = addr % (1 << shape.range_bits());
        while block.len() > 1 {
            let half = block.len() / 2;
            block = match read(&block[half]) >> shape.label_bits() <= key {
                true => &block[half..],
                // The number of steps equals the steps of the C lookup, whose loop does not depend on the data.
                false => &block[..block.len() - half],
            };
        }
        read(&block[0]) & shape.label_mask()
    }

    /// mu in the paper's Table 1: the share of all keys that an entry answers without a search.
    pub fn hit_ratio(&self, shape: Shape) -> f64 {
        let hits = |entries: &[[u8; 4]]| {
            entries.iter().filter(|&&entry| u32::from_le_bytes(entry) & shape.count_mask() == 0).count()
        };
        let found = match shape.extension_bits {
            0 => hits(self.extension),
            _ => {
                let blocks: Vec<usize> = self.extension.chunks(shape.block_entries()).map(hits).collect();
                self.direct.iter().map(|&block| blocks[usize::from(u16::from_le_bytes(block))]).sum()
            }
        };
        found as f64 / (1u64 << shape.indexed_bits()) as f64
    }

    /// phi in the paper's Table 1: the size of the direct and extension tables, divided by the size of the original's
    /// direct table with as many indexed bits.
    pub fn footprint_ratio(&self, shape: Shape) -> f64 {
        let bytes = size_of_val(self.direct) + size_of_val(self.extension);
        bytes as f64 / (4u64 << shape.indexed_bits()) as f64
    }
}
