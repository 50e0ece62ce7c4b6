//! Scans an image for its writer.

use std::collections::HashMap;

use crate::cells::CellsMut;
use crate::layout::rank_leaf::{FLAG, Offsets, ROOT_WORDS, block_of, label_of, leaf_of};
use crate::live::pools::{Parents, run};

/// Scans an image that does not change yet: what is in use, and how often it is shared.
pub(super) struct Survey<'a, C> {
    cells: &'a C,
    offsets: Offsets,
    /// Whether anything leads to each entry.
    pub seen: Vec<bool>,
    /// Lanes in use, by line (one bit each). Bits behind a line's lanes are set.
    pub taken: Vec<u32>,
    /// The end of the used entries.
    pub next: usize,
    pub uniform: HashMap<u32, u32>,
    pub leaves: Parents,
    pub blocks: Parents,
}

impl<'a, C: CellsMut> Survey<'a, C> {
    pub(super) fn of(cells: &'a C, offsets: Offsets) -> Self {
        let mut survey = Survey {
            cells,
            offsets,
            seen: vec![false; offsets.entries],
            taken: vec![!run(offsets.form.lanes()); offsets.lanes / offsets.form.lanes()],
            next: 0,
            uniform: HashMap::new(),
            leaves: Parents::default(),
            blocks: Parents::default(),
        };
        let root = (0..ROOT_WORDS).map(|index| cells.u32(Offsets::root_at(index)));
        root.filter(|value| value & FLAG != 0).for_each(|block| survey.block(block_of(block)));
        survey
    }

    fn block(&mut self, (base, count): (usize, usize)) {
        if self.seen[base] {
            return self.blocks.add(base as u32);
        }
        self.seen[base..base + count].fill(true);
        self.next = self.next.max(base + count);
        for index in base..base + count {
            match self.cells.u32(Offsets::entry_at(index)) {
                label if label_of(label).is_some() => {}
                entry if entry & FLAG != 0 => self.block(block_of(entry)),
                entry => self.leaf(entry),
            }
        }
    }

    fn leaf(&mut self, entry: u32) {
        let (lane, count) = leaf_of(entry);
        let line_lanes = self.offsets.form.lanes();
        let (taken, lanes) = (&mut self.taken[lane / line_lanes], run(count) << (lane % line_lanes));
        if *taken & lanes != 0 {
            return self.leaves.add(lane as u32);
        }
        *taken |= lanes;
        let values: Vec<u32> = (lane..lane + count).map(|lane| self.offsets.value(self.cells, lane)).collect();
        if let [first, second] = values[..]
            && first == second
        {
            self.uniform.insert(first, entry);
        }
        values.into_iter().filter(|value| value & FLAG != 0).for_each(|block| self.block(block_of(block)));
    }
}
