//! Recordings: captures that commands read and write, the direction of their packets, replays of policies over them,
//! and attacks as files.
#![forbid(unsafe_code)]

pub mod capture_notes;
pub mod captures;
pub mod clock;
pub mod cut_short;
pub mod directions;
pub mod export;
pub mod headers;
pub mod labels;
pub mod replay;
pub mod sides;
#[cfg(test)]
mod signatures;
pub mod vlan_sides;
