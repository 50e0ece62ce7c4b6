//! The first stage: text to syntax tree.
//!
//! The parser uses recursive descent. It recovers at the end of a rule, an element or an item, so that one run reports
//! every mistake. The input does not determine the depth of recursion: blocks nest three deep and values do not nest.
//! The parser opens no file; the caller reads included files ([`Includes`]).

mod addition;
mod cursor;
pub mod foreign;
mod inside;
mod item;
mod limit;
mod limits;
mod load;
mod observe;
pub mod print;
pub(crate) mod reserved;
mod rule;
mod slot;
mod subject;
mod table;
pub mod token;
mod tracking;
pub mod tree;
mod value;
mod words;

pub(crate) use load::resolve;
pub use load::{Includes, NoIncludes, parse};
pub(crate) use subject::unknown_header;
pub use tree::Parsed;

/// Total size of all files of a policy, bytes. Longer lists belong in list files.
pub const TEXT_BYTES_MAX: usize = 8 << 20;
/// Most files of a policy.
pub const FILES_MAX: usize = 64;
/// Deepest nesting of includes.
pub const INCLUDE_DEPTH_MAX: usize = 16;
/// Most syntax errors that are reported for a file. A file with more is probably not a policy.
pub const ERRORS_MAX: usize = 40;
