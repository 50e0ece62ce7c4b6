//! Reads images of D16X4R. An image may come from another machine and is therefore checked.

use std::cell::RefCell;

use super::*;
use crate::image::{Header, ImageError};
use crate::trace::Trace;

/// The checked sections of an image.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    sections: Sections<'a>,
}

impl<'a> View<'a> {
    /// Locates the sections and checks their bounds.
    pub fn open(header: &Header, image: &'a [u8]) -> Result<Self, ImageError> {
        let sections = Sections {
            direct: header.section_at(image, 0, "direct", DIRECT_OFFSET)?,
            extension: header.section_at(image, 1, "extension", EXTENSION_OFFSET)?,
            ranges: header.section(image, 2, "ranges")?,
        };
        if header.labels >= LABELS_MAX {
            return Err(header.corrupt("header", "label count"));
        }
        if sections.direct.len() != DIRECT_ENTRIES {
            return Err(header.corrupt("direct", "section size"));
        }
        if !sections.extension.len().is_multiple_of(BLOCK_ENTRIES) {
            return Err(header.corrupt("extension", "section size"));
        }
        if sections.ranges.len() > RANGES_MAX {
            return Err(header.corrupt("ranges", "section size"));
        }
        Ok(View { sections })
    }

    /// Checks every index and label in the sections.
    pub fn check(&self, header: &Header) -> Result<(), ImageError> {
        let sections = &self.sections;
        let blocks = sections.extension.len() / BLOCK_ENTRIES;
        if sections.direct.iter().any(|&block| usize::from(u16::from_le_bytes(block)) >= blocks) {
            return Err(header.corrupt("direct", "block number"));
        }
        // Heads have label 0, so one pass can check every word of the section.
        if sections.ranges.iter().any(|&range| u32::from_le_bytes(range) & LABEL_MASK > header.labels) {
            return Err(header.corrupt("ranges", "label"));
        }
        for &entry in sections.extension {
            let checked = sections.check_entry(u32::from_le_bytes(entry), header.labels);
            checked.map_err(|what| header.corrupt("extension", what))?;
        }
        Ok(())
    }

    /// The label of `addr`, or 0.
    pub fn find(&self, addr: u32) -> u32 {
        self.sections.follow(addr, |_| {}, |_| {})
    }

    /// Both halves of the lookup, and the sections of the first.
    pub fn stages(&self) -> Stages<'a> {
        Stages { sections: self.sections }
    }

    /// Records what a lookup reads.
    pub fn trace(&self, addr: u32, trace: &mut Trace) {
        let trace = RefCell::new(trace);
        self.sections.follow(addr, |block| trace.borrow_mut().word(block), |word| trace.borrow_mut().word(word));
    }
}

/// A lookup in two halves: a card does the first, software the second.
#[derive(Clone, Copy)]
pub struct Stages<'a> {
    sections: Sections<'a>,
}

impl<'a> Stages<'a> {
    /// The direct section: for each value of the upper 16 bits of an address the number of its block, little-endian.
    pub fn direct(&self) -> &'a [[u8; 2]] {
        self.sections.direct
    }

    /// The extension section: 16 entries a block, little-endian.
    pub fn extension(&self) -> &'a [[u8; 4]] {
        self.sections.extension
    }

    /// Number of extension blocks.
    pub fn blocks(&self) -> usize {
        self.sections.extension.len() / BLOCK_ENTRIES
    }

    /// The entry that the D16 and X4 stages find for an address.
    pub fn begin(&self, addr: u32) -> u32 {
        self.sections.entry(addr, |_| {}, |_| {})
    }

    /// The label that the R stage finds from an entry, which must be one of this image, and the low 12 bits of the
    /// address.
    ///
    /// # Panics
    /// The entry is of another image.
    pub fn finish(&self, entry: u32, low: u16) -> u32 {
        self.sections.label(entry, low.into(), |_| {})
    }
}

/// The sections of an image.
#[derive(Clone, Copy)]
struct Sections<'a> {
    direct: &'a [[u8; 2]],
    extension: &'a [[u8; 4]],
    ranges: &'a [[u8; 4]],
}

impl Sections<'_> {
    /// Checks that the label or range block of an entry is within bounds. The error says what is wrong.
    fn check_entry(&self, entry: u32, labels: u32) -> Result<(), &'static str> {
        let base = (entry >> COUNT_BITS) as usize;
        let in_bounds = match entry & COUNT_MASK {
            0 if base <= labels as usize => return Ok(()),
            0 => return Err("label"),
            COUNT_AT_HEAD => self.ranges.get(base).is_some_and(|&head| base + 1 + count_of(head) <= self.ranges.len()),
            count => base + count as usize <= self.ranges.len(),
        };
        if in_bounds { Ok(()) } else { Err("range block") }
    }

    /// The label of `addr`. Calls `direct` with the word read from the direct table, and `word` with every other word.
    #[inline]
    fn follow(&self, addr: u32, direct: impl Fn(&[u8; 2]), word: impl Fn(&[u8; 4])) -> u32 {
        let entry = self.entry(addr, direct, &word);
        self.label(entry, addr, word)
    }

    /// The entry of `addr` in the extension table: what the D16 and X4 stages find.
    #[inline]
    fn entry(&self, addr: u32, direct: impl Fn(&[u8; 2]), word: impl Fn(&[u8; 4])) -> u32 {
        let index = (addr >> RANGE_BITS) as usize;
        let block = &self.direct[index >> EXTENSION_BITS];
        direct(block);
        let index = (usize::from(u16::from_le_bytes(*block)) << EXTENSION_BITS) + index % BLOCK_ENTRIES;
        word(&self.extension[index]);
        u32::from_le_bytes(self.extension[index])
    }

    /// The label of `addr` from its entry: the R stage. Only the last 12 bits of `addr` matter.
    #[inline]
    fn label(&self, entry: u32, addr: u32, word: impl Fn(&[u8; 4])) -> u32 {
        let read = |cell: &[u8; 4]| {
            word(cell);
            u32::from_le_bytes(*cell)
        };
        let base = (entry >> COUNT_BITS) as usize;
        let mut block = match entry & COUNT_MASK {
            0 => return base as u32,
            COUNT_AT_HEAD => &self.ranges[base + 1..base + 1 + count_of(self.ranges[base])],
            count => &self.ranges[base..base + count as usize],
        };
        let key = addr % (1 << RANGE_BITS);
        while block.len() > 1 {
            let half = block.len() / 2;
            block = match read(&block[half]) >> LABEL_BITS <= key {
                true => &block[half..],
                // The number of steps equals the steps of the C lookup, whose loop does not depend on the data.
                false => &block[..block.len() - half],
            };
        }
        read(&block[0]) & LABEL_MASK
    }
}

/// Number of ranges behind a head.
fn count_of(head: [u8; 4]) -> usize {
    (u32::from_le_bytes(head) >> LABEL_BITS) as usize + 1
}
