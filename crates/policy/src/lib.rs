//! The policy compiler: text in, artifacts out, or diagnostics. It opens no file and touches no packet.
//!
//! `pipeline` lists all stages. Each stage is a type, so stages cannot run in the wrong order.
#![forbid(unsafe_code)]

pub mod backend;
pub mod capability;
pub mod catalog;
pub mod check;
pub mod checked;
pub mod diag;
pub mod direction;
pub mod field;
pub mod ir;
mod limit_each;
pub mod offload;
pub mod pass;
pub mod pipeline;
pub mod slot_rule;
pub mod source;
pub mod syntax;
pub mod time;
pub mod tracking;
