//! D16X4R: enhanced DXR, IPv4 prefixes to labels. Section II and figure 1 of Zec et al., "RFPF: surgical DDoS filtering
//! with fast LPM", after "DXR: towards a billion routing lookups per second in software" (CCR 2012).
//!
//! Bits 31..16 of the key index the *direct* table, which names a block of 16 *extension* entries. Bits 15..12 index
//! the block. An extension entry is a label (a hit) or a block of *ranges*, searched with bits 11..0. Equal extension
//! blocks are stored once, and so are equal range blocks. The length of a block is unlimited: a length that does not
//! fit the entry is stored in the block's head. Policies use this instance of the algorithm [`crate::scheme::dxr`].
//! This file has its image, which may come from another machine and is therefore checked.
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

use weir_abi::Layout;

use crate::image::{BuildError, HEADER_BYTES, Header, Image, ImageError, LABELS_MAX, Section, Writer};
use crate::prefix::Prefix4;
use crate::scheme::Limit;
use crate::scheme::dxr::{self, D16X4R};
use crate::trace::Trace;

const DIRECT_ENTRIES: usize = 1 << D16X4R.direct_bits;
const DIRECT_OFFSET: usize = HEADER_BYTES;
const EXTENSION_OFFSET: usize = DIRECT_OFFSET + DIRECT_ENTRIES * 2;

const _: () = assert!(EXTENSION_OFFSET == 131_136);
const _: () = assert!(LABELS_MAX == 1 << D16X4R.indexed_bits());

pub(crate) const SECTIONS: [&str; 3] = ["direct", "extension", "ranges"];

/// Builds the image of prefixes, sorted by [`crate::prefix::Address::order`], with labels `1..=labels`.
pub(crate) fn build(prefixes: &[Prefix4], labels: u32) -> Result<Image, BuildError> {
    let layout = Layout::Dxr16x4;
    let limit = |Limit { what, max }| BuildError::Limit { layout, what, max };
    let parts = dxr::build(prefixes, labels, D16X4R).map_err(limit)?;
    let sections = [Section::U16(&parts.direct), Section::U32(&parts.extension), Section::U32(&parts.ranges)];
    Writer { layout, entries: prefixes.len(), labels }.write(&sections, &[])
}

/// A lookup in two halves: a card does the first, software the second.
#[derive(Clone, Copy)]
pub struct Stages<'a> {
    sections: dxr::View<'a>,
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
        self.sections.extension.len() / D16X4R.block_entries()
    }

    /// The entry that the D16 and X4 stages find for an address.
    pub fn begin(&self, addr: u32) -> u32 {
        self.sections.entry(D16X4R, addr, |_| {}, |_| {})
    }

    /// The label that the R stage finds from an entry, which must be one of this image, and the low 12 bits of the
    /// address.
    ///
    /// # Panics
    /// The entry is of another image.
    pub fn finish(&self, entry: u32, low: u16) -> u32 {
        self.sections.label(D16X4R, entry, low.into(), |_| {})
    }
}

/// The checked sections of an image.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    sections: dxr::View<'a>,
}

impl<'a> View<'a> {
    /// Locates the sections and checks their bounds.
    pub fn open(header: &Header, image: &'a [u8]) -> Result<Self, ImageError> {
        let sections = dxr::View {
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
        if !sections.extension.len().is_multiple_of(D16X4R.block_entries()) {
            return Err(header.corrupt("extension", "section size"));
        }
        if sections.ranges.len() > D16X4R.ranges_max() {
            return Err(header.corrupt("ranges", "section size"));
        }
        Ok(View { sections })
    }

    /// Checks every index and label in the sections.
    pub fn check(&self, header: &Header) -> Result<(), ImageError> {
        let sections = &self.sections;
        let blocks = sections.extension.len() / D16X4R.block_entries();
        if sections.direct.iter().any(|&block| usize::from(u16::from_le_bytes(block)) >= blocks) {
            return Err(header.corrupt("direct", "block number"));
        }
        // Heads have label 0, so one pass can check every word of the section.
        if sections.ranges.iter().any(|&range| u32::from_le_bytes(range) & D16X4R.label_mask() > header.labels) {
            return Err(header.corrupt("ranges", "label"));
        }
        for &entry in sections.extension {
            let checked = sections.check_entry(D16X4R, u32::from_le_bytes(entry), header.labels);
            checked.map_err(|what| header.corrupt("extension", what))?;
        }
        Ok(())
    }

    /// The label of `addr`, or 0.
    pub fn find(&self, addr: u32) -> u32 {
        self.sections.find(D16X4R, addr)
    }

    /// Both halves of the lookup, and the sections of the first.
    pub fn stages(&self) -> Stages<'a> {
        Stages { sections: self.sections }
    }

    /// Records what a lookup reads.
    pub fn trace(&self, addr: u32, trace: &mut Trace) {
        self.sections.trace(D16X4R, addr, trace);
    }
}
