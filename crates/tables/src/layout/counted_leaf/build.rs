//! Builds images of counted leaves.

use weir_abi::Layout;

use super::*;
use crate::blocks::Blocks;
use crate::flatten::{Range, flatten};
use crate::image::{BuildError, Image, Section, Writer};
use crate::layout::Room;
use crate::layout::rank_leaf::build::{Leaves, label_bytes, limit, set_runs};
use crate::layout::rank_leaf::encode::{Encoder, Lane, Store};
use crate::layout::rank_leaf::{
    self, FLAG, Form, LOW_MASK, NUMBER_SHIFT, NUMBERS, ROOT_BITS, Stretch, VALUE_BYTES, VALUES_PADDING,
};
use crate::prefix::Prefix4;
use crate::unique::Unique;

/// Number of lanes for each kind of leaf: half of all. One bit of the lane number distinguishes the kinds until the
/// image is written.
const LANES_MAX: usize = NUMBERS / 2;
/// The flag of counted leaf entries, until the number of listed lanes is known.
const IS_COUNTED: u32 = (LANES_MAX as u32) << NUMBER_SHIFT;
/// How far below the first label of the longest counting run the other labels of a block may be and still count.
const BELOW_MAX: u32 = 1 << 15;

/// Builds the image of prefixes, sorted by [`crate::prefix::Address::order`], with labels `1..=labels`. Builds rank
/// leaves if they are smaller.
pub(crate) fn build4(prefixes: &[Prefix4], labels: u32, room: Room) -> Result<Image, BuildError> {
    let leaves = rank_leaf::build4(prefixes, labels, room);
    // A live table is changed in place, after which its labels would no longer count up.
    if room == Room::Spare {
        return leaves;
    }
    match (counted4(prefixes, labels), leaves) {
        (Ok(counted), Ok(leaves)) if leaves.as_bytes().len() <= counted.as_bytes().len() => Ok(leaves),
        (Err(_), leaves) => leaves,
        (counted, _) => counted,
    }
}

/// Like [`build4`], but never builds rank leaves.
pub(super) fn counted4(prefixes: &[Prefix4], labels: u32) -> Result<Image, BuildError> {
    let width = label_bytes(labels, Layout::CountedLeaf)?;
    let mut encoder = Encoder::new(Builder::new(width));
    let mut root = Vec::with_capacity(ROOT_WORDS);
    let mut runs = Vec::new();
    for (first, ranges) in Blocks::new(&flatten(prefixes), 0, ROOT_BITS) {
        set_runs(&mut runs, first, ranges);
        encoder.store.begin(ranges);
        let block =
            encoder.block(Stretch::Ipv4.whole(), &runs, 1).map_err(|no_room| limit(Layout::CountedLeaf, no_room))?;
        root.push(u64::from(encoder.store.before) << 32 | u64::from(block));
    }
    let writer = Writer { layout: Layout::CountedLeaf, entries: prefixes.len(), labels };
    encoder.store.write(writer, &root)
}

/// Stores leaves and entries.
struct Builder {
    width: usize,
    entries: Unique<u32>,
    listed: Leaves,
    /// Values are labels minus `before`, or 0 for gaps. The start of the first lane is an offset.
    counted: Leaves,
    /// The label from which the leaves of the current block count.
    before: u32,
    /// Whether all leaves of the current block count.
    all_count: bool,
}

impl Builder {
    fn new(width: usize) -> Self {
        Builder {
            width,
            entries: Unique::new(NUMBERS),
            listed: Leaves::new(LINE_LANES, LINE_LANES, LANES_MAX),
            counted: Leaves::new(LINE_LANES, COUNTED_LANES, LANES_MAX),
            before: 0,
            all_count: true,
        }
    }

    /// Starts the block of these ranges.
    fn begin(&mut self, ranges: &[Range<u32>]) {
        let labels = ranges.iter().map(|range| range.label).filter(|&label| label != 0);
        // The first label and the length of the longest counting run.
        let (mut longest, mut current) = ((0, 0), (0, 0));
        for label in labels.clone() {
            current = if current.0 + current.1 == label { (current.0, current.1 + 1) } else { (label, 1) };
            longest = if current.1 > longest.1 { current } else { longest };
        }
        let (from, count) = longest;
        let lowest = labels.clone().filter(|&label| label.saturating_add(BELOW_MAX) >= from).min();
        self.before = lowest.map_or(0, |label| label - 1);
        self.all_count = labels.count() == count as usize;
    }

    /// The entry of a counted leaf. `None` if its labels do not count up, `Some(None)` if there is no room.
    fn counted(&mut self, runs: &[Lane]) -> Option<Option<u32>> {
        let labelled = runs.iter().filter(|run| run.value != 0);
        let first = labelled.clone().next().map_or(self.before + 1, |run| run.value);
        let offset = u16::try_from(first.checked_sub(self.before + 1)?).ok()?;
        if !labelled.zip(first..).all(|(run, label)| run.value == label) {
            return None;
        }
        let relative = |run: &Lane| Lane { value: run.value.saturating_sub(self.before), ..*run };
        let runs: Vec<Lane> = runs.iter().map(relative).collect();
        let entry = match &runs[..] {
            [run] => self.counted.uniform(run.value),
            runs => self.counted.store(runs),
        };
        Some(entry.map(|entry| {
            self.counted.starts[(entry >> NUMBER_SHIFT) as usize] = offset.into();
            entry | IS_COUNTED
        }))
    }

    fn write(mut self, writer: Writer, root: &[u64]) -> Result<Image, BuildError> {
        let listed = self.listed.starts.len();
        let mut entries = self.entries.into_words();
        for entry in entries.iter_mut().filter(|entry| **entry & FLAG == 0 && **entry & IS_COUNTED != 0) {
            *entry = (*entry & !IS_COUNTED) + ((listed as u32) << NUMBER_SHIFT);
        }
        let (lines, _) = self.counted.starts.as_chunks_mut::<LINE_LANES>();
        let (values, _) = self.counted.values.as_chunks::<LINE_LANES>();
        for (starts, values) in lines.iter_mut().zip(values) {
            let labelled = (0..COUNTED_LANES).fold(0u32, |bits, lane| bits | u32::from(values[lane] != 0) << lane);
            starts[COUNTED_LANES] = labelled & 0xffff;
            starts[COUNTED_LANES + 1] = labelled >> 16;
        }
        let starts: Vec<u16> =
            self.listed.starts.iter().chain(&self.counted.starts).map(|&start| start as u16).collect();
        let mut values = Vec::with_capacity(listed * self.width + VALUES_PADDING);
        self.listed.values.iter().for_each(|value| values.extend_from_slice(&value.to_le_bytes()[..self.width]));
        values.resize(listed * self.width + VALUES_PADDING, 0);
        let sections = [Section::U64(root), Section::U32(&entries), Section::U16(&starts), Section::U8(&values)];
        writer.write(&sections, &[(VALUE_BYTES, self.width as u32), (COUNTED, listed as u32)])
    }
}

impl Store for Builder {
    fn form(&self) -> Form {
        Form::Ipv4
    }

    fn value_bytes(&self) -> usize {
        if self.all_count { 0 } else { self.width }
    }

    fn lanes_max(&self) -> usize {
        COUNTED_LANES
    }

    fn uniform(&mut self, value: u32) -> Option<u32> {
        self.counted(&[Lane { start: 0, value }]).unwrap_or_else(|| self.listed.uniform(value))
    }

    fn leaf(&mut self, runs: &[Lane]) -> Option<u32> {
        self.counted(runs).unwrap_or_else(|| self.listed.store(runs))
    }

    fn entries(&mut self, entries: &[u32]) -> Option<usize> {
        self.entries.store(entries)
    }
}

const _: () = assert!(LOW_MASK as usize == LINE_LANES - 1);
