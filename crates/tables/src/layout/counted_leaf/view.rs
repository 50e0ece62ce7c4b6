//! Checks and lookups of counted leaves.

use super::*;
use crate::cells::Cells;
use crate::image::{Header, ImageError};
use crate::layout::rank_leaf::view::{Entries, Offsets};
use crate::layout::rank_leaf::{FLAG, Form, LOW_MASK, NUMBER_SHIFT, ROOT_BITS, Stretch, block_of};
use crate::trace::{Trace, TracedLines};

/// The checked sections of an image.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    image: &'a [u8],
    offsets: Offsets,
    /// The first lane of counted leaves.
    counted: usize,
    root: &'a [[u8; 8]],
    entries: Entries<'a>,
}

impl<'a> View<'a> {
    /// Locates the sections and checks their bounds.
    pub fn open(header: &Header, image: &'a [u8]) -> Result<Self, ImageError> {
        let (offsets, entries) = Offsets::open(header, image, ENTRIES_OFFSET)?;
        let counted = header.section[COUNTED] as usize;
        let view = View { image, offsets, counted, root: header.section_at(image, 0, "root", ROOT_OFFSET)?, entries };
        if view.root.len() != ROOT_WORDS {
            return Err(header.corrupt("root", "section size"));
        }
        entries.check_sizes(header)?;
        if counted > offsets.lanes || !counted.is_multiple_of(LINE_LANES) {
            return Err(header.corrupt("starts", "first lane of counted leaves"));
        }
        offsets.check_values(header, counted)?;
        Ok(view)
    }

    /// Checks every index and label in the sections.
    pub fn check(&self, header: &Header) -> Result<(), ImageError> {
        for &word in self.root {
            let block = u64::from_le_bytes(word) as u32;
            self.entries.check_block(block).map_err(|what| header.corrupt("root", what))?;
        }
        self.entries.check(header)?;
        if !(0..self.counted).all(|lane| self.offsets.value(self.image, lane) <= header.labels) {
            return Err(header.corrupt("values", "label"));
        }
        let leaves =
            || self.entries.words.iter().map(|&word| u32::from_le_bytes(word)).filter(|entry| entry & FLAG == 0);
        let is_counted = |entry: &u32| (*entry >> NUMBER_SHIFT) as usize >= self.counted;
        if !leaves().filter(is_counted).all(|entry| last_lane(entry) < COUNTED_LANES) {
            return Err(header.corrupt("entries", "counted leaf"));
        }
        self.check_labels(header)
    }

    /// Checks that no leaf of a counting block reaches a label above the maximum.
    fn check_labels(&self, header: &Header) -> Result<(), ImageError> {
        let entries = || self.entries.words.iter().map(|&word| u32::from_le_bytes(word));
        let own = entries().map(|entry| if entry & FLAG == 0 { self.reach(entry) } else { 0 }).collect();
        let of_blocks = entries().map(|entry| match entry & FLAG {
            0 => None,
            _ => Some((block_of(entry).0 as u32, entry & LOW_MASK)),
        });
        let mut reaches: Vec<u32> = Vec::with_capacity(self.entries.words.len());
        let nested: Vec<Option<(u32, u32)>> = of_blocks.collect();
        reaches.extend(&own);
        furthest(own, |bits, reach| {
            for (index, nested) in nested.iter().enumerate() {
                if let Some((base, width)) = *nested
                    && width == bits
                {
                    reaches[index] = reach[base as usize];
                }
            }
        });
        let mut is_right = true;
        furthest(reaches, |bits, reach| {
            for &word in self.root {
                let (before, block) = split(u64::from_le_bytes(word));
                if block & LOW_MASK == bits {
                    let reach = reach[(block >> NUMBER_SHIFT) as usize];
                    is_right &= reach == 0 || u64::from(before) + u64::from(reach) <= header.labels.into();
                }
            }
        });
        if is_right { Ok(()) } else { Err(header.corrupt("root", "label")) }
    }

    /// The highest label of a leaf minus its block's `before`; 0 if the leaf is not counted or has no label.
    fn reach(&self, leaf: u32) -> u32 {
        let first = (leaf >> NUMBER_SHIFT) as usize;
        if first < self.counted {
            return 0;
        }
        match self.labelled(self.image, first, first + (leaf & LOW_MASK) as usize).count_ones() {
            0 => 0,
            count => u32::from(self.image.u16(self.offsets.start_at(first))) + count,
        }
    }

    /// A bit for each labelled run of the lanes `first..=last` of one line. The highest bit is the last lane's.
    fn labelled(&self, cells: &(impl Cells + ?Sized), first: usize, last: usize) -> u32 {
        let line = first / LINE_LANES * LINE_LANES;
        let labelled = cells.u32(self.offsets.start_at(line + COUNTED_LANES));
        labelled >> (first - line) << (LINE_LANES - 1 - (last - first))
    }

    /// The label of `addr`, or 0.
    pub fn find4(&self, addr: u32) -> u32 {
        self.find4_in(self.image, addr)
    }

    /// Records what a lookup reads.
    pub fn trace4(&self, addr: u32, trace: &mut Trace) {
        self.find4_in(&TracedLines::new(self.image, trace), addr);
    }

    fn find4_in(&self, cells: &(impl Cells + ?Sized), addr: u32) -> u32 {
        let chunk = addr & 0xffff;
        let (before, block) = split(cells.u64(ROOT_OFFSET + (addr >> ROOT_BITS) as usize * 8));
        let leaf = Offsets::leaf_from(cells, ENTRIES_OFFSET, block, Stretch::Ipv4.whole(), chunk.into(), Form::Ipv4).0;
        let (first, lane) = ((leaf >> NUMBER_SHIFT) as usize, self.offsets.lane(cells, leaf, chunk));
        if first < self.counted {
            return self.offsets.value(cells, lane);
        }
        let labelled = self.labelled(cells, first, lane);
        match labelled >> (LINE_LANES - 1) {
            0 => 0,
            _ => before + u32::from(cells.u16(self.offsets.start_at(first))) + labelled.count_ones(),
        }
    }
}

/// Splits a word of the root into `before` and the block.
fn split(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

/// The position of a leaf's last lane in its line.
fn last_lane(leaf: u32) -> usize {
    (leaf >> NUMBER_SHIFT) as usize % LINE_LANES + (leaf & LOW_MASK) as usize
}

/// Calls `see` for each number of bits from 0 to 16. The slice holds, for each position, the maximum of the next 2^bits
/// words, or of fewer at the end. The time does not depend on how many blocks share entries.
fn furthest(mut words: Vec<u32>, mut see: impl FnMut(u32, &[u32])) {
    for bits in 0..=ROOT_BITS {
        see(bits, &words);
        for index in 0..words.len().saturating_sub(1 << bits) {
            words[index] = words[index].max(words[index + (1 << bits)]);
        }
    }
}
