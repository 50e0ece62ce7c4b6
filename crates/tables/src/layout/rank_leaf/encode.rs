//! Turns runs of values into entries, for a builder or for the writer of a live table.

use super::*;
use crate::flatten::Range;

/// The number of saved bytes that justifies a second step for a whole block. The step costs time in lookups.
const NESTED_BYTES: usize = 32 << 10;
/// Maximum number of index bits of a block.
const WIDTH_MAX: u32 = 20;
/// Bytes of entries for each run that are better than a further leaf.
const DIVIDED_BYTES: u64 = 32;

/// Consecutive values of a stretch that lead to the same label or block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// The first value.
    pub start: u64,
    /// A label, or a block: of the next stretch, or of the grain that is the run.
    pub value: u32,
}

/// A run in a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lane {
    pub start: u32,
    pub value: u32,
}

/// The lanes of the leaf of a value that does not fit into an entry.
pub(crate) fn twice(value: u32, form: Form) -> [Lane; 2] {
    [Lane { start: 0, value }, Lane { start: form.start_max(), value }]
}

/// Appends a run. A run with the same start replaces the last one, and a run with the same value extends it.
pub(crate) fn push(runs: &mut Vec<Run>, start: u64, value: u32) {
    if runs.last().is_some_and(|last| last.start == start) {
        runs.pop();
    }
    if runs.last().is_none_or(|last| last.value != value) {
        runs.push(Run { start, value });
    }
}

/// The resource that ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoRoom {
    Lanes,
    Entries,
}

/// Storage for leaves and entries.
pub(crate) trait Store {
    fn form(&self) -> Form;
    /// Bytes per value.
    fn value_bytes(&self) -> usize;
    /// Maximum number of lanes of a leaf.
    fn lanes_max(&self) -> usize {
        self.form().lanes()
    }
    /// The entry of a part with one value; `None` if there is no room.
    fn uniform(&mut self, value: u32) -> Option<u32>;
    /// The entry of a leaf of two to `lanes_max` lanes; `None` if there is no room. The first start is not stored.
    fn leaf(&mut self, lanes: &[Lane]) -> Option<u32>;
    /// Stores entries, a power of two of them, and returns their position; `None` if there is no room.
    fn entries(&mut self, entries: &[u32]) -> Option<usize>;
}

/// What a part becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// A label or a leaf.
    Leaf,
    /// A leaf with blocks among its values.
    Grains,
    /// A block.
    Block,
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

    /// The runs of a stretch from the address `first` to the end of the ranges. The last run may extend further.
    /// `first` has the label `label`, and no range starts there.
    pub fn runs(
        &mut self,
        stretch: Stretch,
        first: u128,
        mut label: u32,
        mut ranges: &[Range<u128>],
    ) -> Result<Vec<Run>, NoRoom> {
        let mut runs = vec![Run { start: stretch.of(first), value: label }];
        while let [range, ..] = ranges {
            let start = stretch.of(range.start);
            let behind = !u128::MAX.unbounded_shl(stretch.behind());
            let (first, last) = (range.start & !behind, range.start | behind);
            let (mut inside, after) = ranges.split_at(ranges.partition_point(|range| range.start <= last));
            if range.start == first {
                (label, inside) = (range.label, &inside[1..]);
            }
            match inside.last() {
                None => push(&mut runs, start, label),
                Some(last) => {
                    let below = self.runs(Stretch::Lower, first, label, inside)?;
                    push(&mut runs, start, self.value(Stretch::Lower.whole(), &below)?);
                    label = last.label;
                    if start < stretch.whole().last() {
                        push(&mut runs, start + 1, label);
                    }
                }
            }
            ranges = after;
        }
        Ok(runs)
    }

    /// The value of a part with these runs: their label, or their block. The first run starts with the part.
    pub fn value(&mut self, part: Part, runs: &[Run]) -> Result<u32, NoRoom> {
        match runs {
            [run] if run.value & FLAG == 0 => Ok(run.value),
            _ => Ok(FLAG | self.block(part, runs, 1)?),
        }
    }

    /// The position and number of index bits of the block of `runs`. It is the `level`th on the way to a leaf.
    pub fn block(&mut self, part: Part, runs: &[Run], level: u32) -> Result<u32, NoRoom> {
        let width = self.divide(part, runs, level);
        let base = self.divided(part, runs, width, level)?;
        Ok((base as u32) << NUMBER_SHIFT | width)
    }

    /// Chooses the number of index bits of a block that takes the fewest bytes.
    fn divide(&self, part: Part, runs: &[Run], level: u32) -> u32 {
        let form = self.store.form();
        if level == 1 && self.shape(part, runs, 0) != Shape::Block {
            return 0;
        }
        let later = form.reach(level);
        if later == 0 {
            let is_last = |&width: &u32| {
                pieces(part, runs, width).all(|(piece, runs)| self.shape(piece, runs, level) != Shape::Block)
            };
            return (1..part.bits).find(is_last).unwrap_or(part.bits);
        }
        let lanes_max = self.store.lanes_max();
        let coarsest = runs.len().div_ceil(lanes_max).next_power_of_two().ilog2().max(1);
        let needed = separating(part, &runs[1..], lanes_max);
        let least = coarsest.max(needed.saturating_sub(later)).min(part.bits);
        let lane_bytes = form.start_bytes() + self.store.value_bytes();
        let bytes = |&width: &u32| {
            let of_piece = |(piece, runs): (Part, &[Run])| match (self.shape(piece, runs, level), runs.len()) {
                (_, 1) => 0,
                (Shape::Leaf, runs) => runs * lane_bytes,
                (Shape::Grains, runs) => 2 * runs * lane_bytes,
                (Shape::Block, runs) => {
                    let entries = 8 * runs.div_ceil(lanes_max).next_power_of_two();
                    runs * (lane_bytes + form.level_bytes()) + (NESTED_BYTES >> width) + entries
                }
            };
            (4usize << width) + pieces(part, runs, width).map(of_piece).sum::<usize>()
        };
        (least..=(least + form.divisions()).min(part.bits)).min_by_key(bytes).expect("there is a least")
    }

    /// Stores the entries that divide `runs` by `width` bits.
    fn divided(&mut self, part: Part, runs: &[Run], width: u32, level: u32) -> Result<usize, NoRoom> {
        if width > WIDTH_MAX {
            return Err(NoRoom::Entries);
        }
        let from = self.scratch.len();
        let mut rest = runs;
        for index in 0..1 << width {
            let piece = part.divided(width, index);
            let (inside, after) = split(piece, rest);
            let entry = self.part(piece, inside, level)?;
            self.scratch.push(entry);
            rest = after;
        }
        let base = self.store.entries(&self.scratch[from..]);
        self.scratch.truncate(from);
        base.ok_or(NoRoom::Entries)
    }

    /// The entry of a part in a block of this level. The first run may start before the part.
    pub fn part(&mut self, part: Part, runs: &[Run], level: u32) -> Result<u32, NoRoom> {
        match self.shape(part, runs, level) {
            Shape::Leaf => self.leaf(part, runs),
            Shape::Grains => {
                let grains = self.grains(part, runs)?;
                self.leaf(part, &grains)
            }
            Shape::Block => {
                let mut runs = runs.to_vec();
                runs[0].start = part.first;
                Ok(FLAG | self.block(part, &runs, level + 1)?)
            }
        }
    }

    /// The entry of the leaf with these runs, each of whole grains.
    pub fn leaf(&mut self, part: Part, runs: &[Run]) -> Result<u32, NoRoom> {
        let entry = match runs {
            [run] => self.store.uniform(run.value),
            runs => {
                let lane = |run: &Run| Lane { start: (run.start >> part.grain()) as u32, value: run.value };
                self.store.leaf(&runs.iter().map(lane).collect::<Vec<_>>())
            }
        };
        entry.ok_or(NoRoom::Lanes)
    }

    /// The runs of a part with a block for each grain that has several.
    fn grains(&mut self, part: Part, mut runs: &[Run]) -> Result<Vec<Run>, NoRoom> {
        let mut grains = vec![Run { start: part.first, value: runs[0].value }];
        // The first run is in force at the part's begin, and the others start later.
        let mut before = runs[0].value;
        runs = &runs[1..];
        while let [run, ..] = runs {
            let grain = part.grain_of(run.start);
            let (inside, after) = runs.split_at(runs.partition_point(|run| run.start <= grain.last()));
            let starts_whole = run.start == grain.first;
            if let ([run], true) = (inside, starts_whole) {
                push(&mut grains, run.start, run.value);
            } else {
                let first = (!starts_whole).then_some(Run { start: grain.first, value: before });
                let own: Vec<Run> = first.into_iter().chain(inside.iter().copied()).collect();
                push(&mut grains, grain.first, self.value(grain, &own)?);
                if grain.last() < part.last() {
                    push(&mut grains, grain.last() + 1, inside[inside.len() - 1].value);
                }
            }
            before = inside[inside.len() - 1].value;
            runs = after;
        }
        Ok(grains)
    }

    /// What a part in a block of this level becomes. The first run may start before the part.
    fn shape(&self, part: Part, runs: &[Run], level: u32) -> Shape {
        let lanes_max = self.store.lanes_max();
        let grain = part.grain();
        let is_whole = |run: &Run| run.start.trailing_zeros() >= grain;
        if runs.len() <= lanes_max && runs[1..].iter().all(is_whole) {
            return Shape::Leaf;
        }
        if grain == 0 {
            return Shape::Block;
        }
        // Each grain that has several runs may end with another one.
        let grains = runs[1..].chunk_by(|a, b| a.start >> grain == b.start >> grain);
        let lanes = grains.map(|inside| if inside.len() == 1 && is_whole(&inside[0]) { 1 } else { 2 });
        if 1 + lanes.sum::<usize>() > lanes_max {
            return Shape::Block;
        }
        let reach = self.store.form().reach(level);
        let below = part.bits - u32::BITS;
        let is_cheap = || (size_of::<u32>() as u64) << below <= DIVIDED_BYTES * runs.len() as u64;
        match below <= reach && is_cheap() && separating(part, &runs[1..], lanes_max) <= reach {
            true => Shape::Block,
            false => Shape::Grains,
        }
    }

    /// Whether the part of a block of this level is a label or a leaf.
    pub fn is_leaf(&self, part: Part, runs: &[Run], level: u32) -> bool {
        self.shape(part, runs, level) != Shape::Block
    }
}

/// Number of bits by which a part must be divided so that fewer than `count` of these runs start in one piece.
fn separating(part: Part, runs: &[Run], count: usize) -> u32 {
    let together = runs.iter().zip(runs.iter().skip(count - 1));
    let piece_bits = together.filter_map(|(first, last)| (first.start ^ last.start).checked_ilog2()).min();
    piece_bits.map_or(0, |piece_bits| part.bits.saturating_sub(piece_bits))
}

/// Splits runs behind those of a part. A run that extends behind the part is also the first of the rest.
fn split(part: Part, runs: &[Run]) -> (&[Run], &[Run]) {
    let inside = 1 + runs[1..].iter().take_while(|run| run.start <= part.last()).count();
    let next_starts = runs.get(inside).is_some_and(|run| run.start - 1 == part.last());
    (&runs[..inside], &runs[inside - usize::from(!next_starts)..])
}

/// The pieces of a part that is divided by `width` bits, and their runs. Pieces between two starts are left out.
fn pieces(part: Part, runs: &[Run], width: u32) -> impl Iterator<Item = (Part, &[Run])> {
    let mut next = 0;
    std::iter::from_fn(move || {
        // A run that starts with its piece follows nothing in that piece.
        let run = runs.get(next)?;
        let piece = part.divided(width, part.index(width, run.start.max(part.first)));
        let first = if next > 0 && run.start > piece.first { next - 1 } else { next };
        let end = next + runs[next..].partition_point(|run| run.start <= piece.last());
        next = end;
        Some((piece, &runs[first..end]))
    })
}
