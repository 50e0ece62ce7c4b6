//! What is observed, as a constant in C, and the calls that count it.

use super::dialect::Dialect;
use super::writer::Writer;
use crate::direction::Direction;
use crate::ir::Observe;

/// Writes the settings, and includes what reads them.
pub(super) fn emit(observe: &Observe, dialect: Dialect, out: &mut Writer) {
    settings(observe, out);
    out.blank();
    out.include(dialect.header("observe/kernel.h", "observe/burst.h"));
}

/// Writes the settings.
pub(in crate::backend) fn settings(observe: &Observe, out: &mut Writer) {
    let shape = observe.shape();
    out.blank();
    out.include("observe/feature.h");
    out.blank();
    out.open("static const struct observing observing =");
    out.line(&format!(".size = {},", shape.size));
    if shape.is_direct() {
        let [ipv4, ipv6] = [(32, 0), (128, 1)].map(|(bits, family)| bits - u32::from(shape.lengths[family]));
        out.line(&format!(".shift4 = {ipv4},"));
        out.line(&format!(".shift6 = {ipv6},"));
    } else {
        let [[_, ipv4], [high, low]] = shape.masks();
        out.line(&format!(".groups = {},", shape.groups()));
        out.line(&format!(".mask4 = {:#x},", ipv4 as u32));
        out.line(&format!(".mask6 = {{{high:#x}ULL, {low:#x}ULL}},"));
    }
    if observe.is_all() {
        out.line(".is_all = true,");
    }
    // Without cells of their own, ranges have no places.
    let mut places = shape.ranges.iter().map(|range| range.place).chain(std::iter::repeat(0));
    let mut place = || places.next().expect("the places repeat without end");
    let [inside4, inside6] = &observe.inside;
    if !inside4.ranges().is_empty() {
        out.line(&format!(".count4 = {},", inside4.ranges().len()));
        for (index, (first, last)) in inside4.ranges().iter().enumerate() {
            out.line(&format!(".inside4[{index}] = {{{first:#x}, {last:#x}, {}}},", place()));
        }
    }
    if !inside6.ranges().is_empty() {
        out.line(&format!(".count6 = {},", inside6.ranges().len()));
        let halves = |value: u128| format!("{{{:#x}ULL, {:#x}ULL}}", (value >> 64) as u64, value as u64);
        for (index, &(first, last)) in inside6.ranges().iter().enumerate() {
            out.line(&format!(".inside6[{index}] = {{{}, {}, {}}},", halves(first), halves(last), place()));
        }
    }
    out.close_with(";");
}

/// Writes which columns of a burst are read.
pub(super) fn columns(of: Direction, out: &mut Writer) {
    let [own, peer] = match of {
        Direction::Upstream => ["daddr", "saddr"],
        Direction::Downstream => ["saddr", "daddr"],
    };
    out.open("const struct observed_columns observed =");
    for column in ["l3", "l4", "fragment", "tcp_flags", "sport"] {
        out.line(&format!(".{column} = packets.{column},"));
    }
    out.line(&format!(".own = packets.{own},"));
    out.line(&format!(".peer = packets.{peer},"));
    out.close_with(";");
}

/// Writes why packet `i` is malformed, from a parser that keeps what is observed of it.
pub(super) fn parse(of: Direction, out: &mut Writer) {
    let arguments = "burst, &packets->observed, i, &frame, &parsed, &observing";
    out.assign("const enum reason malformed", &format!("observe_parse({arguments}, {})", direction(of)), "");
}

/// The call of a function for a burst.
pub(super) fn call(function: &str, of: Direction) -> String {
    format!("{function}(burst, &verdicts, &packets.observed, &observed, &observing, {});", direction(of))
}

/// The direction of a chain in C.
pub(super) fn direction(direction: Direction) -> &'static str {
    match direction {
        Direction::Upstream => "OBSERVED_UPSTREAM",
        Direction::Downstream => "OBSERVED_DOWNSTREAM",
    }
}
