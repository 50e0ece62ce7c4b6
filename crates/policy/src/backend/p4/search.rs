//! Comparisons of a value with a set as jumps. A large set is searched: the number of executed jumps is logarithmic.

use super::lines::{Label, Lines};
use super::model::{Load, Place};
use crate::ir::ValueSet;

/// Most ranges that are compared one after the other.
const LINEAR: usize = 3;

/// Where a comparison leads, and which of both comes next.
#[derive(Clone, Copy)]
pub(super) struct Ways {
    pub(super) inside: Label,
    pub(super) outside: Label,
    /// The label that is bound behind the comparison, if it is one of both.
    pub(super) next: Option<Label>,
}

impl Ways {
    fn end(self, lines: &mut Lines, to: Label) {
        if self.next != Some(to) {
            lines.jump("jmp", to, "");
        }
    }
}

/// Compares a value of at most 64 bits.
pub(super) fn narrow(lines: &mut Lines, load: &Load, set: &ValueSet, ways: Ways) {
    let highest = load.highest();
    let place = lines.whole(load);
    let ranges: Vec<(u64, u64)> = set
        .ranges()
        .iter()
        .filter(|&&(start, _)| start <= highest.into())
        .map(|&(start, end)| (start as u64, u64::try_from(end).unwrap_or(u64::MAX).min(highest)))
        .collect();
    search(lines, &place, &ranges, (0, highest), ways);
}

/// `bounds` are the lowest and the highest value that can come here.
fn search(lines: &mut Lines, place: &Place, ranges: &[(u64, u64)], bounds: (u64, u64), ways: Ways) {
    if ranges.len() > LINEAR {
        let middle = ranges.len() / 2;
        let (below, above) = ranges.split_at(middle);
        let (start, left) = (above[0].0, lines.label());
        lines.jump("jmplt", left, &format!("{} {start:#x}", place.path));
        search(lines, place, above, (start, bounds.1), Ways { next: None, ..ways });
        lines.bind(left);
        return search(lines, place, below, (bounds.0, start - 1), ways);
    }
    let path = &place.path;
    let mut lowest = bounds.0;
    for (index, &(start, end)) in ranges.iter().enumerate() {
        let is_last = index + 1 == ranges.len();
        if is_last && ways.next == Some(ways.inside) {
            return last(lines, path, (start, end), (lowest, bounds.1), ways.outside);
        }
        if start == end && !(start == lowest && end == bounds.1) {
            lines.jump("jmpeq", ways.inside, &format!("{path} {start:#x}"));
            lowest = if start == lowest { end + 1 } else { lowest };
            continue;
        }
        if start > lowest {
            lines.jump("jmplt", ways.outside, &format!("{path} {start:#x}"));
        }
        if end >= bounds.1 {
            return ways.end(lines, ways.inside);
        }
        lines.jump("jmplt", ways.inside, &format!("{path} {:#x}", end + 1));
        lowest = end + 1;
    }
    ways.end(lines, ways.outside);
}

/// The last range, behind which values inside go on.
fn last(lines: &mut Lines, path: &str, (start, end): (u64, u64), bounds: (u64, u64), outside: Label) {
    if start == end && bounds != (start, end) {
        return lines.jump("jmpneq", outside, &format!("{path} {start:#x}"));
    }
    if start > bounds.0 {
        lines.jump("jmplt", outside, &format!("{path} {start:#x}"));
    }
    if end < bounds.1 {
        lines.jump("jmpgt", outside, &format!("{path} {end:#x}"));
    }
}

const LOW: u128 = u64::MAX as u128;

/// Compares a value of 128 bits.
pub(super) fn wide(lines: &mut Lines, (hi, lo): (&Load, &Load), set: &ValueSet, ways: Ways) {
    let places = (lines.whole(hi), lines.whole_lo(lo));
    wide_search(lines, &places, set.ranges(), ways);
}

fn wide_search(lines: &mut Lines, places: &(Place, Place), ranges: &[(u128, u128)], ways: Ways) {
    let (hi, lo) = (&places.0.path, &places.1.path);
    if ranges.len() > 1 {
        let (below, above) = ranges.split_at(ranges.len() / 2);
        let (start, left, right) = (above[0].0, lines.label(), lines.label());
        lines.jump("jmplt", left, &format!("{hi} {:#x}", start >> 64));
        if start & LOW != 0 {
            lines.jump("jmpgt", right, &format!("{hi} {:#x}", start >> 64));
            lines.jump("jmplt", left, &format!("{lo} {:#x}", start & LOW));
        }
        lines.bind(right);
        wide_search(lines, places, above, Ways { next: None, ..ways });
        lines.bind(left);
        return wide_search(lines, places, below, ways);
    }
    let Some(&(start, end)) = ranges.first() else { return ways.end(lines, ways.outside) };
    let ([start_hi, start_lo], [end_hi, end_lo]) = ([start >> 64, start & LOW], [end >> 64, end & LOW]);
    if start_hi == end_hi {
        lines.jump("jmpneq", ways.outside, &format!("{hi} {start_hi:#x}"));
        if start_lo == end_lo {
            lines.jump("jmpneq", ways.outside, &format!("{lo} {start_lo:#x}"));
            return ways.end(lines, ways.inside);
        }
        if start_lo > 0 {
            lines.jump("jmplt", ways.outside, &format!("{lo} {start_lo:#x}"));
        }
        if end_lo < LOW {
            lines.jump("jmpgt", ways.outside, &format!("{lo} {end_lo:#x}"));
        }
        return ways.end(lines, ways.inside);
    }
    if start_hi > 0 {
        lines.jump("jmplt", ways.outside, &format!("{hi} {start_hi:#x}"));
    }
    if start_lo > 0 {
        let from = lines.label();
        lines.jump("jmpgt", from, &format!("{hi} {start_hi:#x}"));
        lines.jump("jmplt", ways.outside, &format!("{lo} {start_lo:#x}"));
        lines.bind(from);
    }
    if end_hi < LOW {
        lines.jump("jmpgt", ways.outside, &format!("{hi} {end_hi:#x}"));
    }
    if end_lo < LOW {
        lines.jump("jmplt", ways.inside, &format!("{hi} {end_hi:#x}"));
        lines.jump("jmpgt", ways.outside, &format!("{lo} {end_lo:#x}"));
    }
    ways.end(lines, ways.inside);
}
