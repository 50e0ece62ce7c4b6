//! Checks and lookups of rank leaves.

use super::*;
use crate::cells::{Cells, CellsMut};
use crate::image::{Header, ImageError};
use crate::trace::{Trace, TracedLines};
use weir_abi::Layout;

/// The byte offsets of an image's words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offsets {
    pub form: Form,
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
        let form = if header.layout == Layout::RankLeaf6 { Form::Ipv6 } else { Form::Ipv4 };
        let lanes = match form {
            Form::Ipv4 => header.section::<2>(image, 2, "starts")?.len(),
            _ => header.section::<4>(image, 2, "starts")?.len(),
        };
        let _values: &[[u8; 1]] = header.section(image, 3, "values")?;
        let offsets = Offsets {
            form,
            starts: header.section[4] as usize,
            values: header.section[6] as usize,
            value_bytes: header.section[VALUE_BYTES] as usize,
            entries: words.len(),
            lanes,
        };
        Ok((offsets, Entries { words, form, lanes, labels: None }))
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
        self.starts + lane * self.form.start_bytes()
    }

    /// A lane's start.
    pub fn start(&self, cells: &(impl Cells + ?Sized), lane: usize) -> u32 {
        match self.form {
            Form::Ipv4 => cells.u16(self.start_at(lane)).into(),
            _ => cells.u32(self.start_at(lane)),
        }
    }

    /// Writes a lane's start.
    pub fn set_start(&self, cells: &impl CellsMut, lane: usize, start: u32) {
        match self.form {
            Form::Ipv4 => cells.set_u16(self.start_at(lane), start as u16),
            _ => cells.set_u32(self.start_at(lane), start),
        }
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

    /// The entry that the block `word` of `part` has for a value of the stretch, and the part that it is about. The
    /// entry is a block only in an invalid image with too many levels. Then the part means nothing.
    pub fn leaf(&self, cells: &(impl Cells + ?Sized), word: u32, part: Part, value: u64) -> (u32, Part) {
        Self::leaf_from(cells, ENTRIES_OFFSET, word, part, value, self.form)
    }

    /// Like `leaf`, with entry 0 at byte `entries`.
    pub fn leaf_from(
        cells: &(impl Cells + ?Sized),
        entries: usize,
        word: u32,
        mut part: Part,
        value: u64,
        form: Form,
    ) -> (u32, Part) {
        let mut entry = word | FLAG;
        for _ in 0..form.levels() {
            let (base, width) = (block_of(entry).0, entry & LOW_MASK);
            if width > part.bits {
                break;
            }
            let index = part.index(width, value);
            part = part.divided(width, index);
            entry = cells.u32(entries + (base + index) * size_of::<u32>());
            if entry & FLAG == 0 {
                break;
            }
        }
        (entry, part)
    }

    /// The lane of a leaf that holds the lower bits of a key.
    pub fn lane(&self, cells: &(impl Cells + ?Sized), leaf: u32, key: u32) -> usize {
        let (lane, count) = leaf_of(leaf);
        let others = lane + 1..lane + count;
        lane + others.filter(|&other| self.start(cells, other) <= key).count()
    }

    /// The value that the block `word` of a part has for a value of the stretch, and the grain that it is about.
    fn step(&self, cells: &(impl Cells + ?Sized), word: u32, part: Part, value: u64) -> (u32, Part) {
        let (entry, part) = self.leaf(cells, word, part, value);
        if entry & FLAG != 0 {
            return (0, part);
        }
        let lane = || self.lane(cells, entry, (value >> part.grain()) as u32);
        (label_of(entry).unwrap_or_else(|| self.value(cells, lane())), part.grain_of(value))
    }

    /// The label of `addr`, or 0.
    pub fn find4(&self, cells: &(impl Cells + ?Sized), addr: u32) -> u32 {
        match cells.u32(Self::root_at((addr >> ROOT_BITS) as usize)) {
            block if block & FLAG != 0 => self.step(cells, block, Stretch::Ipv4.whole(), (addr & 0xffff).into()).0,
            label => label,
        }
    }

    /// The label of `addr`, or 0.
    pub fn find6(&self, cells: &(impl Cells + ?Sized), addr: u128) -> u32 {
        let mut value = cells.u32(Self::root_at((addr >> (u128::BITS - ROOT_BITS)) as usize));
        for stretch in [Stretch::Upper, Stretch::Lower] {
            let mut part = stretch.whole();
            // A part with grains, and one of them.
            for _ in 0..2 {
                if value & FLAG == 0 {
                    return value;
                }
                (value, part) = self.step(cells, value, part, stretch.of(addr));
                if part.bits == 0 {
                    break;
                }
            }
        }
        // Only in a hostile image is the value a block here.
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
            block if block & FLAG != 0 => self.entries.check_block(block),
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
    pub form: Form,
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
        match self.lanes.is_multiple_of(self.form.lanes()) && (1..=NUMBERS).contains(&self.lanes) {
            true => Ok(()),
            false => Err(header.corrupt("starts", "section size")),
        }
    }

    /// Checks every entry.
    pub fn check(&self, header: &Header) -> Result<(), ImageError> {
        // Number of blocks before each entry, so that many blocks are checked as fast as few.
        let mut blocks = Vec::with_capacity(self.words.len() + 1);
        blocks.push(0u32);
        for &entry in self.words {
            let before = blocks[blocks.len() - 1];
            blocks.push(before + (u32::from_le_bytes(entry) >> 31));
        }
        for &entry in self.words {
            self.check_entry(u32::from_le_bytes(entry), &blocks).map_err(|what| header.corrupt("entries", what))?;
        }
        Ok(())
    }

    /// Checks that the entries of the block that `word` names exist.
    pub fn check_block(&self, word: u32) -> Result<(), &'static str> {
        let (base, count) = block_of(word);
        if self.form == Form::Ipv4 && word & LOW_MASK > Stretch::Ipv4.bits() {
            return Err("width");
        }
        if base + count <= self.words.len() { Ok(()) } else { Err("block") }
    }

    fn check_entry(&self, entry: u32, blocks_before: &[u32]) -> Result<(), &'static str> {
        if let (Some(labels), Some(label)) = (self.labels, label_of(entry)) {
            return if label <= labels { Ok(()) } else { Err("label") };
        }
        if entry & FLAG == 0 {
            let lanes = self.form.lanes();
            let (lane, count) = leaf_of(entry);
            let fits = lane % lanes + count <= lanes && lane < self.lanes;
            return if fits { Ok(()) } else { Err("leaf") };
        }
        self.check_block(entry)?;
        let (base, count) = block_of(entry);
        // Lookups of IPv4 addresses do not count levels.
        match self.form == Form::Ipv4 && blocks_before[base + count] != blocks_before[base] {
            true => Err("block in a block of an entry"),
            false => Ok(()),
        }
    }
}
