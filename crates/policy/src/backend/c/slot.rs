//! The slots of a program in C.

use super::dialect::Dialect;
use super::writer::{self, Writer};
use crate::ir::Program;

/// Includes what asks slots and, for BPF, defines them.
pub(super) fn emit(program: &Program, dialect: Dialect, out: &mut Writer) {
    if program.rule_slots.is_empty() {
        return;
    }
    out.blank();
    if !dialect.is_bpf() {
        out.include("slots/burst.h");
        return;
    }
    out.include("slots/kernel.h");
    out.blank();
    for (index, slot) in program.rule_slots.iter().enumerate() {
        out.line(&format!("WEIR_SLOT({index}) /* {} */", writer::comment(&slot.name)));
    }
}
