//! Table layouts, one per file: its bit diagrams, its builder, and the same lookup that `datapath/tables` has in C.
//!
//! A layout file knows no text format and no other layout. There are two exceptions: counted leaves fall back to rank
//! leaves where labels do not count up, and an exact leaf consists of two other layouts. To add a layout, add a
//! number to `weir_abi::Layout`, a file here with `build` and `View::{open, check, find}`, and the C lookup.

pub(crate) mod counted_leaf;
pub(crate) mod dxr;
pub(crate) mod exact_leaf;
pub(crate) mod exact_set;
pub(crate) mod exact_set6;
pub(crate) mod exact_sets;
pub(crate) mod overflow;
pub(crate) mod range6;
pub(crate) mod rank_leaf;

/// The room for changes that an image is built with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// None: the image will not change.
    None,
    /// Room for changes until the next rebuild: a quarter more of what changes consume, with a minimum.
    Spare,
}

impl Room {
    /// The number of spare units for `count` units in use.
    pub fn beside(self, count: usize, least: usize) -> usize {
        match self {
            Room::None => 0,
            Room::Spare => (count / 4).max(least),
        }
    }
}
