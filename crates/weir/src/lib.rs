//! The `weir` command: its command line and the reports of its commands.
//!
//! Each command is a module with its name. `weir run` is `weir-daemon`.
#![forbid(unsafe_code)]

#[macro_use]
extern crate weir_command;

pub mod bench;
pub mod card_plan;
pub mod card_serve;
pub mod check;
pub mod cli;
pub mod compile;
pub mod config;
pub mod costs;
pub mod ctl;
pub mod ctl_attacks;
mod ctl_baseline;
pub mod ctl_capture;
pub mod ctl_card;
mod ctl_export;
pub mod ctl_features;
pub mod ctl_flows;
mod ctl_question;
mod ctl_shadow;
pub mod ctl_slot;
mod ctl_stats;
pub mod ctl_table;
pub mod ctl_updates;
pub mod ctl_upgrade;
pub mod detect;
pub mod diff;
pub mod import;
pub mod manual;
pub mod replay;
pub mod top;
pub mod why;
