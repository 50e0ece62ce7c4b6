//! Checks and lookups of rank leaves.

use super::*;
use crate::cells::{Cells, CellsMut};
use crate::image::{Header, ImageError};
use crate::trace::{Trace, TracedLines};

/// The byte offsets of an image's words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offsets {
    pub starts: usize,
    pub values: usize,
    pub value_bytes: usize,
    /// Numbers of entries and lanes, including free ones.
    pub entries: usize,
    pub lanes: usize,
}

impl Offsets {
    /// Locates the sections after the root, checks that they end inside the image, and returns the entries.
    pub fn open<'a>(
        header: &Header,
        image: &'a [u8],
        entries_offset: usize,
    ) -> Result<(Self, Entries<'a>), ImageError> {
        let words: &[[u8; 4]] = header.section_at(image, 1, "entries", entries_offset)?;
        let starts: &[[u8; 2]] = header.section(image, 2, "starts")?;
        let _values: &[[u8; 1]] = header.section(image, 3, "values")?;
        let offsets = Offsets {
            starts: header.section[4] as usize,
            values: header.section[6] as usize,
            value_bytes: header.section[VALUE_BYTES] as usize,
            entries: words.len(),
            lanes: starts.len(),
        };
        Ok((offsets, Entries { words, lanes: starts.len(), labels: None }))
    }

    /// Checks that the values section has room for `lanes` lanes.
    pub fn check_values(&self, header: &Header, lanes: usize) -> Result<(), ImageError> {
        let bytes = header.section[7] as usize;
        match (1..=4).contains(&self.value_bytes) && bytes == lanes * self.value_bytes + VALUES_PADDING {
            true => Ok(()),
            false => Err(header.corrupt("values", "section size")),
        }
    }

    /// Byte offset of a word of the root.
    pub fn root_at(index: usize) -> usize {
        ROOT_OFFSET + index * size_of::<u32>()
    }

    /// Byte offset of an entry.
    pub fn entry_at(index: usize) -> usize {
        ENTRIES_OFFSET + index * size_of::<u32>()
    }

    /// Byte offset of a lane's start.
    pub fn start_at(&self, lane: usize) -> usize {
        self.starts + lane * size_of::<u16>()
    }

    /// Byte offset of the first byte of a lane's value.
    pub fn value_at(&self, lane: usize) -> usize {
        self.values + lane * self.value_bytes
    }

    /// A lane's value.
    pub fn value(&self, cells: &(impl Cells + ?Sized), lane: usize) -> u32 {
        let at = self.value_at(lane);
        let bytes =
            || (0..self.value_bytes).fold(0, |value, byte| value | u32::from(cells.u8(at + byte)) << (8 * byte));
        match self.value_bytes {
            2 => cells.u16(at).into(),
            4 => cells.u32(at),
            _ => bytes(),
        }
    }

    /// Writes the value of a lane whose value is 0. Intermediate values are never above `value`.
    pub fn set_value(&self, cells: &impl CellsMut, lane: usize, value: u32) {
        let at = self.value_at(lane);
        match self.value_bytes {
            2 => cells.set_u16(at, value as u16),
            4 => cells.set_u32(at, value),
            bytes => (0..bytes).for_each(|byte| cells.set_u8(at + byte, (value >> (8 * byte)) as u8)),
        }
    }

    /// Sets a lane's value to 0. Intermediate values are never above the old one.
    pub fn clear_value(&self, cells: &impl CellsMut, lane: usize) {
        let at = self.value_at(lane);
        match self.value_bytes {
            2 => cells.set_u16(at, 0),
            4 => cells.set_u32(at, 0),
            bytes => (0..bytes).rev().for_each(|byte| cells.set_u8(at + byte, 0)),
        }
    }

    /// The entry for a chunk in the block that `word` names, which is not a nested one.
    pub fn leaf(cells: &(impl Cells + ?Sized), word: u32, chunk: u32) -> u32 {
        Self::leaf_from(cells, ENTRIES_OFFSET, word, chunk)
    }

    /// Like `leaf`, with entry 0 at byte `entries`.
    pub fn leaf_from(cells: &(impl Cells + ?Sized), entries: usize, word: u32, chunk: u32) -> u32 {
        let entry = |index: u32| cells.u32(entries + index as usize * size_of::<u32>());
        match entry((word >> NUMBER_SHIFT) + (chunk >> (word & LOW_MASK))) {
            nested if nested & FLAG != 0 => {
                let index = chunk >> (nested >> NUMBER_SHIFT & NESTED_SHIFT_MASK) & ((1 << (nested & LOW_MASK)) - 1);
                entry(((nested & !FLAG) >> NESTED_BASE_SHIFT) + index)
            }
            leaf => leaf,
        }
    }

    /// The lane of a leaf that holds the chunk.
    pub fn lane(&self, cells: &(impl Cells + ?Sized), leaf: u32, chunk: u32) -> usize {
        let lane = (leaf >> NUMBER_SHIFT) as usize;
        let others = lane + 1..=lane + (leaf & LOW_MASK) as usize;
        lane + others.filter(|&other| u32::from(cells.u16(self.start_at(other))) <= chunk).count()
    }

    /// The value for a chunk in the block that `word` names.
    fn step(&self, cells: &(impl Cells + ?Sized), word: u32, chunk: u32) -> u32 {
        let entry = Self::leaf(cells, word, chunk);
        label_of(entry).unwrap_or_else(|| self.value(cells, self.lane(cells, entry, chunk)))
    }

    /// The label of `addr`, or 0.
    pub fn find4(&self, cells: &(impl Cells + ?Sized), addr: u32) -> u32 {
        match cells.u32(Self::root_at((addr >> CHUNK_BITS) as usize)) {
            block if block & FLAG != 0 => self.step(cells, block & !FLAG, addr & 0xffff),
            label => label,
        }
    }

    /// The label of `addr`, or 0.
    pub fn find6(&self, cells: &(impl Cells + ?Sized), addr: u128) -> u32 {
        let mut shift = u128::BITS - CHUNK_BITS;
        let mut value = cells.u32(Self::root_at((addr >> shift) as usize));
        for _ in 0..STEPS_MAX {
            if value & FLAG == 0 {
                return value;
            }
            shift -= CHUNK_BITS;
            value = self.step(cells, value & !FLAG, (addr >> shift) as u32 & 0xffff);
        }
        // Only in a hostile image are there more steps than chunks of the address.
        if value & FLAG == 0 { value } else { 0 }
    }
}

/// The checked sections of an image.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    image: &'a [u8],
    offsets: Offsets,
    root: &'a [[u8; 4]],
    entries: Entries<'a>,
}

impl<'a> View<'a> {
    /// Locates the sections and checks their bounds.
    pub fn open(header: &Header, image: &'a [u8]) -> Result<Self, ImageError> {
        let (offsets, entries) = Offsets::open(header, image, ENTRIES_OFFSET)?;
        let view = View { image, offsets, root: header.section_at(image, 0, "root", ROOT_OFFSET)?, entries };
        if view.root.len() != ROOT_WORDS {
            return Err(header.corrupt("root", "section size"));
        }
        entries.check_sizes(header)?;
        offsets.check_values(header, offsets.lanes)?;
        Ok(view)
    }

    /// The positions of the words.
    pub fn offsets(&self) -> Offsets {
        self.offsets
    }

    /// Checks every index and label of an IPv4 table.
    pub fn check4(&self, header: &Header) -> Result<(), ImageError> {
        self.check(header)?;
        match (0..self.offsets.lanes).all(|lane| self.value(lane) <= header.labels) {
            true => Ok(()),
            false => Err(header.corrupt("values", "label")),
        }
    }

    /// Checks every index and label of an IPv6 table.
    pub fn check6(&self, header: &Header) -> Result<(), ImageError> {
        self.check(header)?;
        let mut values = (0..self.offsets.lanes).map(|lane| self.value(lane));
        values.try_for_each(|value| self.check_value(header, value)).map_err(|what| header.corrupt("values", what))
    }

    fn check(&self, header: &Header) -> Result<(), ImageError> {
        let mut root = self.root.iter().map(|&value| u32::from_le_bytes(value));
        root.try_for_each(|value| self.check_value(header, value)).map_err(|what| header.corrupt("root", what))?;
        Entries { labels: Some(header.labels), ..self.entries }.check(header)
    }

    /// Checks a label, or that the entries of a block exist.
    fn check_value(&self, header: &Header, value: u32) -> Result<(), &'static str> {
        match value {
            block if block & FLAG != 0 => self.entries.check_block(block & !FLAG),
            label if label <= header.labels => Ok(()),
            _ => Err("label"),
        }
    }

    fn value(&self, lane: usize) -> u32 {
        self.offsets.value(self.image, lane)
    }

    /// The label of `addr`, or 0.
    pub fn find4(&self, addr: u32) -> u32 {
        self.offsets.find4(self.image, addr)
    }

    /// The label of `addr`, or 0.
    pub fn find6(&self, addr: u128) -> u32 {
        self.offsets.find6(self.image, addr)
    }

    /// Records what a lookup of an IPv4 key reads.
    pub fn trace4(&self, addr: u32, trace: &mut Trace) {
        self.offsets.find4(&TracedLines::new(self.image, trace), addr);
    }

    /// Records what a lookup of an IPv6 key reads.
    pub fn trace6(&self, addr: u128, trace: &mut Trace) {
        self.offsets.find6(&TracedLines::new(self.image, trace), addr);
    }
}

/// The entries of an image, and the number of lanes that they may name.
#[derive(Clone, Copy)]
pub(crate) struct Entries<'a> {
    pub words: &'a [[u8; 4]],
    pub lanes: usize,
    /// The highest label; `None` if no entry is a label, so that an entry of one lane is a leaf.
    pub labels: Option<u32>,
}

impl Entries<'_> {
    /// Checks the numbers of entries and lanes.
    pub fn check_sizes(&self, header: &Header) -> Result<(), ImageError> {
        if self.words.len() > NUMBERS {
            return Err(header.corrupt("entries", "section size"));
        }
        match self.lanes.is_multiple_of(LINE_LANES) && (1..=NUMBERS).contains(&self.lanes) {
            true => Ok(()),
            false => Err(header.corrupt("starts", "section size")),
        }
    }

    /// Checks every entry.
    pub fn check(&self, header: &Header) -> Result<(), ImageError> {
        // Number of nested entries before each entry, so that many nested blocks are checked as fast as few.
        let mut nested = Vec::with_capacity(self.words.len() + 1);
        nested.push(0u32);
        for &entry in self.words {
            let before = nested[nested.len() - 1];
            nested.push(before + (u32::from_le_bytes(entry) >> 31));
        }
        for &entry in self.words {
            self.check_entry(u32::from_le_bytes(entry), &nested).map_err(|what| header.corrupt("entries", what))?;
        }
        Ok(())
    }

    /// Checks that the entries of the block that `word` names exist.
    pub fn check_block(&self, word: u32) -> Result<(), &'static str> {
        let shift = word & LOW_MASK;
        let base = (word >> NUMBER_SHIFT) as usize;
        if shift > CHUNK_BITS {
            return Err("shift");
        }
        match base + (1 << (CHUNK_BITS - shift)) <= self.words.len() {
            true => Ok(()),
            false => Err("block"),
        }
    }

    fn check_entry(&self, entry: u32, nested_before: &[u32]) -> Result<(), &'static str> {
        if let (Some(labels), Some(label)) = (self.labels, label_of(entry)) {
            return if label <= labels { Ok(()) } else { Err("label") };
        }
        if entry & FLAG == 0 {
            let lane = (entry >> NUMBER_SHIFT) as usize;
            let fits = lane % LINE_LANES + ((entry & LOW_MASK) as usize) < LINE_LANES && lane < self.lanes;
            return if fits { Ok(()) } else { Err("leaf") };
        }
        let (base, width) = ((entry & !FLAG) >> NESTED_BASE_SHIFT, entry & LOW_MASK);
        if width > CHUNK_BITS {
            return Err("width");
        }
        let (base, end) = (base as usize, base as usize + (1 << width));
        if end > self.words.len() {
            return Err("nested block");
        }
        match nested_before[end] - nested_before[base] {
            0 => Ok(()),
            _ => Err("nested block in a nested one"),
        }
    }
}
