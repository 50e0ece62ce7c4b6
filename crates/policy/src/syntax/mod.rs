//! The first stage: text to syntax tree.
//!
//! A parser by recursive descent that recovers at the end of a rule, an element or an item, so that one run reports every mistake.
//! Its recursion does not depend on the input: blocks nest three deep and values do not nest. It opens no file; included ones come
//! through [`Includes`].

mod cursor;
mod foreign;
mod item;
mod limit;
mod limits;
mod load;
pub mod print;
pub(crate) mod reserved;
mod rule;
mod subject;
mod table;
pub mod token;
pub mod tree;
mod value;
mod words;

pub(crate) use load::resolve;
pub use load::{Includes, NoIncludes, parse};
pub(crate) use subject::unknown_header;
pub use tree::Parsed;

/// Bytes of all files of a policy together; longer lists belong into files of their own.
pub const TEXT_BYTES_MAX: usize = 8 << 20;
/// Files of a policy.
pub const FILES_MAX: usize = 64;
/// Files that may be open at once: the main file includes one that includes another, and so on.
pub const INCLUDE_DEPTH_MAX: usize = 16;
/// Syntax errors reported; a file with more is probably not a policy.
pub const ERRORS_MAX: usize = 40;
