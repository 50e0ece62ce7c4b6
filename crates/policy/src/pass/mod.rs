//! Passes over the IR, one per file. Each preserves the meaning of the program; `verify` checks the result of all.

pub mod choose_layouts;
pub mod drop_unreachable;
pub mod hoist_guards;
pub mod place_finds;

use crate::ir::{Program, verify};
pub use place_finds::Placement;

/// Runs all passes, with the placement of finds that the backend needs.
pub fn optimise(program: &Program, placement: Placement) -> Program {
    run(program, placement, verify::verify)
}

/// As [`optimise`], for a program whose chains are the parts of one chain, in order.
pub fn optimise_parts(program: &Program, placement: Placement) -> Program {
    run(program, placement, verify::verify_parts)
}

fn run(program: &Program, placement: Placement, verify: fn(&Program) -> Result<(), String>) -> Program {
    let mut program = program.clone();
    for chain in &mut program.chains {
        drop_unreachable::run(&mut chain.tree, &program.rules);
        hoist_guards::run(&mut chain.tree);
        drop_unreachable::run(&mut chain.tree, &program.rules);
        place_finds::run(&mut chain.tree, placement);
    }
    if let Err(broken) = verify(&program) {
        panic!("compiler bug: {broken}\n{program}");
    }
    program
}
