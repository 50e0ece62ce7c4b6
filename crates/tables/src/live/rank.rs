//! Rank leaves that change by rebuilding the part that a prefix touches.
//!
//! A *part* is what one entry of a block leads to: a leaf, or a nested block of leaves. Its runs are read from the
//! image, and the touched ones are replaced by the table's new contents. A new leaf is written into spare lanes. Then
//! one store of one word makes it visible to lookups:
//!
//! ```text
//!  root word -> block -> entry -> leaf           the entry is stored, if one path alone leads to it
//!                 |        `----> new leaf
//!  root word -> block                            else the block is copied with the new entry, and its parent's word stored
//!       `-----> new block -> new leaf            (in IPv6 the parent may be a leaf of the chunk before, and so on upwards)
//!  root word: label                              likewise if the label has no block yet
//!       `-----> new block -> new leaf
//! ```
//! A lookup loads each word on its way once. Everything below a word is complete before the word is stored. What the
//! new word replaced stays unchanged until all readers have passed. Then its lanes and entries are free, unless they
//! are shared. Sharing also ends only then. Otherwise a block could change in place under readers of another path. Free
//! words are all zeros (entries of label 0), so the image passes its checks at any moment.
//!
//! If a part outgrows its leaf, its block is divided anew. A prefix shorter than /16 changes one root word after
//! another.

mod survey;
mod undo;

use std::collections::HashMap;

use crate::cells::CellsMut;
use crate::layout::rank_leaf::encode::{Chunk, Encoder, NoRoom, Run, Store, push, twice};
use crate::layout::rank_leaf::{
    CHUNK_BITS, FLAG, LINE_LANES, LOW_MASK, NESTED_SHIFT_MASK, NUMBER_SHIFT, Offsets, answer, block_of, label_of,
    leaf_of, nested_of,
};
use crate::live::epochs::{Quiescence, Unlinked};
use crate::live::exact::Full;
use crate::live::pools::{Entries, Lanes, Made, Parents};
use crate::live::rib::{Net, Rib};
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
            lanes: Lanes::new(survey.taken),
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
        let root = |addr: u128| (addr >> (u128::BITS - CHUNK_BITS)) as usize;
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
            nested if nested & FLAG != 0 => self.pools.blocks.add(nested_of(nested).0 as u32),
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
            return self.release_block(nested_of(entry));
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

    /// Appends the runs of a part of 2^`bits` values of the chunk from `first` on.
    fn read_part(&self, entry: u32, first: u32, bits: u32, runs: &mut Vec<Run>) {
        if entry & FLAG != 0 {
            let (base, count) = nested_of(entry);
            let bits = bits - count.ilog2();
            let parts = (base..base + count).zip((first..).step_by(1 << bits));
            return parts.for_each(|(index, first)| self.read_part(self.entry(index), first, bits, runs));
        }
        if let Some(label) = label_of(entry) {
            return push(runs, first as u16, label);
        }
        let (lane, count) = leaf_of(entry);
        for index in 0..count {
            let start = match index {
                0 => first as u16,
                _ => self.cells.u16(self.offsets.start_at(lane + index)),
            };
            push(runs, start, self.offsets.value(self.cells, lane + index));
        }
    }
}

impl<C: CellsMut> Store for Writing<'_, C> {
    fn value_bytes(&self) -> usize {
        self.offsets.value_bytes
    }

    fn uniform(&mut self, value: u32) -> Option<u32> {
        if let Some(entry) = answer(value).or_else(|| self.pools.uniform.get(&value).copied()) {
            return Some(entry);
        }
        let entry = self.leaf(&twice(value))?;
        self.pools.uniform.insert(value, entry);
        Some(entry)
    }

    fn leaf(&mut self, runs: &[Run]) -> Option<u32> {
        let width = self.offsets.value_bytes;
        if runs.iter().any(|run| width < size_of::<u32>() && run.value >> (8 * width) != 0) {
            return None;
        }
        let lane = self.pools.lanes.take(runs.len())?;
        for (index, run) in runs.iter().enumerate() {
            self.cells.set_u16(self.offsets.start_at(lane + index), if index == 0 { 0 } else { run.start });
            self.offsets.set_value(self.cells, lane + index, run.value);
            if run.value & FLAG != 0 {
                self.pools.blocks.add(block_of(run.value).0 as u32);
            }
        }
        self.pools.leaves.insert(lane as u32);
        let entry = (lane as u32) << NUMBER_SHIFT | (runs.len() as u32 - 1);
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

/// A value on the way to the change: a block or a label.
#[derive(Clone, Copy)]
struct Way {
    value: u32,
    /// Whether only one path leads to it.
    own: bool,
}

impl Way {
    /// The block, if it is one.
    fn block(self) -> Option<u32> {
        (self.value & FLAG != 0).then_some(self.value & !FLAG)
    }
}

/// A change of the root's value at byte `at`.
struct Link {
    at: usize,
    old: u32,
    new: u32,
}

/// Values of a chunk that change, and their new runs.
struct Touched {
    first: u16,
    last: u16,
    runs: Vec<Run>,
}

impl<C: CellsMut, Q: Quiescence> Update<'_, C, Q> {
    /// The link that value `index` of the root needs, if any. If `own`, its block may be changed in place.
    fn root(&mut self, index: usize, own: bool) -> Result<Option<Link>, NoRoom> {
        let at = Offsets::root_at(index);
        let old = self.encoder.store.cells.u32(at);
        let chunk = Net { first: (index as u128) << (u128::BITS - CHUNK_BITS), len: CHUNK_BITS as u8 };
        let new = self.value(chunk, Way { value: old, own })?;
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

    /// Changes what the addresses in `chunk` have, in a block in place or by a new value, which is returned. The
    /// recursion depth is at most seven.
    fn value(&mut self, chunk: Net, way: Way) -> Result<Option<u32>, NoRoom> {
        let blocks = &self.encoder.store.pools.blocks;
        let own = way.own && way.block().is_some_and(|block| blocks.is_one(block_of(block).0 as u32));
        let way = Way { own, ..way };
        let below = u32::from(chunk.len) + CHUNK_BITS;
        let shift = u128::BITS - below;
        let region = match self.net {
            net if net.len <= chunk.len => chunk,
            net => Net::new(net.first, net.len.min(below as u8)),
        };
        let (first, last) = ((region.first >> shift) as u16, (region.last() >> shift) as u16);
        let deeper = u32::from(self.net.len) > below && self.rib.under_without(region, self.without).next().is_some();
        let next = way.block().filter(|_| deeper).and_then(|block| self.next_block(block, way.own, first));
        let runs = match next {
            None => {
                let (label, ranges) = self.rib.ranges(region, self.without);
                let mut runs = self.encoder.runs(Chunk { first: region.first, shift, label }, &ranges)?;
                // The values after `last` do not change.
                runs.retain(|run| run.start <= last);
                runs
            }
            Some(next) => match self.value(region, next)? {
                None => return Ok(None),
                Some(value) => vec![Run { start: first, value }],
            },
        };
        self.replace(way, Touched { first, last, runs })
    }

    /// The block of the next chunk that the block `word` has for a chunk's value. `own` says whether only one path
    /// leads to `word`.
    fn next_block(&self, word: u32, own: bool, value: u16) -> Option<Way> {
        let store = &self.encoder.store;
        let (base, _) = block_of(word);
        let chunk = u32::from(value);
        let entry = store.entry(base + (chunk >> (word & LOW_MASK)) as usize);
        let nested_is_own = entry & FLAG == 0 || store.pools.blocks.is_one(nested_of(entry).0 as u32);
        let leaf = Offsets::leaf(store.cells, word, chunk);
        if label_of(leaf).is_some() {
            return None;
        }
        let lane = store.offsets.lane(store.cells, leaf, chunk);
        let found = store.offsets.value(store.cells, lane);
        let (first, count) = leaf_of(leaf);
        // Several values may share the same block.
        let part_bits = match entry & FLAG {
            0 => word & LOW_MASK,
            _ => entry >> NUMBER_SHIFT & NESTED_SHIFT_MASK,
        };
        let part = chunk >> part_bits << part_bits;
        let starts = if lane == first { part } else { u32::from(store.cells.u16(store.offsets.start_at(lane))) };
        let ends = match lane + 1 < first + count {
            true => u32::from(store.cells.u16(store.offsets.start_at(lane + 1))),
            false => part + (1 << part_bits),
        };
        let own = own && nested_is_own && store.pools.leaves.is_one(first as u32) && ends - starts == 1;
        (found & FLAG != 0).then_some(Way { value: found, own })
    }

    /// Replaces what a value has for some values of the chunk. Returns the new value, unless its block is changed in
    /// place.
    fn replace(&mut self, way: Way, touched: Touched) -> Result<Option<u32>, NoRoom> {
        let Some(word) = way.block() else {
            let runs = [Run { start: 0, value: way.value }];
            return self.replaced(&runs, &touched);
        };
        let (base, count) = block_of(word);
        let bits = word & LOW_MASK;
        let part = |value: u16| (u32::from(value) >> bits) as usize;
        let mut runs = Vec::new();
        if part(touched.first) == part(touched.last) {
            let index = part(touched.first);
            let (old, first) = (self.encoder.store.entry(base + index), (index as u32) << bits);
            self.encoder.store.read_part(old, first, bits, &mut runs);
            let changed = touched.replaced(&runs, first + (1 << bits));
            if changed == runs {
                return Ok(None);
            }
            let needs_no_block = count == 1 && changed.len() == 1;
            if !needs_no_block && (changed.len() <= LINE_LANES || old & FLAG != 0) {
                let new = self.encoder.part(&changed, first, bits)?;
                return self.put_entry(word, way.own, index, new);
            }
            runs.clear();
        }
        for index in 0..count {
            let entry = self.encoder.store.entry(base + index);
            self.encoder.store.read_part(entry, (index as u32) << bits, bits, &mut runs);
        }
        self.replaced(&runs, &touched)
    }

    /// The new value of a chunk with these runs. `None` if the touched values are what they were.
    fn replaced(&mut self, runs: &[Run], touched: &Touched) -> Result<Option<u32>, NoRoom> {
        match touched.replaced(runs, 1 << CHUNK_BITS) {
            changed if changed == runs => Ok(None),
            changed => self.encoder.value(&changed).map(Some),
        }
    }

    /// Changes entry `index` of the block `word`: in place if it is `own`, else in a copy of the block.
    fn put_entry(&mut self, word: u32, own: bool, index: usize, new: u32) -> Result<Option<u32>, NoRoom> {
        let (base, count) = block_of(word);
        let store = &mut self.encoder.store;
        if own {
            let old = store.entry(base + index);
            store.add_parent(new);
            store.cells.set_u32(Offsets::entry_at(base + index), new);
            self.unlinked.push(self.readers, Replaced::Entry(old));
            return Ok(None);
        }
        let mut entries: Vec<u32> = (base..base + count).map(|index| store.entry(index)).collect();
        entries[index] = new;
        let copy = store.entries(&entries).ok_or(NoRoom::Entries)?;
        Ok(Some(FLAG | (copy as u32) << NUMBER_SHIFT | word & LOW_MASK))
    }
}

impl Touched {
    /// The runs with the touched values replaced. `end` is the end of the values that the runs cover.
    fn replaced(&self, runs: &[Run], end: u32) -> Vec<Run> {
        let mut changed = Vec::with_capacity(runs.len() + self.runs.len() + 1);
        let before = runs.partition_point(|run| run.start < self.first);
        runs[..before].iter().chain(&self.runs).for_each(|run| push(&mut changed, run.start, run.value));
        let after = runs.partition_point(|run| run.start <= self.last);
        if let Some(next) = self.last.checked_add(1)
            && u32::from(next) < end
        {
            push(&mut changed, next, runs[after - 1].value);
        }
        runs[after..].iter().for_each(|run| push(&mut changed, run.start, run.value));
        changed
    }
}

#[cfg(test)]
mod tests;
