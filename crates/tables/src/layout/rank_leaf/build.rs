//! From disjoint ranges to blocks and leaves.

use std::collections::HashMap;

use weir_abi::Layout;

use super::*;
use crate::flatten::{Range, flatten};
use crate::image::{BuildError, Image, LABELS_MAX, Section, Writer};
use crate::prefix::{Prefix4, Prefix6};
use crate::scheme::blocks::Blocks;
use crate::scheme::unique::Unique;

/// What a second, nested step for the whole of a block is worth in bytes: it costs time, where traffic goes there.
const NESTED_BYTES: usize = 32 << 10;
/// Divisions that are tried for a block, from the coarsest that could do.
const DIVISIONS: u32 = 4;

/// Consecutive values of a chunk that lead to the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    /// The first.
    start: u16,
    /// Label, or block of the next chunk.
    value: u32,
}

/// Builds the image of prefixes in [`crate::prefix::Address::order`] with labels `1..=labels`.
pub(crate) fn build4(prefixes: &[Prefix4], labels: u32) -> Result<Image, BuildError> {
    let value_bytes = label_bytes(labels, Layout::RankLeaf)?;
    let mut builder = Builder::new(Layout::RankLeaf, value_bytes);
    let mut root = Vec::with_capacity(ROOT_WORDS);
    let mut runs = Vec::new();
    for (first, ranges) in Blocks::new(&flatten(prefixes), 0, CHUNK_BITS) {
        runs.clear();
        // The first range may start before the block.
        runs.extend(
            ranges.iter().map(|range| Run { start: (range.start.max(first) - first) as u16, value: range.label }),
        );
        root.push(builder.block(&runs)?);
    }
    builder.write(&root, prefixes.len(), labels)
}

/// Builds the image of prefixes in [`crate::prefix::Address::order`] with labels `1..=labels`.
pub(crate) fn build6(prefixes: &[Prefix6], labels: u32) -> Result<Image, BuildError> {
    let longest = prefixes.iter().map(|prefix| prefix.len).max().unwrap_or(0);
    // Only blocks need the flag.
    let value_bytes = if longest <= 32 { label_bytes(labels, Layout::RankLeaf6)? } else { 4 };
    label_bytes(labels, Layout::RankLeaf6)?;
    let mut builder = Builder::new(Layout::RankLeaf6, value_bytes);
    let flat = flatten(prefixes);
    let mut rest = &flat[..];
    let mut label = 0;
    let mut root = Vec::with_capacity(ROOT_WORDS);
    for index in 0..ROOT_WORDS {
        let first = (index as u128) << (u128::BITS - CHUNK_BITS);
        let last = first | u128::MAX >> CHUNK_BITS;
        let (mut ranges, after) = rest.split_at(rest.partition_point(|range| range.start <= last));
        if let [range, others @ ..] = ranges
            && range.start == first
        {
            (label, ranges) = (range.label, others);
        }
        root.push(builder.chunk(Chunk { first, shift: u128::BITS - 2 * CHUNK_BITS, label }, ranges)?);
        label = ranges.last().map_or(label, |range| range.label);
        rest = after;
    }
    builder.write(&root, prefixes.len(), labels)
}

/// The bytes that labels take.
fn label_bytes(labels: u32, layout: Layout) -> Result<usize, BuildError> {
    match labels {
        0..=0xff => Ok(1),
        0x100..=0xffff => Ok(2),
        0x1_0000..LABELS_MAX => Ok(3),
        _ => Err(BuildError::Limit { layout, what: "labels", max: LABELS_MAX as usize - 1 }),
    }
}

/// A part of the IPv6 address space that a block divides.
#[derive(Clone, Copy)]
struct Chunk {
    /// Its first address.
    first: u128,
    /// Bits below the chunk.
    shift: u32,
    /// Label of the first address.
    label: u32,
}

struct Builder {
    layout: Layout,
    value_bytes: usize,
    entries: Unique<u32>,
    leaves: Leaves,
    scratch: Vec<u32>,
}

impl Builder {
    fn new(layout: Layout, value_bytes: usize) -> Self {
        let entries = Unique::new(NUMBERS);
        Builder { layout, value_bytes, entries, leaves: Leaves::new(), scratch: Vec::new() }
    }

    /// The block of a chunk in which `ranges` start, none of them with its first address. Recurses to a depth of seven.
    fn chunk(&mut self, chunk: Chunk, mut ranges: &[Range<u128>]) -> Result<u32, BuildError> {
        let mut runs = vec![Run { start: 0, value: chunk.label }];
        let mut label = chunk.label;
        while let [range, ..] = ranges {
            let start = (range.start >> chunk.shift) as u16;
            let first = chunk.first | u128::from(start) << chunk.shift;
            let last = first | !(u128::MAX << chunk.shift);
            let (mut inside, after) = ranges.split_at(ranges.partition_point(|range| range.start <= last));
            if range.start == first {
                (label, inside) = (range.label, &inside[1..]);
            }
            if inside.is_empty() {
                push(&mut runs, start, label);
            } else {
                let below = Chunk { first, shift: chunk.shift - CHUNK_BITS, label };
                push(&mut runs, start, FLAG | self.chunk(below, inside)?);
                label = inside[inside.len() - 1].label;
                if let Some(next) = start.checked_add(1) {
                    push(&mut runs, next, label);
                }
            }
            ranges = after;
        }
        self.block(&runs)
    }

    /// The word that names the block of `runs`, which start with value 0 of the chunk.
    fn block(&mut self, runs: &[Run]) -> Result<u32, BuildError> {
        let bits = self.divide(runs);
        let base = self.divided(runs, CHUNK_BITS, bits)?;
        Ok((base as u32) << NUMBER_SHIFT | (CHUNK_BITS - bits))
    }

    /// The bits of a block's index, chosen for the fewest bytes.
    fn divide(&self, runs: &[Run]) -> u32 {
        let coarsest = runs.len().div_ceil(LINE_LANES).next_power_of_two().ilog2();
        if coarsest == 0 {
            return 0;
        }
        let lane_bytes = size_of::<u16>() + self.value_bytes;
        let bytes = |&bits: &u32| {
            let shift = CHUNK_BITS - bits;
            let mut bytes = 4usize << bits;
            for part in parts(&runs[1..], shift) {
                let inside = part.len() - usize::from(u32::from(part[0].start) & !(u32::MAX << shift) == 0);
                bytes += if inside > 0 { (inside + 1) * lane_bytes } else { 0 };
                if inside >= LINE_LANES {
                    bytes += (NESTED_BYTES >> bits) + 8 * inside.div_ceil(LINE_LANES).next_power_of_two();
                }
            }
            bytes
        };
        (coarsest..=(coarsest + DIVISIONS).min(CHUNK_BITS)).min_by_key(bytes).expect("there is a coarsest")
    }

    /// Stores the entries that divide `runs`, all in one part of `2^part_bits` values of the chunk, by `bits` more bits.
    fn divided(&mut self, runs: &[Run], part_bits: u32, bits: u32) -> Result<usize, BuildError> {
        let shift = part_bits - bits;
        let part = u32::from(runs[0].start) >> part_bits;
        let from = self.scratch.len();
        let mut rest = runs;
        for index in part << bits..(part + 1) << bits {
            let last = ((index + 1) << shift) - 1;
            // The first run may start before this part.
            let inside = rest[1..].iter().take_while(|run| u32::from(run.start) <= last).count();
            let entry = match &rest[..=inside] {
                [run] => self.leaves.uniform(run.value),
                some if some.len() <= LINE_LANES => self.leaves.store(some),
                many => self.nested(many, index << shift, shift)?,
            };
            self.scratch.push(entry.ok_or(self.limit("lanes", NUMBERS))?);
            let next_starts = rest.get(inside + 1).is_some_and(|run| u32::from(run.start) == last + 1);
            rest = &rest[inside + usize::from(next_starts)..];
        }
        let base = self.entries.store(&self.scratch[from..]);
        self.scratch.truncate(from);
        base.ok_or(self.limit("entries", NUMBERS))
    }

    /// Divides a part that is too much for one leaf so far that each piece is not.
    fn nested(&mut self, runs: &[Run], first: u32, part_bits: u32) -> Result<Option<u32>, BuildError> {
        let mut runs = runs.to_vec();
        runs[0].start = first as u16;
        let coarsest = runs.len().div_ceil(LINE_LANES).next_power_of_two().ilog2();
        let fits = |&bits: &u32| {
            let shift = part_bits - bits;
            parts(&runs[1..], shift).all(|part| {
                part.len() < LINE_LANES
                    || part.len() == LINE_LANES && u32::from(part[0].start).is_multiple_of(1 << shift)
            })
        };
        let bits = (coarsest..part_bits).find(fits).unwrap_or(part_bits);
        let base = self.divided(&runs, part_bits, bits)?;
        if base >= NESTED_BASES {
            return Err(self.limit("entries before nested ones", NESTED_BASES));
        }
        Ok(Some(FLAG | (base as u32) << NESTED_BASE_SHIFT | (part_bits - bits) << NUMBER_SHIFT | bits))
    }

    fn limit(&self, what: &'static str, max: usize) -> BuildError {
        BuildError::Limit { layout: self.layout, what, max }
    }

    fn write(self, root: &[u32], entries: usize, labels: u32) -> Result<Image, BuildError> {
        let width = self.value_bytes;
        let mut values = Vec::with_capacity(self.leaves.values.len() * width + VALUES_PADDING);
        self.leaves.values.iter().for_each(|value| values.extend_from_slice(&value.to_le_bytes()[..width]));
        values.extend([0; VALUES_PADDING]);
        let sections = [
            Section::U32(root),
            Section::U32(&self.entries.into_words()),
            Section::U16(&self.leaves.starts),
            Section::U8(&values),
        ];
        Writer { layout: self.layout, entries, labels }.write(&sections, &[(VALUE_BYTES, width as u32)])
    }
}

/// Adds a run; one that starts with the same value replaces the last, one of the same value continues it.
fn push(runs: &mut Vec<Run>, start: u16, value: u32) {
    if runs.last().is_some_and(|last| last.start == start) {
        runs.pop();
    }
    if runs.last().is_none_or(|last| last.value != value) {
        runs.push(Run { start, value });
    }
}

/// Groups runs by the part of `2^shift` values that they start in.
fn parts(runs: &[Run], shift: u32) -> impl Iterator<Item = &[Run]> {
    runs.chunk_by(move |a, b| u32::from(a.start) >> shift == u32::from(b.start) >> shift)
}

/// Lanes in lines, and where to find what is stored already.
struct Leaves {
    starts: Vec<u16>,
    values: Vec<u32>,
    /// Lines by the lanes that are free at their end.
    open: [Vec<u32>; LINE_LANES + 1],
    /// Leaves of one run by its value.
    uniform: HashMap<u32, u32>,
    /// Where the first leaf of each hash lies. A second of the same hash is stored without being found again.
    known: HashMap<u64, u32>,
}

impl Leaves {
    fn new() -> Self {
        Leaves {
            starts: Vec::new(),
            values: Vec::new(),
            open: [const { Vec::new() }; LINE_LANES + 1],
            uniform: HashMap::new(),
            known: HashMap::new(),
        }
    }

    /// The entry of a leaf that is all one value; `None` if lanes run out.
    fn uniform(&mut self, value: u32) -> Option<u32> {
        if let Some(&entry) = self.uniform.get(&value) {
            return Some(entry);
        }
        let entry = self.place(&[Run { start: 0, value }])?;
        self.uniform.insert(value, entry);
        Some(entry)
    }

    /// The entry of a leaf of 2 to 32 runs, the first of which counts from the leaf's beginning.
    fn store(&mut self, runs: &[Run]) -> Option<u32> {
        let hash = runs[1..].iter().fold(u64::from(runs[0].value), |hash, run| {
            let word = u64::from(run.value) << 16 | u64::from(run.start);
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

    fn holds(&self, entry: u32, runs: &[Run]) -> bool {
        let lane = (entry >> NUMBER_SHIFT) as usize;
        let lanes = lane..lane + runs.len();
        (entry & LOW_MASK) as usize + 1 == runs.len()
            && self.values[lanes.clone()].iter().zip(runs).all(|(&value, run)| value == run.value)
            && self.starts[lanes].iter().zip(runs).skip(1).all(|(&start, run)| start == run.start)
    }

    /// Puts runs into the fullest line with room for them.
    fn place(&mut self, runs: &[Run]) -> Option<u32> {
        let fitting = (runs.len()..=LINE_LANES).find(|&free| !self.open[free].is_empty());
        let (line, free) = match fitting.and_then(|free| Some((self.open[free].pop()?, free))) {
            Some(found) => found,
            None => {
                let lanes = self.starts.len();
                if lanes >= NUMBERS {
                    return None;
                }
                self.starts.resize(lanes + LINE_LANES, u16::MAX);
                self.values.resize(lanes + LINE_LANES, 0);
                ((lanes / LINE_LANES) as u32, LINE_LANES)
            }
        };
        let lane = (line as usize + 1) * LINE_LANES - free;
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
