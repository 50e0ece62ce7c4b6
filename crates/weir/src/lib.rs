//! The `weir` command: the command line, the commands and the daemon.
//!
//! Each command is a module with its name. `weir-loading` loads policies and bundles for engines.
#![forbid(unsafe_code)]

/// Replaces the macro of the standard library in this crate. It escapes text from outside, and does not panic if
/// standard error is closed.
macro_rules! eprintln {
    ($($text:tt)*) => { $crate::report::say(&format!($($text)*)) };
}

pub mod additions;
pub mod bench;
pub mod captures;
pub mod card;
pub mod card_plan;
pub mod card_serve;
pub mod check;
pub mod cli;
pub mod compile;
pub mod costs;
pub mod ctl;
pub mod ctl_attacks;
mod ctl_baseline;
pub mod ctl_card;
pub mod ctl_features;
pub mod ctl_flows;
pub mod ctl_slot;
pub mod ctl_table;
pub mod ctl_updates;
pub mod cut_short;
pub mod detect;
pub mod diff;
pub mod directions;
pub mod engine;
pub mod entry;
pub mod export;
pub mod failure;
pub mod figures;
pub mod inside;
pub mod limit_counts;
pub mod replay;
pub mod report;
pub mod run;
pub mod signals;
pub mod why;
