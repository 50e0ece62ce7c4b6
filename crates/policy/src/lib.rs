//! The policy compiler: text in, artifacts out, or diagnostics. It opens no file and touches no packet.
//!
//! `pipeline` is the map of all stages; each stage is a type, so their order cannot be wrong.
#![forbid(unsafe_code)]

pub mod backend;
pub mod capability;
pub mod catalog;
pub mod check;
pub mod checked;
pub mod diag;
pub mod field;
pub mod ir;
pub mod pass;
pub mod pipeline;
pub mod source;
pub mod syntax;
