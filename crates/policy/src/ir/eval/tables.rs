//! What the interpreter asks of tables and lists of limits. The caller holds them.

use crate::ir::{LimiterId, SlotId};
use std::sync::Arc;
use weir_abi::LimitEntries;

/// The tables and lists of limits of a program.
pub trait Tables {
    /// The label of the longest prefix of the slot that holds the key; 0 if no prefix does. For a fused slot, a bit for
    /// each table that holds the key.
    fn find(&self, slot: SlotId, key: u128) -> u32;

    /// The limits of a limiter, by the labels that its find can return. Called once, and only for limiters of lists.
    fn limits(&self, limiter: LimiterId) -> Arc<LimitEntries>;
}
