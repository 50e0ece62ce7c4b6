//! A rule of a slot.

use crate::ir::Test;
use weir_abi::Limit;
use weir_abi::slot::{SlotAct, SlotRule as Record};

/// A rule of a slot.
#[derive(Clone, Debug, PartialEq)]
pub struct SlotRule {
    /// All must hold.
    pub tests: Vec<Test>,
    /// What happens to packets that match.
    pub act: Act,
    /// The rule as engines read it. Its cell and number are 0.
    pub record: Record,
}

/// What happens to packets that match a rule of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// The packets are counted.
    Count,
    /// The packets are dropped.
    Drop,
    /// The packets are dropped above a rate.
    Limit(Limit),
}

impl Act {
    /// The number in records.
    pub(super) fn number(self) -> SlotAct {
        match self {
            Act::Count => SlotAct::Count,
            Act::Drop => SlotAct::Drop,
            Act::Limit(_) => SlotAct::Limit,
        }
    }
}
