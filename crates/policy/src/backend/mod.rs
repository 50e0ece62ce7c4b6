//! Backends: each turns a program into source text.

pub mod c;
pub mod p4;

use crate::ir::Program;
use c::Dialect;
use weir_abi::Target;

/// The program as source for a target. The target's engine has what the program needs
/// ([`crate::capability::unsupported`]).
pub fn emit(program: &Program, target: Target) -> String {
    match target {
        Target::Native => c::emit(program, Dialect::Native),
        Target::Bpf => c::emit(program, Dialect::Bpf),
        Target::P4 => p4::emit(program),
    }
}
