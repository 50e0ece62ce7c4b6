//! Table layouts, one a file: its bit diagrams, its builder, and the same lookup that `datapath/include` has in C.
//!
//! A layout file never sees text and never sees another layout, but for counted leaves, which are rank leaves where labels do not count. To add one: a number in `weir_abi::Layout`, a file here
//! with `build`, `View::{open, check, find}`, and its C twin.

pub(crate) mod counted_leaf;
pub(crate) mod dxr;
pub(crate) mod exact_set;
pub(crate) mod exact_set6;
pub(crate) mod exact_sets;
pub(crate) mod overflow;
pub(crate) mod range6;
pub(crate) mod rank_leaf;

/// What an image is built with beside what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// Nothing: it will not change.
    None,
    /// Room for what may come before it is built anew: a quarter more of what changes take, and at least some.
    Spare,
}

impl Room {
    /// How many more than `count`.
    pub fn beside(self, count: usize, least: usize) -> usize {
        match self {
            Room::None => 0,
            Room::Spare => (count / 4).max(least),
        }
    }
}
