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

mod survey;
mod undo;
mod update;
mod writing;

use crate::cells::CellsMut;
use crate::layout::rank_leaf::encode::Encoder;
use crate::layout::rank_leaf::{Offsets, ROOT_BITS, block_of};
use crate::live::epochs::{Quiescence, Unlinked};
use crate::live::exact::Full;
use crate::live::pools::{Entries, Lanes};
use crate::live::rib::{Net, Rib};
use survey::Survey;
use update::{Replaced, Update};
use writing::{Pools, Writing};

/// A shorter prefix touches so many root words that rebuilding the image is faster.
const LEN_MIN: u8 = 8;
/// Offset of the number of labels in the header.
const LABELS_AT: usize = 12;

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

#[cfg(test)]
mod tests;
