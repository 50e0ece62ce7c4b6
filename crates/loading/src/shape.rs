//! The facts about a program that the engine's loaders need. Its C is not required.

use weir_engine::TableSlot;
use weir_policy::backend::c;
use weir_policy::ir::{Program, Slot};
use weir_state::StateShape;

/// The shape of a program.
pub fn shape(program: &Program) -> weir_engine::ProgramShape {
    let slots = program.slots.iter();
    let mut state = StateShape::default();
    state.limiters = program.limiters.len();
    state.adders = program.adders.len();
    state.flows = program.tracking.map(|tracking| tracking.size);
    state.proxied = program.rewrites();
    state.slots = program.rule_slots.len();
    state.features = program.observe.as_ref().map(|observe| observe.shape());
    weir_engine::ProgramShape {
        chains: c::chain_symbols(program),
        rules: program.rules.len(),
        tables: slots.map(table_slot).collect(),
        additions: program.additions_max(),
        limited: program.limited().len(),
        rewrites: program.rewrites(),
        state,
        answered: program.card.as_ref().map(|card| (card.chain, card.body.bytes())),
    }
}

fn table_slot(slot: &Slot) -> TableSlot {
    TableSlot { name: slot.name(), layout: slot.layout }
}
