//! Expressions of P4: places, values with casts, and conditions.
//!
//! Operands of `||` are compared with `<` and `>`, those of `&&` with `<=` and `>=`. p4c-dpdk jumps too early at the
//! others: it has no instruction for their opposite.

use super::model::{Assign, Load, Operator, Place, Source, Term, Value};
use super::sets::Sets;
use crate::ir::ValueSet;

/// A place as it is written.
pub(super) fn write(place: &Place) -> String {
    match place.metadata() {
        Some(name) => format!("meta.{name}"),
        None => format!("hdr.{}", place.path.trim_start_matches("h.")),
    }
}

/// A value in the width of its place.
pub(super) fn read(load: &Load) -> String {
    bits(write(&load.place), load)
}

/// Shifts and masks a value.
fn bits(mut value: String, load: &Load) -> String {
    match load.shift {
        0 => {}
        1.. => value = format!("({value} >> {})", load.shift),
        _ => value = format!("({value} << {})", -load.shift),
    }
    match load.mask {
        Some(mask) => format!("({value} & {mask:#x})"),
        None => value,
    }
}

/// A value in another width. It is widened before it is shifted, and narrowed after.
fn cast(load: &Load, width: u16) -> String {
    match load.place.bits {
        own if own == width => read(load),
        own if own < width => bits(format!("(bit<{width}>) {}", write(&load.place)), load),
        _ => format!("(bit<{width}>) {}", read(load)),
    }
}

/// The right side of an assignment, or an argument.
pub(super) fn source(source: &Source, width: u16) -> String {
    match source {
        Source::Constant(number) => number.to_string(),
        Source::Load(load) => {
            let value = cast(load, width);
            // No parentheses around the whole.
            let whole = value.strip_prefix('(').and_then(|inner| inner.strip_suffix(')'));
            whole.filter(|inner| is_balanced(inner)).map_or(value.clone(), str::to_owned)
        }
    }
}

/// Whether each closing parenthesis has an opening one before it.
fn is_balanced(text: &str) -> bool {
    let mut depth = 0i32;
    text.chars().all(|c| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        depth >= 0
    })
}

/// An assignment as a statement.
pub(super) fn assignment(Assign { to, operator, from }: &Assign) -> String {
    let (place, value) = (write(to), source(from, to.bits));
    match operator {
        Operator::Set => format!("{place} = {value};"),
        Operator::Add => format!("{place} = {place} + {value};"),
        Operator::Subtract => format!("{place} = {place} - {value};"),
        Operator::Or => format!("{place} = {place} | {value};"),
    }
}

/// Terms that must all hold.
pub(super) fn condition(terms: &[Term], sets: &Sets<'_>) -> String {
    match terms {
        [] => "true".to_owned(),
        [only] => term(only, sets),
        _ => {
            let several = terms.iter().map(|each| {
                let text = term(each, sets);
                if text.contains(" || ") && !is_negated(&text) { format!("({text})") } else { text }
            });
            several.collect::<Vec<_>>().join(" && ")
        }
    }
}

/// Whether a negation covers the whole text.
fn is_negated(text: &str) -> bool {
    text.strip_prefix("!(").and_then(|rest| rest.strip_suffix(')')).is_some_and(is_balanced)
}

fn term(term: &Term, sets: &Sets<'_>) -> String {
    if let Term::In { value, set, negated } = term
        && let Some(name) = sets.name(value, set)
    {
        return format!("{}{name}.apply().hit", if *negated { "!" } else { "" });
    }
    match term {
        Term::Above(place, limit) => {
            let width = place.bits.max(limit.bits);
            format!("{} > {}", cast(&place.load(), width), cast(&limit.load(), width))
        }
        Term::In { value: Value::Narrow(load), set, negated } => {
            let (value, highest) = (read(load), load.highest());
            let inside = |range, beside| narrow(&value, highest, range, beside);
            match (set.ranges(), *negated) {
                ([(number, end)], true) if number == end && *number <= highest.into() => {
                    format!("{value} != {}", constant(*number as u64))
                }
                ([range], true) => either(&outside(*range, highest.into()), false, inside),
                _ => either(set, *negated, inside),
            }
        }
        Term::In { value: Value::Wide(hi, lo), set, negated } => {
            let (hi, lo) = (read(hi), read(lo));
            either(set, *negated, |range, beside| Some(wide(&hi, &lo, range, beside)))
        }
    }
}

/// The values that are not in a range.
fn outside((start, end): (u128, u128), highest: u128) -> ValueSet {
    let below = start.checked_sub(1).map(|last| (0, last.min(highest)));
    let above = (end < highest).then(|| (end + 1, highest));
    ValueSet::new(below.into_iter().chain(above))
}

/// What a comparison is an operand of.
#[derive(Clone, Copy)]
enum Beside {
    /// `&&`, or nothing.
    And,
    /// `||`
    Or,
}

/// Whether a value is in one of the ranges, inverted if `negated`. `inside` is `None` if no value can be in a range.
fn either(set: &ValueSet, negated: bool, inside: impl Fn((u128, u128), Beside) -> Option<String>) -> String {
    let tests = |beside| set.ranges().iter().filter_map(|&range| inside(range, beside)).collect::<Vec<String>>();
    let tests = match tests(Beside::Or) {
        many if many.len() > 1 => many,
        _ => tests(Beside::And),
    };
    let one = match tests.as_slice() {
        [] => return negated.to_string(),
        [one] => one.clone(),
        many => {
            let grouped = many.iter().map(|test| match test.contains(" && ") {
                true => format!("({test})"),
                false => test.clone(),
            });
            grouped.collect::<Vec<_>>().join(" || ")
        }
    };
    if negated { format!("!({one})") } else { one }
}

fn narrow(value: &str, highest: u64, (start, end): (u128, u128), beside: Beside) -> Option<String> {
    let start = u64::try_from(start).ok().filter(|start| *start <= highest)?;
    let end = u64::try_from(end).unwrap_or(u64::MAX).min(highest);
    Some(between(value, (start, end), highest, beside))
}

/// Whether a value that is at most `highest` is in a range.
fn between(value: &str, (start, end): (u64, u64), highest: u64, beside: Beside) -> String {
    let (low, high) = (constant(start), constant(end));
    match (start, end, beside) {
        _ if start == end => format!("{value} == {low}"),
        (0, _, _) if end == highest => "true".to_owned(),
        (0, _, Beside::And) => format!("{value} <= {high}"),
        (0, _, Beside::Or) => format!("{value} < {}", constant(end + 1)),
        (_, _, Beside::And) if end == highest => format!("{value} >= {low}"),
        (_, _, Beside::Or) if end == highest => format!("{value} > {}", constant(start - 1)),
        _ => format!("{value} >= {low} && {value} <= {high}"),
    }
}

/// Ports and small numbers are decimal, addresses and other large ones hexadecimal.
pub(super) fn constant(number: u64) -> String {
    if number > u16::MAX.into() { format!("{number:#x}") } else { number.to_string() }
}

/// Whether a value of two halves is in a range.
fn wide(hi: &str, lo: &str, (start, end): (u128, u128), beside: Beside) -> String {
    let halves = |number: u128| ((number >> 64) as u64, number as u64);
    let ((start_hi, start_lo), (end_hi, end_lo)) = (halves(start), halves(end));
    if start_lo == 0 && end_lo == u64::MAX {
        return between(hi, (start_hi, end_hi), u64::MAX, beside);
    }
    if start_hi == end_hi {
        let same = between(hi, (start_hi, end_hi), u64::MAX, Beside::And);
        return format!("{same} && {}", between(lo, (start_lo, end_lo), u64::MAX, Beside::And));
    }
    let [sh, sl, eh, el] = [start_hi, start_lo, end_hi, end_lo].map(constant);
    format!("({hi} > {sh} || ({hi} == {sh} && {lo} >= {sl})) && ({hi} < {eh} || ({hi} == {eh} && {lo} <= {el}))")
}
