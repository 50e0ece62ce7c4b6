//! Generations: policies that are loaded for the datapath, which of them decides, and what they have counted.

pub mod account;
pub mod automatic;
pub mod beginning;
pub mod carried;
pub mod controller;
pub mod generation;
mod interface_stats;
mod ledger;
pub mod preparation;
pub mod succession;
pub mod tally;

#[cfg(test)]
pub mod still;
