//! The prices of the software's work, for the distributor's model.

use weir_abi::Layout;
use weir_card::distributor::cost::Costs;
use weir_loading::Policy;
use weir_policy::ir::Find;

/// Cycles of native code on a server core of 2023 (`docs/tables-explained.md`); those of answers are estimates.
const RECEIVE: f64 = 60.0;
const PARSE: f64 = 16.0;
const SEAL: f64 = 3.0;
const BYTE: f64 = 0.05;
const TEST: f64 = 1.0;
/// The share of a lookup in D16X4R that is its second half.
const FINISH_SHARE: f64 = 0.5;
/// Cycles of a lookup for which there is no estimate.
const LOOKUP: f64 = 10.0;
/// The costs of native code, by the compiler's own estimates of lookups.
pub(super) struct NativeCosts<'p> {
    pub policy: &'p Policy,
}

impl NativeCosts<'_> {
    fn expected(&self, slot: usize, layout: Layout) -> Option<f64> {
        self.policy.text()?.lowered.plan.images[slot].reason.expected_cycles(layout)
    }
}

impl Costs for NativeCosts<'_> {
    fn receive(&self) -> f64 {
        RECEIVE
    }

    fn parse(&self) -> f64 {
        PARSE
    }

    fn seal(&self) -> f64 {
        SEAL
    }

    fn byte(&self) -> f64 {
        BYTE
    }

    fn test(&self) -> f64 {
        TEST
    }

    fn lookup(&self, find: Find) -> f64 {
        let slot = usize::from(find.slot.0);
        self.expected(slot, self.policy.program.slots[slot].layout).unwrap_or(LOOKUP)
    }

    fn finish(&self, table: &str) -> f64 {
        let slots = self.policy.program.slots.iter();
        let slot = slots.enumerate().find(|(_, slot)| slot.tables() == [table]);
        let whole = slot.and_then(|(slot, _)| self.expected(slot, Layout::Dxr16x4));
        whole.unwrap_or(LOOKUP) * FINISH_SHARE
    }
}
