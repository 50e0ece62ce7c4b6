//! Tables with constant entries in P4, for large sets.

use super::expression::{constant, read};
use super::model::{Load, Value};
use super::sets::Sets;
use super::text::Text;
use crate::ir::ValueSet;

const LOW: u128 = u64::MAX as u128;

/// Declares the tables.
pub(super) fn print(sets: &Sets<'_>, out: &mut Text) {
    for (number, (value, set)) in sets.all().iter().enumerate() {
        out.open(&format!("table set_{number}"));
        out.open("key =");
        match value {
            Value::Narrow(load) => key(load, "value", out),
            Value::Wide(hi, lo) => {
                key(hi, "hi", out);
                key(lo, "lo", out);
            }
        }
        out.close();
        out.open("actions =");
        out.line("NoAction;");
        out.close();
        out.line("const default_action = NoAction;");
        out.open("const entries =");
        for entry in entries(value, set) {
            out.line(&format!("{entry}: NoAction();"));
        }
        out.close();
        out.close();
        out.blank();
    }
}

/// A key. One that is computed needs a name.
fn key(load: &Load, name: &str, out: &mut Text) {
    let named = if load.is_plain() { String::new() } else { format!(" @name(\"{name}\")") };
    out.line(&format!("{}: range{named};", read(load)));
}

fn entries(value: &Value, set: &ValueSet) -> Vec<String> {
    match value {
        Value::Narrow(load) => {
            let highest = u128::from(load.highest());
            let possible = set.ranges().iter().filter(|(start, _)| *start <= highest);
            possible.map(|&(start, end)| range(start, end.min(highest))).collect()
        }
        Value::Wide(..) => set.ranges().iter().flat_map(|&(start, end)| wide(start, end)).collect(),
    }
}

fn range(start: u128, end: u128) -> String {
    let [low, high] = [start, end].map(|number| constant(number as u64));
    if start == end { low } else { format!("{low} .. {high}") }
}

/// A range of 128 bits: the part in the first block of 64 bits, whole blocks, and the part in the last one.
fn wide(start: u128, end: u128) -> Vec<String> {
    let entry = |blocks: (u128, u128), part: (u128, u128)| match part {
        (0, LOW) => format!("({}, _)", range(blocks.0, blocks.1)),
        _ => format!("({}, {})", range(blocks.0, blocks.1), range(part.0, part.1)),
    };
    let ((first, from), (last, to)) = ((start >> 64, start & LOW), (end >> 64, end & LOW));
    if first == last {
        return vec![entry((first, first), (from, to))];
    }
    let (is_cut, ends_early) = (from > 0, to < LOW);
    let (begin, stop) = (first + u128::from(is_cut), last - u128::from(ends_early));
    let parts = [
        is_cut.then(|| entry((first, first), (from, LOW))),
        (begin <= stop).then(|| entry((begin, stop), (0, LOW))),
        ends_early.then(|| entry((last, last), (0, to))),
    ];
    parts.into_iter().flatten().collect()
}
