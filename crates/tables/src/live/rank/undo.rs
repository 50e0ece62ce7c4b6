//! Gives back what a change took before it ran out of room.

use super::writing::Writing;
use crate::cells::CellsMut;
use crate::layout::rank_leaf::leaf_of;
use crate::live::pools::Made;

impl<C: CellsMut> Writing<'_, C> {
    /// Frees what was made and has no parent. No reader has seen it.
    pub(super) fn undo(&mut self) {
        // What leads to others was made after them, and frees them.
        while let Some(made) = self.made.pop() {
            match made {
                Made::Leaf(entry) if self.pools.leaves.has_none(leaf_of(entry).0 as u32) => {
                    self.add_parent(entry);
                    self.release_entry(entry);
                }
                Made::Block(base, count) if self.pools.blocks.has_none(base as u32) => {
                    self.pools.blocks.add(base as u32);
                    self.release_block((base, count));
                }
                Made::Leaf(_) | Made::Block(..) => {}
            }
        }
    }
}
