//! The `weir` command: everything that reads files, runs engines and talks to people.
//!
//! `policy` brings a policy or bundle from disk to something that engines take; each command is a module named for it.
#![forbid(unsafe_code)]

pub mod bench;
pub mod check;
pub mod cli;
pub mod compile;
pub mod control;
pub mod costs;
pub mod ctl;
pub mod diff;
pub mod engine;
pub mod eval;
pub mod failure;
mod file;
mod image_facts;
pub mod limit_counts;
pub mod limits;
mod lists;
pub mod policy;
pub mod replay;
pub mod report;
pub mod run;
mod text;
pub mod why;
