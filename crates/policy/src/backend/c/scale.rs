//! Constants in C, and comparisons with them: of one value, or as masks of a burst.

use crate::field::{Answer, Notation, Subject};
use crate::ir::ValueSet;

/// A constant, hexadecimal for bits and addresses, with a suffix where C needs one.
pub(super) fn number(value: u128, hexadecimal: bool) -> String {
    let suffix = match value {
        0..=0x7fff_ffff => "",
        0x8000_0000..=0xffff_ffff => "U",
        _ => "ULL",
    };
    if hexadecimal { format!("{value:#x}{suffix}") } else { format!("{value}{suffix}") }
}

/// The notation of the constants that a value is compared with.
#[derive(Clone, Copy)]
pub(super) struct Scale {
    /// The highest possible value.
    pub(super) highest: u128,
    /// Whether constants are hexadecimal, as for bits and addresses.
    pub(super) hexadecimal: bool,
}

impl Scale {
    pub(super) fn of(subject: Subject, mask: Option<u128>) -> Self {
        let bits = match subject {
            Subject::Raw(_) => true,
            Subject::Field(field) | Subject::Card(Answer::Field(field)) => field.notation() == Notation::Ipv4Address,
            Subject::Card(_) => false,
        };
        Scale { highest: u128::MAX >> (128 - subject.bits()), hexadecimal: bits || mask.is_some() }
    }

    pub(super) fn constant(self, value: u128) -> String {
        number(value, self.hexadecimal)
    }

    /// `x == 22`, `x >= 80 && x <= 90`.
    fn inside(self, value: &str, start: u128, end: u128) -> String {
        let (low, high) = (self.constant(start), self.constant(end));
        match (start, end) {
            _ if start == end => format!("{value} == {low}"),
            (0, _) if end >= self.highest => "true".to_owned(),
            (0, _) => format!("{value} <= {high}"),
            _ if end >= self.highest => format!("{value} >= {low}"),
            _ => format!("{value} >= {low} && {value} <= {high}"),
        }
    }

    fn outside(self, value: &str, start: u128, end: u128) -> String {
        let (low, high) = (self.constant(start), self.constant(end));
        match (start, end) {
            _ if start == end => format!("{value} != {low}"),
            (0, _) => format!("{value} > {high}"),
            _ if end >= self.highest => format!("{value} < {low}"),
            _ => format!("({value} < {low} || {value} > {high})"),
        }
    }

    /// A term of an `&&`: whether the value is in the set, inverted if `negated`.
    pub(super) fn compare(self, value: &str, set: &ValueSet, negated: bool) -> String {
        match set.ranges() {
            [] => if negated { "true" } else { "false" }.to_owned(),
            &[(start, end)] if negated => self.outside(value, start, end),
            &[(start, end)] => self.inside(value, start, end),
            ranges => {
                let tests = ranges.iter().map(|&(start, end)| match self.inside(value, start, end) {
                    test if test.contains(" && ") => format!("({test})"),
                    test => test,
                });
                let tests = tests.collect::<Vec<_>>().join(" || ");
                format!("{}({tests})", if negated { "!" } else { "" })
            }
        }
    }
}

/// The mask of every packet. Rules intersect masks with the open packets.
pub(super) const ALL: &str = "UINT64_MAX";

/// The mask of packets whose value is in the set, inverted if `negated`. `inside` gives the mask for one range.
pub(super) fn in_set(set: &ValueSet, negated: bool, inside: impl Fn(u128, u128) -> String) -> String {
    let not = if negated { "~" } else { "" };
    let ranges: Vec<String> = set.ranges().iter().map(|&(start, end)| inside(start, end)).collect();
    match ranges.as_slice() {
        [] => if negated { ALL } else { "0" }.to_owned(),
        [one] => format!("{not}{one}"),
        many => format!("{not}({})", many.join(" | ")),
    }
}
