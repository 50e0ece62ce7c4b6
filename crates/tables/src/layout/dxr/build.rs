//! Builds images of D16X4R. Equal extension blocks are stored once, and so are equal range blocks.

use weir_abi::Layout;

use super::*;
use crate::blocks::Blocks;
use crate::flatten::{Range, flatten};
use crate::image::{BuildError, Image, Section, Writer};
use crate::prefix::Prefix4;
use crate::unique::Unique;

const LAYOUT: Layout = Layout::Dxr16x4;

/// Builds the image of prefixes, sorted by [`crate::prefix::Address::order`], with labels `1..=labels`.
pub(crate) fn build(prefixes: &[Prefix4], labels: u32) -> Result<Image, BuildError> {
    if labels >= LABELS_MAX {
        return Err(BuildError::Limit { layout: LAYOUT, what: "labels", max: LABELS_MAX as usize - 1 });
    }
    let mut ranges = RangeBlocks { stored: Unique::new(RANGES_MAX), scratch: Vec::new() };
    let mut direct = Vec::with_capacity(DIRECT_ENTRIES);
    // At most as many blocks as the direct table has entries.
    let mut extension = Unique::new(BLOCK_ENTRIES << DIRECT_BITS);
    let mut entries = Vec::with_capacity(BLOCK_ENTRIES);
    for (first, block) in Blocks::new(&flatten(prefixes), 0, 32 - DIRECT_BITS) {
        entries.clear();
        if let [range] = block {
            entries.resize(BLOCK_ENTRIES, hit(range.label));
        } else {
            for (first, block) in Blocks::new(block, first, RANGE_BITS).take(BLOCK_ENTRIES) {
                entries.push(ranges.entry(first, block)?);
            }
        }
        let at = extension.store(&entries).expect("at most as many blocks as the direct table has entries");
        direct.push((at >> EXTENSION_BITS) as u16);
    }
    let (extension, ranges) = (extension.into_words(), ranges.stored.into_words());
    let sections = [Section::U16(&direct), Section::U32(&extension), Section::U32(&ranges)];
    Writer { layout: LAYOUT, entries: prefixes.len(), labels }.write(&sections, &[])
}

/// The entry of addresses with one label.
const fn hit(label: u32) -> u32 {
    label << COUNT_BITS
}

struct RangeBlocks {
    stored: Unique<u32>,
    scratch: Vec<u32>,
}

impl RangeBlocks {
    /// The entry of the 2^12 addresses from `first` on, in which `ranges` lie.
    fn entry(&mut self, first: u32, ranges: &[Range<u32>]) -> Result<u32, BuildError> {
        if let [range] = ranges {
            return Ok(hit(range.label));
        }
        self.scratch.clear();
        let mut count = ranges.len() as u32;
        if count >= COUNT_AT_HEAD {
            self.scratch.push((count - 1) << LABEL_BITS);
            count = COUNT_AT_HEAD;
        }
        // The first range may start before the block.
        self.scratch.extend(ranges.iter().map(|range| {
            let start = range.start.max(first) - first;
            start << LABEL_BITS | range.label
        }));
        let limit = BuildError::Limit { layout: LAYOUT, what: "ranges", max: RANGES_MAX };
        Ok((self.stored.store(&self.scratch).ok_or(limit)? as u32) << COUNT_BITS | count)
    }
}
