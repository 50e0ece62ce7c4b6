//! The prices of the software's work, for the distributor's model.

use weir_abi::Layout;
use weir_card::distributor::cost::Costs;
use weir_loading::Policy;
use weir_policy::ir::Find;

/// Cycles of native code, from `docs/reference/benchmarks.md`. Receiving is an estimate: it costs the same with and
/// without a card.
const RECEIVE: f64 = 60.0;
const PARSE: f64 = 16.0;
const SEAL: f64 = 8.0;
const BYTE: f64 = 0.05;
/// Rules are tested for a burst at once.
const TEST: f64 = 0.4;
/// The cost of the second half of a lookup in D16X4R, as a part of the whole. The search among ranges is what a
/// processor cannot foresee, so the first half saves little where tables are in its caches.
const FINISH_SHARE: f64 = 1.0;
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
