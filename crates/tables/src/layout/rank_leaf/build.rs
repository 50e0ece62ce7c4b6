//! Builds images of rank leaves. Equal leaves and equal blocks are stored once.

use std::collections::HashMap;

use weir_abi::Layout;

use super::encode::{Encoder, Lane, NoRoom, Run, Store, twice};
use super::*;
use crate::blocks::Blocks;
use crate::flatten::{Range, flatten};
use crate::image::{BuildError, Image, Section, TICKETS_END, Writer};
use crate::layout::Room;
use crate::prefix::{Prefix4, Prefix6};
use crate::unique::Unique;

/// Minimum numbers of spare entries and lines of a table that may change.
const SPARE_ENTRIES_MIN: usize = 1 << 14;
const SPARE_LINES_MIN: usize = 1 << 9;
/// If no prefix is longer, no value of an IPv6 leaf is a block: the starts of every leaf have these bits.
const NO_BLOCKS_LEN: u8 = 48;

/// Builds the image of prefixes, sorted by [`crate::prefix::Address::order`], with labels `1..=labels`.
pub(crate) fn build4(prefixes: &[Prefix4], labels: u32, room: Room) -> Result<Image, BuildError> {
    let value_bytes = label_bytes(labels, Layout::RankLeaf)?;
    let mut encoder = Encoder::new(Builder::new(Form::Ipv4, value_bytes));
    let limit = |no_room| limit(Layout::RankLeaf, no_room);
    let mut root = Vec::with_capacity(ROOT_WORDS);
    let mut runs = Vec::new();
    for (first, ranges) in Blocks::new(&flatten(prefixes), 0, ROOT_BITS) {
        set_runs(&mut runs, first, ranges);
        root.push(encoder.value(Stretch::Ipv4.whole(), &runs).map_err(limit)?);
    }
    let writer = Writer { layout: Layout::RankLeaf, entries: prefixes.len(), labels };
    encoder.store.write(writer, &root, room)
}

/// Sets `runs` to the runs of the block that begins at `first`. The first range may start before it.
pub(in crate::layout) fn set_runs(runs: &mut Vec<Run>, first: u32, ranges: &[Range<u32>]) {
    runs.clear();
    runs.extend(ranges.iter().map(|range| Run { start: (range.start.max(first) - first).into(), value: range.label }));
}

/// Builds the image of prefixes, sorted by [`crate::prefix::Address::order`], with labels `1..=labels`.
pub(crate) fn build6(prefixes: &[Prefix6], labels: u32, room: Room) -> Result<Image, BuildError> {
    let longest = prefixes.iter().map(|prefix| prefix.len).max().unwrap_or(0);
    // Only values that name blocks need the flag bit.
    let label_bytes = label_bytes(labels, Layout::RankLeaf6)?;
    let value_bytes = if longest <= NO_BLOCKS_LEN { label_bytes } else { 4 };
    let mut encoder = Encoder::new(Builder::new(Form::Ipv6, value_bytes));
    let limit = |no_room| limit(Layout::RankLeaf6, no_room);
    let flat = flatten(prefixes);
    let mut rest = &flat[..];
    let mut label = 0;
    let mut root = Vec::with_capacity(ROOT_WORDS);
    for index in 0..ROOT_WORDS {
        let first = (index as u128) << (u128::BITS - ROOT_BITS);
        let last = first | u128::MAX >> ROOT_BITS;
        let (mut ranges, after) = rest.split_at(rest.partition_point(|range| range.start <= last));
        if let [range, others @ ..] = ranges
            && range.start == first
        {
            (label, ranges) = (range.label, others);
        }
        let runs = encoder.runs(Stretch::Upper, first, label, ranges).map_err(limit)?;
        root.push(encoder.value(Stretch::Upper.whole(), &runs).map_err(limit)?);
        label = ranges.last().map_or(label, |range| range.label);
        rest = after;
    }
    let writer = Writer { layout: Layout::RankLeaf6, entries: prefixes.len(), labels };
    encoder.store.write(writer, &root, room)
}

/// Number of bytes that a label takes.
pub(crate) fn label_bytes(labels: u32, layout: Layout) -> Result<usize, BuildError> {
    match labels {
        0..=0xff => Ok(1),
        0x100..=0xffff => Ok(2),
        0x1_0000..=0xff_ffff => Ok(3),
        0x100_0000..TICKETS_END => Ok(4),
        _ => Err(BuildError::Limit { layout, what: "labels", max: TICKETS_END as usize - 1 }),
    }
}

pub(crate) fn limit(layout: Layout, no_room: NoRoom) -> BuildError {
    let (what, max) = match no_room {
        NoRoom::Lanes => ("lanes", NUMBERS),
        NoRoom::Entries => ("entries", NUMBERS),
    };
    BuildError::Limit { layout, what, max }
}

struct Builder {
    form: Form,
    value_bytes: usize,
    entries: Unique<u32>,
    leaves: Leaves,
}

impl Store for Builder {
    fn form(&self) -> Form {
        self.form
    }

    fn value_bytes(&self) -> usize {
        self.value_bytes
    }

    fn uniform(&mut self, value: u32) -> Option<u32> {
        answer(value).or_else(|| self.leaves.store(&twice(value, self.form)))
    }

    fn leaf(&mut self, lanes: &[Lane]) -> Option<u32> {
        self.leaves.store(lanes)
    }

    fn entries(&mut self, entries: &[u32]) -> Option<usize> {
        self.entries.store(entries)
    }
}

impl Builder {
    fn new(form: Form, value_bytes: usize) -> Self {
        let leaves = Leaves::new(form.lanes(), form.lanes(), NUMBERS);
        Builder { form, value_bytes, entries: Unique::new(NUMBERS), leaves }
    }

    fn write(self, writer: Writer, root: &[u32], room: Room) -> Result<Image, BuildError> {
        let (width, line_lanes) = (self.value_bytes, self.form.lanes());
        let (mut entries, mut starts) = (self.entries.into_words(), self.leaves.starts);
        entries.resize((entries.len() + room.beside(entries.len(), SPARE_ENTRIES_MIN)).min(NUMBERS), 0);
        // Lookups of several keys read lane 0 for keys that need none.
        starts.resize(starts.len().max(line_lanes), self.form.start_max());
        let lines = starts.len() / line_lanes;
        let lanes = (starts.len() + room.beside(lines, SPARE_LINES_MIN) * line_lanes).min(NUMBERS);
        starts.resize(lanes, self.form.start_max());
        let mut values = Vec::with_capacity(lanes * width + VALUES_PADDING);
        self.leaves.values.iter().for_each(|value| values.extend_from_slice(&value.to_le_bytes()[..width]));
        values.resize(lanes * width + VALUES_PADDING, 0);
        let short: Vec<u16>;
        let starts = match self.form {
            Form::Ipv4 => {
                short = starts.iter().map(|&start| start as u16).collect();
                Section::U16(&short)
            }
            _ => Section::U32(&starts),
        };
        let sections = [Section::U32(root), Section::U32(&entries), starts, Section::U8(&values)];
        writer.write(&sections, &[(VALUE_BYTES, width as u32)])
    }
}

/// The lanes in lines, and an index of the stored leaves.
pub(crate) struct Leaves {
    pub starts: Vec<u32>,
    pub values: Vec<u32>,
    /// Number of lanes in each line, how many of them are used, and the maximum number of lanes.
    line_lanes: usize,
    used_lanes: usize,
    lanes_max: usize,
    /// Lines by the number of free lanes at their end.
    open: [Vec<u32>; LINE_LANES + 1],
    /// Leaves of one run, by value.
    uniform: HashMap<u32, u32>,
    /// Position of the first leaf with each hash. A second leaf with the same hash is stored, but is not indexed.
    known: HashMap<u64, u32>,
}

impl Leaves {
    /// Starts empty. There will be at most `lanes_max` lanes, in the first `used_lanes` of the `line_lanes` of each line.
    pub fn new(line_lanes: usize, used_lanes: usize, lanes_max: usize) -> Self {
        Leaves {
            starts: Vec::new(),
            values: Vec::new(),
            line_lanes,
            used_lanes,
            lanes_max,
            open: [const { Vec::new() }; LINE_LANES + 1],
            uniform: HashMap::new(),
            known: HashMap::new(),
        }
    }

    /// The entry of a leaf with one value; `None` if there is no lane left.
    pub fn uniform(&mut self, value: u32) -> Option<u32> {
        if let Some(&entry) = self.uniform.get(&value) {
            return Some(entry);
        }
        let entry = self.place(&[Lane { start: 0, value }])?;
        self.uniform.insert(value, entry);
        Some(entry)
    }

    /// The entry of a leaf with two or more lanes, at most a line.
    pub fn store(&mut self, runs: &[Lane]) -> Option<u32> {
        let hash = runs[1..].iter().fold(u64::from(runs[0].value), |hash, run| {
            let word = u64::from(run.value) << 32 | u64::from(run.start);
            (hash.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        });
        if let Some(&entry) = self.known.get(&hash)
            && self.holds(entry, runs)
        {
            return Some(entry);
        }
        let entry = self.place(runs)?;
        self.known.entry(hash).or_insert(entry);
        Some(entry)
    }

    fn holds(&self, entry: u32, runs: &[Lane]) -> bool {
        let lane = (entry >> NUMBER_SHIFT) as usize;
        let lanes = lane..lane + runs.len();
        (entry & LOW_MASK) as usize + 1 == runs.len()
            && self.values[lanes.clone()].iter().zip(runs).all(|(&value, run)| value == run.value)
            && self.starts[lanes].iter().zip(runs).skip(1).all(|(&start, run)| start == run.start)
    }

    /// Stores runs in the fullest line with room for them.
    fn place(&mut self, runs: &[Lane]) -> Option<u32> {
        let fitting = (runs.len()..=self.used_lanes).find(|&free| !self.open[free].is_empty());
        let (line, free) = match fitting.and_then(|free| Some((self.open[free].pop()?, free))) {
            Some(found) => found,
            None => {
                let lanes = self.starts.len();
                if lanes >= self.lanes_max {
                    return None;
                }
                self.starts.resize(lanes + self.line_lanes, u32::MAX);
                self.values.resize(lanes + self.line_lanes, 0);
                ((lanes / self.line_lanes) as u32, self.used_lanes)
            }
        };
        let lane = line as usize * self.line_lanes + self.used_lanes - free;
        for (index, run) in runs.iter().enumerate() {
            self.starts[lane + index] = if index == 0 { 0 } else { run.start };
            self.values[lane + index] = run.value;
        }
        if free > runs.len() {
            self.open[free - runs.len()].push(line);
        }
        Some((lane as u32) << NUMBER_SHIFT | (runs.len() as u32 - 1))
    }
}
