//! Table layouts, one a file: its bit diagrams, its builder, and the same lookup that `datapath/include` has in C.
//!
//! A layout file never sees text and never sees another layout. To add one: a number in `weir_abi::Layout`, a file here
//! with `build`, `View::{open, check, find}`, and its C twin.

pub(crate) mod dxr;
pub(crate) mod exact_set;
pub(crate) mod exact_set6;
pub(crate) mod exact_sets;
pub(crate) mod overflow;
pub(crate) mod range6;
pub(crate) mod rank_leaf;
