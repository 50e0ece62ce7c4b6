//! Lookups in tables and lists of limits, which the caller of the interpreter implements.

use crate::ir::{LimiterId, SlotId};
use std::sync::Arc;
use weir_abi::LimitEntries;

/// The tables and lists of limits of a program.
pub trait Tables {
    /// The label of the longest prefix in the slot that contains the key, or 0. For a fused slot, one bit for each
    /// table that contains the key.
    fn find(&self, slot: SlotId, key: u128) -> u32;

    /// The prefixes of a table that is dynamic or has counters, each with its length and label. Called once. `None` if
    /// they are not known; the table is then constant and counts nothing.
    fn entries(&self, slot: SlotId) -> Option<Vec<(u128, u8, u32)>>;

    /// What rules must not add to a dynamic table. Called once.
    fn protected(&self, _slot: SlotId) -> Vec<Protected> {
        Vec::new()
    }

    /// The limits of a limiter, indexed by the labels that its find returns. Called once, and only for limiters of
    /// lists.
    fn limits(&self, limiter: LimiterId) -> Arc<LimitEntries>;
}

/// Addresses that rules must not add to a table.
#[derive(Clone, Debug)]
pub enum Protected {
    /// The addresses of a dynamic table.
    Slot(SlotId),
    /// These prefixes, each with its length.
    Prefixes(Vec<(u128, u8)>),
}
