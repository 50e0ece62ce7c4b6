//! Turns runs of a chunk's values into entries, for a builder or for the writer of a live table.

use super::*;
use crate::flatten::Range;

/// The number of saved bytes that justifies a second, nested step for a whole block. The step costs time in lookups.
const NESTED_BYTES: usize = 32 << 10;
/// Number of divisions tried for a block, from the coarsest possible one.
const DIVISIONS: u32 = 4;

/// Consecutive values of a chunk that lead to the same label or block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// The first value.
    pub start: u16,
    /// A label, or the block of the next chunk.
    pub value: u32,
}

/// The runs of the leaf of a value that does not fit into an entry.
pub(crate) fn twice(value: u32) -> [Run; 2] {
    [Run { start: 0, value }, Run { start: u16::MAX, value }]
}

/// Appends a run. A run with the same start replaces the last one, and a run with the same value extends it.
pub(crate) fn push(runs: &mut Vec<Run>, start: u16, value: u32) {
    if runs.last().is_some_and(|last| last.start == start) {
        runs.pop();
    }
    if runs.last().is_none_or(|last| last.value != value) {
        runs.push(Run { start, value });
    }
}

/// A part of the address space that a block divides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chunk {
    /// The first address.
    pub first: u128,
    /// Number of bits below the chunk.
    pub shift: u32,
    /// The label of the first address.
    pub label: u32,
}

/// The resource that ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoRoom {
    Lanes,
    Entries,
    Nested,
}

/// Storage for leaves and entries.
pub(crate) trait Store {
    /// Bytes per value.
    fn value_bytes(&self) -> usize;
    /// Maximum number of lanes of a leaf.
    fn lanes_max(&self) -> usize {
        LINE_LANES
    }
    /// The entry of a leaf with one value; `None` if there is no room.
    fn uniform(&mut self, value: u32) -> Option<u32>;
    /// The entry of a leaf of two to `lanes_max` runs; `None` if there is no room. The first run starts at the
    /// beginning of the leaf.
    fn leaf(&mut self, runs: &[Run]) -> Option<u32>;
    /// Stores entries, a power of two of them, and returns their position; `None` if there is no room.
    fn entries(&mut self, entries: &[u32]) -> Option<usize>;
}

/// Turns runs into entries of a store.
pub(crate) struct Encoder<S> {
    pub store: S,
    scratch: Vec<u32>,
}

impl<S: Store> Encoder<S> {
    pub fn new(store: S) -> Self {
        Encoder { store, scratch: Vec::new() }
    }

    /// The value of a chunk in which `ranges` start. No range starts at the chunk's first address.
    pub fn chunk(&mut self, chunk: Chunk, ranges: &[Range<u128>]) -> Result<u32, NoRoom> {
        let runs = self.runs(chunk, ranges)?;
        self.value(&runs)
    }

    /// The runs of a chunk, or of its part from `chunk.first` to the end of the ranges. The last run may extend
    /// further. The recursion depth is at most seven.
    pub fn runs(&mut self, chunk: Chunk, mut ranges: &[Range<u128>]) -> Result<Vec<Run>, NoRoom> {
        let mut runs = vec![Run { start: (chunk.first >> chunk.shift) as u16, value: chunk.label }];
        let mut label = chunk.label;
        while let [range, ..] = ranges {
            let start = (range.start >> chunk.shift) as u16;
            let below = !(u128::MAX << chunk.shift);
            let (first, last) = (range.start & !below, range.start | below);
            let (mut inside, after) = ranges.split_at(ranges.partition_point(|range| range.start <= last));
            if range.start == first {
                (label, inside) = (range.label, &inside[1..]);
            }
            if inside.is_empty() {
                push(&mut runs, start, label);
            } else {
                let below = Chunk { first, shift: chunk.shift - CHUNK_BITS, label };
                push(&mut runs, start, self.chunk(below, inside)?);
                label = inside[inside.len() - 1].label;
                if let Some(next) = start.checked_add(1) {
                    push(&mut runs, next, label);
                }
            }
            ranges = after;
        }
        Ok(runs)
    }

    /// The value of a chunk with these runs: their label, or their block. The first run starts at value 0 of the chunk.
    pub fn value(&mut self, runs: &[Run]) -> Result<u32, NoRoom> {
        match runs {
            [run] if run.value & FLAG == 0 => Ok(run.value),
            _ => Ok(FLAG | self.block(runs)?),
        }
    }

    /// The number and shift of the block of `runs`. The first run starts at value 0 of the chunk.
    pub fn block(&mut self, runs: &[Run]) -> Result<u32, NoRoom> {
        let bits = self.divide(runs);
        let base = self.divided(runs, CHUNK_BITS, bits)?;
        Ok((base as u32) << NUMBER_SHIFT | (CHUNK_BITS - bits))
    }

    /// Chooses the number of index bits of a block that takes the fewest bytes.
    fn divide(&self, runs: &[Run]) -> u32 {
        let lanes_max = self.store.lanes_max();
        let coarsest = runs.len().div_ceil(lanes_max).next_power_of_two().ilog2();
        if coarsest == 0 {
            return 0;
        }
        let lane_bytes = size_of::<u16>() + self.store.value_bytes();
        let bytes = |&bits: &u32| {
            let shift = CHUNK_BITS - bits;
            let mut bytes = 4usize << bits;
            for part in parts(&runs[1..], shift) {
                let inside = part.len() - usize::from(u32::from(part[0].start) & !(u32::MAX << shift) == 0);
                bytes += if inside > 0 { (inside + 1) * lane_bytes } else { 0 };
                if inside >= lanes_max {
                    bytes += (NESTED_BYTES >> bits) + 8 * inside.div_ceil(lanes_max).next_power_of_two();
                }
            }
            bytes
        };
        (coarsest..=(coarsest + DIVISIONS).min(CHUNK_BITS)).min_by_key(bytes).expect("there is a coarsest")
    }

    /// Stores the entries that divide `runs` by `bits` more bits. The runs are in one part of `2^part_bits` values of
    /// the chunk.
    fn divided(&mut self, runs: &[Run], part_bits: u32, bits: u32) -> Result<usize, NoRoom> {
        let shift = part_bits - bits;
        let part = u32::from(runs[0].start) >> part_bits;
        let from = self.scratch.len();
        let mut rest = runs;
        for index in part << bits..(part + 1) << bits {
            let last = ((index + 1) << shift) - 1;
            // The first run may start before this part.
            let inside = rest[1..].iter().take_while(|run| u32::from(run.start) <= last).count();
            let entry = self.part(&rest[..=inside], index << shift, shift)?;
            self.scratch.push(entry);
            let next_starts = rest.get(inside + 1).is_some_and(|run| u32::from(run.start) == last + 1);
            rest = &rest[inside + usize::from(next_starts)..];
        }
        let base = self.store.entries(&self.scratch[from..]);
        self.scratch.truncate(from);
        base.ok_or(NoRoom::Entries)
    }

    /// The entry of a part of `2^part_bits` values of the chunk from `first` on. The first run may start before it.
    pub fn part(&mut self, runs: &[Run], first: u32, part_bits: u32) -> Result<u32, NoRoom> {
        match runs {
            [run] => self.store.uniform(run.value).ok_or(NoRoom::Lanes),
            some if some.len() <= self.store.lanes_max() => self.store.leaf(some).ok_or(NoRoom::Lanes),
            many => self.nested(many, first, part_bits),
        }
    }

    /// Divides a part that is too large for one leaf until each piece fits.
    fn nested(&mut self, runs: &[Run], first: u32, part_bits: u32) -> Result<u32, NoRoom> {
        let mut runs = runs.to_vec();
        runs[0].start = first as u16;
        let lanes_max = self.store.lanes_max();
        let coarsest = runs.len().div_ceil(lanes_max).next_power_of_two().ilog2();
        let fits = |&bits: &u32| {
            let shift = part_bits - bits;
            parts(&runs[1..], shift).all(|part| {
                part.len() < lanes_max || part.len() == lanes_max && u32::from(part[0].start).is_multiple_of(1 << shift)
            })
        };
        let bits = (coarsest..part_bits).find(fits).unwrap_or(part_bits);
        let base = self.divided(&runs, part_bits, bits)?;
        if base >= NESTED_BASES {
            return Err(NoRoom::Nested);
        }
        Ok(FLAG | (base as u32) << NESTED_BASE_SHIFT | (part_bits - bits) << NUMBER_SHIFT | bits)
    }
}

/// Groups runs by the part of `2^shift` values that they start in.
fn parts(runs: &[Run], shift: u32) -> impl Iterator<Item = &[Run]> {
    runs.chunk_by(move |a, b| u32::from(a.start) >> shift == u32::from(b.start) >> shift)
}
