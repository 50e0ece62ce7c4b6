//! Checks and lookups.

use super::*;
use crate::image::{Header, ImageError};

/// Checked sections of an image.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    root: &'a [[u8; 4]],
    entries: &'a [[u8; 4]],
    starts: &'a [[u8; 2]],
    values: &'a [[u8; 1]],
    value_bytes: usize,
}

impl<'a> View<'a> {
    /// The sections, their bounds checked.
    pub fn open(header: &Header, image: &'a [u8]) -> Result<Self, ImageError> {
        let view = View {
            root: header.section_at(image, 0, "root", ROOT_OFFSET)?,
            entries: header.section_at(image, 1, "entries", ENTRIES_OFFSET)?,
            starts: header.section(image, 2, "starts")?,
            values: header.section(image, 3, "values")?,
            value_bytes: header.section[VALUE_BYTES] as usize,
        };
        if view.root.len() != ROOT_WORDS {
            return Err(header.corrupt("root", "section size"));
        }
        if view.entries.len() > NUMBERS {
            return Err(header.corrupt("entries", "section size"));
        }
        if !view.starts.len().is_multiple_of(LINE_LANES) || view.starts.len() > NUMBERS {
            return Err(header.corrupt("starts", "section size"));
        }
        if !(1..=4).contains(&view.value_bytes)
            || view.values.len() != view.starts.len() * view.value_bytes + VALUES_PADDING
        {
            return Err(header.corrupt("values", "section size"));
        }
        Ok(view)
    }

    /// Checks every index and label inside of an IPv4 table.
    pub fn check4(&self, header: &Header) -> Result<(), ImageError> {
        self.check(header)?;
        match (0..self.starts.len()).all(|lane| self.value(lane) <= header.labels) {
            true => Ok(()),
            false => Err(header.corrupt("values", "label")),
        }
    }

    /// Checks every index and label inside of an IPv6 table.
    pub fn check6(&self, header: &Header) -> Result<(), ImageError> {
        self.check(header)?;
        for lane in 0..self.starts.len() {
            match self.value(lane) {
                word if word & FLAG != 0 => {
                    self.check_block(word & !FLAG).map_err(|what| header.corrupt("values", what))?
                }
                label if label <= header.labels => {}
                _ => return Err(header.corrupt("values", "label")),
            }
        }
        Ok(())
    }

    fn check(&self, header: &Header) -> Result<(), ImageError> {
        for &word in self.root {
            self.check_block(u32::from_le_bytes(word)).map_err(|what| header.corrupt("root", what))?;
        }
        // How many nested entries stand before each, so that many nested blocks take no longer to check than few.
        let mut nested = Vec::with_capacity(self.entries.len() + 1);
        nested.push(0u32);
        for &entry in self.entries {
            let before = nested[nested.len() - 1];
            nested.push(before + (u32::from_le_bytes(entry) >> 31));
        }
        for &entry in self.entries {
            self.check_entry(u32::from_le_bytes(entry), &nested).map_err(|what| header.corrupt("entries", what))?;
        }
        Ok(())
    }

    /// Whether the entries that a block's word leads to are there.
    fn check_block(&self, word: u32) -> Result<(), &'static str> {
        let shift = word & LOW_MASK;
        let base = (word >> NUMBER_SHIFT) as usize;
        if shift > CHUNK_BITS {
            return Err("shift");
        }
        match base + (1 << (CHUNK_BITS - shift)) <= self.entries.len() {
            true => Ok(()),
            false => Err("block"),
        }
    }

    fn check_entry(&self, entry: u32, nested_before: &[u32]) -> Result<(), &'static str> {
        if entry & FLAG == 0 {
            let lane = (entry >> NUMBER_SHIFT) as usize;
            let fits = lane % LINE_LANES + ((entry & LOW_MASK) as usize) < LINE_LANES && lane < self.starts.len();
            return if fits { Ok(()) } else { Err("leaf") };
        }
        let (base, width) = ((entry & !FLAG) >> NESTED_BASE_SHIFT, entry & LOW_MASK);
        if width > CHUNK_BITS {
            return Err("width");
        }
        let (base, end) = (base as usize, base as usize + (1 << width));
        if end > self.entries.len() {
            return Err("nested block");
        }
        match nested_before[end] - nested_before[base] {
            0 => Ok(()),
            _ => Err("nested block in a nested one"),
        }
    }

    fn entry(&self, index: usize) -> u32 {
        u32::from_le_bytes(self.entries[index])
    }

    fn value(&self, lane: usize) -> u32 {
        let at = lane * self.value_bytes;
        let mut word = [0; 4];
        word.iter_mut().zip(self.values[at..at + self.value_bytes].as_flattened()).for_each(|(to, &from)| *to = from);
        u32::from_le_bytes(word)
    }

    /// What the block of `word` says of a chunk.
    fn step(&self, word: u32, chunk: u32) -> u32 {
        let mut entry = self.entry((word >> NUMBER_SHIFT) as usize + (chunk >> (word & LOW_MASK)) as usize);
        if entry & FLAG != 0 {
            let index = chunk >> (entry >> NUMBER_SHIFT & NESTED_SHIFT_MASK) & ((1 << (entry & LOW_MASK)) - 1);
            entry = self.entry((((entry & !FLAG) >> NESTED_BASE_SHIFT) + index) as usize);
        }
        let lane = (entry >> NUMBER_SHIFT) as usize;
        let others = &self.starts[lane + 1..=lane + (entry & LOW_MASK) as usize];
        self.value(lane + others.iter().filter(|&&start| u32::from(u16::from_le_bytes(start)) <= chunk).count())
    }

    /// The label of `addr`, 0 if none.
    pub fn find4(&self, addr: u32) -> u32 {
        let word = u32::from_le_bytes(self.root[(addr >> CHUNK_BITS) as usize]);
        self.step(word, addr & 0xffff)
    }

    /// The label of `addr`, 0 if none.
    pub fn find6(&self, addr: u128) -> u32 {
        let mut shift = u128::BITS - CHUNK_BITS;
        let mut word = u32::from_le_bytes(self.root[(addr >> shift) as usize]);
        for _ in 0..STEPS_MAX {
            shift -= CHUNK_BITS;
            let value = self.step(word, (addr >> shift) as u32 & 0xffff);
            if value & FLAG == 0 {
                return value;
            }
            word = value & !FLAG;
        }
        // Only a hostile image has more steps than the address has chunks.
        0
    }
}
