//! The image of a rank leaf as its writer changes it: what is free, and what is shared.

use std::collections::HashMap;

use crate::cells::CellsMut;
use crate::layout::rank_leaf::encode::{Lane, Run, Store, push, twice};
use crate::layout::rank_leaf::{
    FLAG, Form, LOW_MASK, NUMBER_SHIFT, Offsets, Part, answer, block_of, label_of, leaf_of,
};
use crate::live::pools::{Entries, Lanes, Made, Parents};

/// Free and shared entries and lanes.
#[derive(Clone)]
pub(super) struct Pools {
    pub entries: Entries,
    pub lanes: Lanes,
    /// Leaves of one value that does not fit into an entry.
    pub uniform: HashMap<u32, u32>,
    /// Parents of leaves, by first lane.
    pub leaves: Parents,
    /// Parents of blocks, including nested ones, by first entry.
    pub blocks: Parents,
}

/// The image, and its free entries and lanes.
pub(super) struct Writing<'a, C> {
    pub cells: &'a C,
    pub offsets: Offsets,
    pub pools: &'a mut Pools,
    /// What the change in progress has written, in this order.
    pub made: Vec<Made>,
}

impl<C: CellsMut> Writing<'_, C> {
    pub fn entry(&self, index: usize) -> u32 {
        self.cells.u32(Offsets::entry_at(index))
    }

    /// Adds a parent to what `entry` leads to.
    pub fn add_parent(&mut self, entry: u32) {
        match entry {
            label if label_of(label).is_some() => {}
            block if block & FLAG != 0 => self.pools.blocks.add(block_of(block).0 as u32),
            leaf => self.pools.leaves.add(leaf_of(leaf).0 as u32),
        }
    }

    /// Removes a parent of a block. No reader uses the parent's old word any more.
    pub fn release_block(&mut self, (base, count): (usize, usize)) {
        if !self.pools.blocks.remove(base as u32) {
            return;
        }
        for index in base..base + count {
            self.release_entry(self.entry(index));
            self.cells.set_u32(Offsets::entry_at(index), 0);
        }
        self.pools.entries.give_back(base, count);
    }

    /// Removes a parent of the block or leaf that a word of a block names.
    pub fn release_entry(&mut self, entry: u32) {
        if entry & FLAG != 0 {
            return self.release_block(block_of(entry));
        }
        if label_of(entry).is_some() {
            return;
        }
        let (lane, count) = leaf_of(entry);
        if !self.pools.leaves.remove(lane as u32) {
            return;
        }
        for lane in lane..lane + count {
            let value = self.offsets.value(self.cells, lane);
            if count == 2 && self.pools.uniform.get(&value) == Some(&entry) {
                self.pools.uniform.remove(&value);
            }
            if value & FLAG != 0 {
                self.release_block(block_of(value));
            }
            self.offsets.clear_value(self.cells, lane);
        }
        self.pools.lanes.give_back(lane, count);
    }

    /// Appends the runs of the block that `word` names.
    pub fn read_block(&self, word: u32, part: Part, runs: &mut Vec<Run>) {
        let (base, count) = block_of(word);
        for index in 0..count {
            self.read_part(self.entry(base + index), part.divided(word & LOW_MASK, index), runs);
        }
    }

    /// Appends the runs of a part.
    pub fn read_part(&self, entry: u32, part: Part, runs: &mut Vec<Run>) {
        if entry & FLAG != 0 {
            return self.read_block(entry, part, runs);
        }
        let whole = self.read_leaf(entry, part);
        for (index, &Run { start, value }) in whole.iter().enumerate() {
            if value & FLAG == 0 || part.grain() == 0 {
                push(runs, start, value);
                continue;
            }
            // Several grains may share a block.
            let last = whole.get(index + 1).map_or(part.last(), |next| next.start - 1);
            for first in (start..=last).step_by(1 << part.grain()) {
                self.read_block(value, part.grain_of(first), runs);
            }
        }
    }

    /// Number of lanes that a leaf in place of the block would have if its entry `index` had `changed` of them. An entry
    /// that is a block counts as half full leaves. The sum ends above `limit`.
    pub fn lanes(&self, word: u32, index: usize, changed: usize, limit: usize) -> usize {
        let (base, count) = block_of(word);
        let (mut lanes, mut label) = (changed, None);
        for (at, entry) in (0..count).map(|at| (at, self.entry(base + at))) {
            if lanes > limit {
                break;
            }
            let is_same = label.is_some() && label_of(entry) == label;
            label = label_of(entry);
            lanes += match entry {
                _ if at == index || is_same => 0,
                block if block & FLAG != 0 => block_of(block).1 * self.offsets.form.lanes() / 2,
                leaf => leaf_of(leaf).1,
            };
        }
        lanes
    }

    /// The runs of a label or a leaf. With a grain, a value that is a block stays one.
    pub fn read_leaf(&self, entry: u32, part: Part) -> Vec<Run> {
        if let Some(value) = label_of(entry) {
            return vec![Run { start: part.first, value }];
        }
        let (lane, count) = leaf_of(entry);
        let above = (part.first >> part.grain()) & !u64::from(self.offsets.form.start_max());
        let mut runs = Vec::with_capacity(count);
        for index in 0..count {
            let start = match index {
                0 => part.first,
                _ => (above | u64::from(self.offsets.start(self.cells, lane + index))) << part.grain(),
            };
            push(&mut runs, start, self.offsets.value(self.cells, lane + index));
        }
        runs
    }
}

impl<C: CellsMut> Store for Writing<'_, C> {
    fn form(&self) -> Form {
        self.offsets.form
    }

    fn value_bytes(&self) -> usize {
        self.offsets.value_bytes
    }

    fn uniform(&mut self, value: u32) -> Option<u32> {
        if let Some(entry) = answer(value).or_else(|| self.pools.uniform.get(&value).copied()) {
            return Some(entry);
        }
        let entry = self.leaf(&twice(value, self.offsets.form))?;
        self.pools.uniform.insert(value, entry);
        Some(entry)
    }

    fn leaf(&mut self, lanes: &[Lane]) -> Option<u32> {
        let width = self.offsets.value_bytes;
        if lanes.iter().any(|lane| width < size_of::<u32>() && lane.value >> (8 * width) != 0) {
            return None;
        }
        let first = self.pools.lanes.take(lanes.len())?;
        for (index, lane) in lanes.iter().enumerate() {
            self.offsets.set_start(self.cells, first + index, if index == 0 { 0 } else { lane.start });
            self.offsets.set_value(self.cells, first + index, lane.value);
            if lane.value & FLAG != 0 {
                self.pools.blocks.add(block_of(lane.value).0 as u32);
            }
        }
        self.pools.leaves.insert(first as u32);
        let entry = (first as u32) << NUMBER_SHIFT | (lanes.len() as u32 - 1);
        self.made.push(Made::Leaf(entry));
        Some(entry)
    }

    fn entries(&mut self, entries: &[u32]) -> Option<usize> {
        let base = self.pools.entries.take(entries.len())?;
        for (index, &entry) in entries.iter().enumerate() {
            self.cells.set_u32(Offsets::entry_at(base + index), entry);
            self.add_parent(entry);
        }
        self.pools.blocks.insert(base as u32);
        self.made.push(Made::Block(base, entries.len()));
        Some(base)
    }
}
