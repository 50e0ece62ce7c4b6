//! Replaces what a part of the address space has: which leaf or block changes, and what must lead to it.

use super::writing::Writing;
use crate::cells::CellsMut;
use crate::layout::rank_leaf::encode::{Encoder, NoRoom, Run, Store, push};
use crate::layout::rank_leaf::{
    FLAG, Form, LOW_MASK, NUMBER_SHIFT, Offsets, Part, ROOT_BITS, Stretch, block_of, label_of, leaf_of,
};
use crate::live::epochs::{Quiescence, Unlinked};
use crate::live::rib::{Net, Rib};

/// The replaced word, which leads to unlinked memory.
#[derive(Clone, Copy)]
pub(super) enum Replaced {
    /// A block in the root.
    Block(u32),
    /// A word of a block.
    Entry(u32),
}

/// A change in progress.
pub(super) struct Update<'a, C, Q> {
    pub encoder: Encoder<Writing<'a, C>>,
    pub readers: &'a Q,
    pub rib: &'a Rib,
    pub without: &'static [u8],
    pub net: Net,
    pub unlinked: &'a mut Unlinked<Replaced>,
}

/// A change of the root's value at byte `at`.
pub(super) struct Link {
    at: usize,
    old: u32,
    new: u32,
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

/// A block on the way to the change.
#[derive(Clone, Copy)]
struct Block {
    word: u32,
    part: Part,
    /// Whether only one path leads to it.
    own: bool,
    /// Number of blocks from the value that names the first one.
    level: u32,
}

/// Values of a stretch that change, and their new runs.
struct Touched {
    first: u64,
    last: u64,
    runs: Vec<Run>,
}

impl<C: CellsMut, Q: Quiescence> Update<'_, C, Q> {
    /// The link that value `index` of the root needs, if any. If `own`, its block may be changed in place.
    pub fn root(&mut self, index: usize, own: bool) -> Result<Option<Link>, NoRoom> {
        let at = Offsets::root_at(index);
        let old = self.encoder.store.cells.u32(at);
        let below = Net { first: (index as u128) << (u128::BITS - ROOT_BITS), len: ROOT_BITS as u8 };
        let region = if self.net.len <= below.len { below } else { self.net };
        let stretch = match self.encoder.store.offsets.form {
            Form::Ipv4 => Stretch::Ipv4,
            _ => Stretch::Upper,
        };
        let new = self.stretch(stretch, region, Way { value: old, own })?;
        Ok(new.map(|new| Link { at, old, new }))
    }

    /// Stores a value of the root.
    pub fn link(&mut self, Link { at, old, new }: Link) {
        if new & FLAG != 0 {
            self.encoder.store.pools.blocks.add(block_of(new).0 as u32);
        }
        self.encoder.store.cells.set_u32(at, new);
        if old & FLAG != 0 {
            self.unlinked.push(self.readers, Replaced::Block(old));
        }
    }

    /// Changes what a region has in a stretch, in a block in place or by a new value, which is returned.
    fn stretch(&mut self, stretch: Stretch, region: Net, way: Way) -> Result<Option<u32>, NoRoom> {
        let end = u128::BITS - stretch.behind();
        let whole = Net::new(region.first, region.len.min(end as u8));
        let (first, last) = (stretch.of(whole.first), stretch.of(whole.last()));
        let deeper = u32::from(region.len) > end && self.rib.under_without(whole, self.without).next().is_some();
        let next = if deeper { self.next_stretch(stretch, way, first) } else { None };
        let runs = match next {
            None => {
                let (label, ranges) = self.rib.ranges(whole, self.without);
                let mut runs = self.encoder.runs(stretch, whole.first, label, &ranges)?;
                // The values after `last` do not change.
                runs.retain(|run| run.start <= last);
                runs
            }
            Some(next) => match self.stretch(Stretch::Lower, region, next)? {
                None => return Ok(None),
                Some(value) => vec![Run { start: first, value }],
            },
        };
        self.replace(stretch.whole(), way, &Touched { first, last, runs })
    }

    /// The block of the next stretch that a value of a stretch leads to.
    fn next_stretch(&self, stretch: Stretch, mut way: Way, value: u64) -> Option<Way> {
        let store = &self.encoder.store;
        let mut part = stretch.whole();
        loop {
            let mut entry = FLAG | way.block()?;
            let mut own = way.own;
            while entry & FLAG != 0 {
                let (base, width) = (block_of(entry).0, entry & LOW_MASK);
                own &= store.pools.blocks.is_one(base as u32);
                let index = part.index(width, value);
                part = part.divided(width, index);
                entry = store.entry(base + index);
            }
            way = self.grain(entry, part, own, value);
            if part.grain() == 0 {
                return way.block().map(|_| way);
            }
            part = part.grain_of(value);
        }
    }

    /// What a leaf of a part has for the grain of a value. `own` says whether only one path leads to the leaf's block.
    fn grain(&self, entry: u32, part: Part, own: bool, value: u64) -> Way {
        let store = &self.encoder.store;
        let runs = store.read_leaf(entry, part);
        let at = runs.partition_point(|run| run.start <= value) - 1;
        let last = runs.get(at + 1).map_or(part.last(), |next| next.start - 1);
        // Several grains may share the same block.
        let is_alone = part.grain_of(runs[at].start) == part.grain_of(last);
        let own = own && is_alone && label_of(entry).is_none() && store.pools.leaves.is_one(leaf_of(entry).0 as u32);
        Way { value: runs[at].value, own }
    }

    /// Replaces what a part has for some values. Returns the new value, unless its block is changed in place.
    fn replace(&mut self, part: Part, way: Way, touched: &Touched) -> Result<Option<u32>, NoRoom> {
        match way.block() {
            Some(word) => self.replace_in(Block { word, part, own: way.own, level: 1 }, touched),
            None => {
                let changed = touched.replaced(&[Run { start: part.first, value: way.value }], part);
                let is_same = matches!(changed[..], [run] if run.value == way.value);
                if is_same { Ok(None) } else { self.encoder.value(part, &changed).map(Some) }
            }
        }
    }

    /// Replaces what a block has for some values. Returns the new word that leads to it, unless it is changed in place.
    fn replace_in(&mut self, block: Block, touched: &Touched) -> Result<Option<u32>, NoRoom> {
        let ((base, _), width) = (block_of(block.word), block.word & LOW_MASK);
        let block = Block { own: block.own && self.encoder.store.pools.blocks.is_one(base as u32), ..block };
        let index = block.part.index(width, touched.first);
        let mut runs = Vec::new();
        if index == block.part.index(width, touched.last) {
            let (old, part) = (self.encoder.store.entry(base + index), block.part.divided(width, index));
            if old & FLAG != 0 {
                let new = self.replace_in(Block { word: old, part, level: block.level + 1, ..block }, touched)?;
                return new.map_or(Ok(None), |new| self.put_entry(block, index, new));
            }
            if let Some(lanes) = self.lanes_with_grain(old, part, touched) {
                return self.replace_grain(block, index, (old, part, lanes), touched);
            }
            self.encoder.store.read_part(old, part, &mut runs);
            let changed = touched.replaced(&runs, part);
            if changed == runs {
                return Ok(None);
            }
            if !self.is_divided_anew(block, index, part, &changed) {
                let new = self.encoder.part(part, &changed, block.level)?;
                return self.put_entry(block, index, new);
            }
            runs.clear();
        }
        self.encoder.store.read_block(block.word, block.part, &mut runs);
        match touched.replaced(&runs, block.part) {
            changed if changed == runs => Ok(None),
            changed if block.level == 1 => self.encoder.value(block.part, &changed).map(Some),
            changed => self.encoder.part(block.part, &changed, block.level - 1).map(Some),
        }
    }

    /// Whether a block is divided anew after its entry `index` gets these runs: if it is full, or if a leaf can replace
    /// it.
    fn is_divided_anew(&self, block: Block, index: usize, part: Part, changed: &[Run]) -> bool {
        let (_, count) = block_of(block.word);
        let lanes_max = self.encoder.store.lanes_max();
        let lanes = |limit| self.encoder.store.lanes(block.word, index, changed.len(), limit);
        if !self.encoder.is_leaf(part, changed, block.level) {
            let is_last = block.level == self.encoder.store.offsets.form.levels();
            return is_last || lanes(count * lanes_max) > count * lanes_max;
        }
        match (block.level, count) {
            (1, 1) => changed.len() == 1,
            (1, _) => lanes(lanes_max) <= lanes_max / 2,
            _ => lanes(lanes_max) <= lanes_max,
        }
    }

    /// The runs of a leaf in which one grain is touched, if another leaf has room for its value.
    fn lanes_with_grain(&self, entry: u32, part: Part, touched: &Touched) -> Option<Vec<Run>> {
        let is_one_grain = part.grain() > 0 && part.grain_of(touched.first) == part.grain_of(touched.last);
        if !is_one_grain {
            return None;
        }
        let lanes = self.encoder.store.read_leaf(entry, part);
        // The grain, and the run behind it.
        (lanes.len() + 2 <= self.encoder.store.lanes_max()).then_some(lanes)
    }

    /// Replaces what one grain of a leaf has for some values. Entry `index` of the block leads to the leaf.
    fn replace_grain(
        &mut self,
        block: Block,
        index: usize,
        (entry, part, lanes): (u32, Part, Vec<Run>),
        touched: &Touched,
    ) -> Result<Option<u32>, NoRoom> {
        let grain = part.grain_of(touched.first);
        let way = self.grain(entry, part, block.own, touched.first);
        let Some(value) = self.replace(grain, way, touched)? else {
            return Ok(None);
        };
        let touched = Touched { first: grain.first, last: grain.last(), runs: vec![Run { start: grain.first, value }] };
        let changed = touched.replaced(&lanes, part);
        match changed[..] {
            [run] if block.level == 1 && block_of(block.word).1 == 1 && run.value & FLAG == 0 => Ok(Some(run.value)),
            _ => {
                let new = self.encoder.leaf(part, &changed)?;
                self.put_entry(block, index, new)
            }
        }
    }

    /// Changes entry `index` of a block: in place if only one path leads to it, else in a copy.
    fn put_entry(&mut self, block: Block, index: usize, new: u32) -> Result<Option<u32>, NoRoom> {
        let (base, count) = block_of(block.word);
        let store = &mut self.encoder.store;
        if block.own {
            let old = store.entry(base + index);
            store.add_parent(new);
            store.cells.set_u32(Offsets::entry_at(base + index), new);
            self.unlinked.push(self.readers, Replaced::Entry(old));
            return Ok(None);
        }
        let mut entries: Vec<u32> = (base..base + count).map(|index| store.entry(index)).collect();
        entries[index] = new;
        let copy = store.entries(&entries).ok_or(NoRoom::Entries)?;
        Ok(Some(FLAG | (copy as u32) << NUMBER_SHIFT | block.word & LOW_MASK))
    }
}

impl Touched {
    /// The runs of a part with the touched values replaced.
    fn replaced(&self, runs: &[Run], part: Part) -> Vec<Run> {
        let mut changed = Vec::with_capacity(runs.len() + self.runs.len() + 1);
        let before = runs.partition_point(|run| run.start < self.first);
        runs[..before].iter().chain(&self.runs).for_each(|run| push(&mut changed, run.start, run.value));
        let after = runs.partition_point(|run| run.start <= self.last);
        if self.last < part.last() {
            push(&mut changed, self.last + 1, runs[after - 1].value);
        }
        runs[after..].iter().for_each(|run| push(&mut changed, run.start, run.value));
        changed
    }
}
