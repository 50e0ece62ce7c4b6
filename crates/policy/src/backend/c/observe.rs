//! What is observed, as a constant in C.

use super::dialect::Dialect;
use super::writer::Writer;
use crate::direction::Direction;
use crate::ir::Observe;

/// Writes the settings, and includes what reads them.
pub(super) fn emit(observe: &Observe, dialect: Dialect, out: &mut Writer) {
    let [[_, ipv4], [high, low]] = observe.shape.masks();
    out.blank();
    out.line("#include \"feature.h\"");
    out.blank();
    out.open("static const struct observing observing =");
    out.line(&format!(".mask4 = {:#x},", ipv4 as u32));
    out.line(&format!(".mask6 = {{{high:#x}ULL, {low:#x}ULL}},"));
    let [inside4, inside6] = &observe.inside;
    if observe.is_all() {
        out.line(".is_all = true,");
    }
    if !inside4.ranges().is_empty() {
        out.line(&format!(".count4 = {},", inside4.ranges().len()));
        for (index, (first, last)) in inside4.ranges().iter().enumerate() {
            out.line(&format!(".inside4[{index}] = {{{first:#x}, {last:#x}}},"));
        }
    }
    if !inside6.ranges().is_empty() {
        out.line(&format!(".count6 = {},", inside6.ranges().len()));
        let halves = |value: u128| format!("{{{:#x}ULL, {:#x}ULL}}", (value >> 64) as u64, value as u64);
        for (index, &(first, last)) in inside6.ranges().iter().enumerate() {
            out.line(&format!(".inside6[{index}] = {{{}, {}}},", halves(first), halves(last)));
        }
    }
    out.close_with(";");
    out.blank();
    out.line(if dialect.is_bpf() { "#include \"cpu_observe.h\"" } else { "#include \"observe_burst.h\"" });
}

/// The direction of a chain in C.
pub(super) fn direction(direction: Direction) -> &'static str {
    match direction {
        Direction::Upstream => "OBSERVED_UPSTREAM",
        Direction::Downstream => "OBSERVED_DOWNSTREAM",
    }
}
