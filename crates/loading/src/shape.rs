//! The facts about a program that the engine's loaders need. Its C is not required.

use weir_engine::TableSlot;
use weir_policy::backend::c;
use weir_policy::ir::{Program, Slot};
use weir_state::StateShape;

/// The shape of a program.
pub fn shape(program: &Program) -> weir_engine::ProgramShape {
    let slots = program.slots.iter();
    weir_engine::ProgramShape {
        chains: c::chain_symbols(program),
        rules: program.rules.len(),
        tables: slots.map(table_slot).collect(),
        additions: program.additions_max(),
        limited: program.limited().len(),
        rewrites: program.rewrites(),
        state: StateShape {
            limiters: program.limiters.len(),
            adders: program.adders.len(),
            flows: program.tracking.map(|tracking| tracking.size),
            proxied: program.rewrites(),
            slots: program.rule_slots.len(),
            features: program.observe.as_ref().map(|observe| observe.shape()),
        },
        answered: program.card.as_ref().map(|card| (card.chain, card.body.bytes())),
    }
}

fn table_slot(slot: &Slot) -> TableSlot {
    TableSlot { name: slot.name(), layout: slot.layout }
}
