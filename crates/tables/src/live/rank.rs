//! Rank leaves that change by rebuilding the part that a prefix touches.
//!
//! A *part* is what one entry of a block leads to: a leaf, or another block. Its runs are read from the image, and the
//! touched ones are replaced by the table's new contents. A new leaf is written into spare lanes. Then one store of one
//! word makes it visible to lookups:
//!
//! ```text
//!  root word -> block -> entry -> leaf           the entry is stored, if one path alone leads to it
//!                 |        `----> new leaf
//!  root word -> block                            else the block is copied with the new entry, and its parent's word stored
//!       `-----> new block -> new leaf            (in IPv6 the parent may be a value of a leaf, and so on upwards)
//!  root word: label                              likewise if the label has no block yet
//!       `-----> new block -> new leaf
//! ```
//! A lookup loads each word on its way once. Everything below a word is complete before the word is stored. What the
//! new word replaced stays unchanged until all readers have passed. Then its lanes and entries are free, unless they
//! are shared. Sharing also ends only then. Otherwise a block could change in place under readers of another path. Free
//! words are all zeros (entries of label 0), so the image passes its checks at any moment.
//!
//! A part that outgrows its leaf gets a block of its own, or its block is divided anew if it is full. A prefix shorter
//! than /16 changes one root word after another.

mod replace;
mod survey;
mod undo;

use std::collections::HashMap;

use crate::cells::CellsMut;
use crate::layout::rank_leaf::encode::{Encoder, Lane, NoRoom, Run, Store, push, twice};
use crate::layout::rank_leaf::{
    FLAG, Form, LOW_MASK, NUMBER_SHIFT, Offsets, Part, ROOT_BITS, Stretch, answer, block_of, label_of, leaf_of,
};
use crate::live::epochs::{Quiescence, Unlinked};
use crate::live::exact::Full;
use crate::live::pools::{Entries, Lanes, Made, Parents};
use crate::live::rib::{Net, Rib};
use replace::Way;
use survey::Survey;

/// A shorter prefix touches so many root words that rebuilding the image is faster.
const LEN_MIN: u8 = 8;
/// Offset of the number of labels in the header.
const LABELS_AT: usize = 12;

/// The replaced word, which leads to unlinked memory.
#[derive(Clone, Copy)]
enum Replaced {
    /// A block in the root.
    Block(u32),
    /// A word of a block.
    Entry(u32),
}

/// The writer's state of an image.
#[derive(Clone)]
pub(super) struct RankWriter {
    offsets: Offsets,
    pools: Pools,
    unlinked: Unlinked<Replaced>,
    labels: u32,
    /// Lengths of prefixes that are not in the rank leaves.
    without: &'static [u8],
}

/// Free and shared entries and lanes.
#[derive(Clone)]
struct Pools {
    entries: Entries,
    lanes: Lanes,
    /// Leaves of one value that does not fit into an entry.
    uniform: HashMap<u32, u32>,
    /// Parents of leaves, by first lane.
    leaves: Parents,
    /// Parents of blocks, including nested ones, by first entry.
    blocks: Parents,
}

impl RankWriter {
    /// Scans an image; labels up to `labels` are in use.
    pub fn new(cells: &impl CellsMut, offsets: Offsets, labels: u32) -> Self {
        let survey = Survey::of(cells, offsets);
        let pools = Pools {
            entries: Entries::new(survey.next, offsets.entries),
            lanes: Lanes::new(offsets.form.lanes(), survey.taken),
            uniform: survey.uniform,
            leaves: survey.leaves,
            blocks: survey.blocks,
        };
        RankWriter { offsets, pools, unlinked: Unlinked::default(), labels, without: &[] }
    }

    /// Leaves out prefixes of some lengths.
    pub fn without(self, lengths: &'static [u8]) -> Self {
        RankWriter { without: lengths, ..self }
    }

    /// Makes the image agree with `rib` for all of `net`; labels up to `labels` are in use.
    pub fn change<C: CellsMut, Q: Quiescence>(
        &mut self,
        cells: &C,
        readers: &Q,
        rib: &Rib,
        net: Net,
        labels: u32,
    ) -> Result<(), Full> {
        self.reclaim(cells, readers);
        if net.len < LEN_MIN {
            return Err(Full);
        }
        if labels > self.labels {
            cells.set_u32(LABELS_AT, labels);
            self.labels = labels;
        }
        let writing = Writing { cells, offsets: self.offsets, pools: &mut self.pools, made: Vec::new() };
        let (encoder, without) = (Encoder::new(writing), self.without);
        let mut update = Update { encoder, readers, rib, without, net, unlinked: &mut self.unlinked };
        let root = |addr: u128| (addr >> (u128::BITS - ROOT_BITS)) as usize;
        let (first, last) = (root(net.first), root(net.last()));
        // All parts are complete before the first is linked, so that running out of room changes nothing.
        let links = (first..=last).map(|index| update.root(index, first == last)).collect::<Result<Vec<_>, _>>();
        let links = links.map_err(|_| update.encoder.store.undo());
        links.map_err(|()| Full)?.into_iter().flatten().for_each(|link| update.link(link));
        Ok(())
    }

    /// Whether anything waits for readers.
    pub fn is_waiting(&self) -> bool {
        self.unlinked.len() > 0
    }

    /// Frees what all readers have released.
    pub fn reclaim<C: CellsMut, Q: Quiescence>(&mut self, cells: &C, readers: &Q) {
        let mut writing = Writing { cells, offsets: self.offsets, pools: &mut self.pools, made: Vec::new() };
        while let Some(gone) = self.unlinked.pop(readers) {
            match gone {
                Replaced::Block(word) => writing.release_block(block_of(word)),
                Replaced::Entry(entry) => writing.release_entry(entry),
            }
        }
    }
}

/// The image, and its free entries and lanes.
struct Writing<'a, C> {
    cells: &'a C,
    offsets: Offsets,
    pools: &'a mut Pools,
    /// What the change in progress has written, in this order.
    made: Vec<Made>,
}

impl<C: CellsMut> Writing<'_, C> {
    fn entry(&self, index: usize) -> u32 {
        self.cells.u32(Offsets::entry_at(index))
    }

    /// Adds a parent to what `entry` leads to.
    fn add_parent(&mut self, entry: u32) {
        match entry {
            label if label_of(label).is_some() => {}
            block if block & FLAG != 0 => self.pools.blocks.add(block_of(block).0 as u32),
            leaf => self.pools.leaves.add(leaf_of(leaf).0 as u32),
        }
    }

    /// Removes a parent of a block. No reader uses the parent's old word any more.
    fn release_block(&mut self, (base, count): (usize, usize)) {
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
    fn release_entry(&mut self, entry: u32) {
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
    fn read_block(&self, word: u32, part: Part, runs: &mut Vec<Run>) {
        let (base, count) = block_of(word);
        for index in 0..count {
            self.read_part(self.entry(base + index), part.divided(word & LOW_MASK, index), runs);
        }
    }

    /// Appends the runs of a part.
    fn read_part(&self, entry: u32, part: Part, runs: &mut Vec<Run>) {
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
    fn lanes(&self, word: u32, index: usize, changed: usize, limit: usize) -> usize {
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
    fn read_leaf(&self, entry: u32, part: Part) -> Vec<Run> {
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

/// A change in progress.
struct Update<'a, C, Q> {
    encoder: Encoder<Writing<'a, C>>,
    readers: &'a Q,
    rib: &'a Rib,
    without: &'static [u8],
    net: Net,
    unlinked: &'a mut Unlinked<Replaced>,
}

/// A change of the root's value at byte `at`.
struct Link {
    at: usize,
    old: u32,
    new: u32,
}

impl<C: CellsMut, Q: Quiescence> Update<'_, C, Q> {
    /// The link that value `index` of the root needs, if any. If `own`, its block may be changed in place.
    fn root(&mut self, index: usize, own: bool) -> Result<Option<Link>, NoRoom> {
        let at = Offsets::root_at(index);
        let old = self.encoder.store.cells.u32(at);
        let below = Net { first: (index as u128) << (u128::BITS - ROOT_BITS), len: ROOT_BITS as u8 };
        let region = if self.net.len <= below.len { below } else { self.net };
        let stretch = match self.encoder.store.offsets.form {
            Form::IPV4 => Stretch::Ipv4,
            _ => Stretch::Upper,
        };
        let new = self.stretch(stretch, region, Way { value: old, own })?;
        Ok(new.map(|new| Link { at, old, new }))
    }

    /// Stores a value of the root.
    fn link(&mut self, Link { at, old, new }: Link) {
        if new & FLAG != 0 {
            self.encoder.store.pools.blocks.add(block_of(new).0 as u32);
        }
        self.encoder.store.cells.set_u32(at, new);
        if old & FLAG != 0 {
            self.unlinked.push(self.readers, Replaced::Block(old));
        }
    }
}

#[cfg(test)]
mod tests;
