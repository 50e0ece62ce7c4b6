//! The `weir` command: everything that runs engines and talks to people.
//!
//! `weir-loading` brings a policy or bundle from disk to something that engines take; each command is a module named for it.
#![forbid(unsafe_code)]

/// In place of the standard library's, so that no message of this crate is forgotten: what messages hold from outside is escaped, and a
/// closed standard error is no panic.
macro_rules! eprintln {
    ($($text:tt)*) => { $crate::report::say(&format!($($text)*)) };
}

pub mod bench;
pub mod captures;
pub mod check;
pub mod cli;
pub mod compile;
pub mod costs;
pub mod ctl;
pub mod diff;
pub mod engine;
pub mod failure;
pub mod figures;
pub mod limit_counts;
pub mod program;
pub mod replay;
pub mod report;
pub mod run;
pub mod signals;
pub mod why;
