//! What the commands of Weir have in common: from the command line to the exit code. Options, failures, reports of
//! counters and limits, and the signals that end a command.
#![forbid(unsafe_code)]

/// Replaces the macro of the standard library in crates that say `#[macro_use] extern crate weir_command`. It escapes
/// text from outside, and does not panic if standard error is closed.
#[macro_export]
macro_rules! eprintln {
    ($($text:tt)*) => { $crate::report::say(&format!($($text)*)) };
}

pub mod additions;
pub mod comparison;
pub mod engine;
pub mod entry;
pub mod failure;
pub mod figures;
pub mod inside;
pub mod limit_counts;
pub mod options;
pub mod report;
pub mod signals;
pub mod values;
