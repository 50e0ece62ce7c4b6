//! Warns about elements that another element of the same set contains.

use super::Checker;
use super::value::Range;
use crate::diag::Diagnostic;

/// Most overlapping elements that are searched for one that contains another. It bounds the time for hostile sets.
const AROUND_MAX: usize = 64;

/// Whether an element inside a larger one has an effect of its own.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Inner {
    /// It has none: the larger one is always there.
    NoEffect,
    /// It has one: it stays when the larger one leaves a dynamic table, or it counts for itself.
    Counts,
}

impl Checker<'_> {
    /// Warns about an element if the smallest element that contains it has the same label. `labels[i]` belongs to
    /// `ranges[i]`; it is missing in plain sets.
    pub(super) fn warn_of_overlap(&mut self, ranges: &[Range], labels: &[&str], inner: Inner) {
        let label = |i: usize| labels.get(i).copied().unwrap_or_default();
        let mut order: Vec<usize> = (0..ranges.len()).collect();
        order.sort_by_key(|&i| (ranges[i].first, std::cmp::Reverse(ranges[i].last), ranges[i].span));
        // Elements that contain the start of the current one, in order of their start.
        let mut around: Vec<usize> = Vec::new();
        for i in order {
            while around.last().is_some_and(|&outer| ranges[outer].last < ranges[i].first) {
                around.pop();
            }
            // A range that only overlaps the last one may still be inside an earlier one.
            let cover =
                around.iter().rev().take(AROUND_MAX).copied().find(|&outer| ranges[outer].last >= ranges[i].last);
            if let Some(outer) = cover.filter(|&outer| label(outer) == label(i)) {
                let same = ranges[outer].first == ranges[i].first && ranges[outer].last == ranges[i].last;
                if !same && inner == Inner::Counts {
                    around.push(i);
                    continue;
                }
                let message =
                    if same { "this element is written twice" } else { "this element is inside a larger one" };
                self.warn(
                    Diagnostic::warning("W0407", ranges[i].span, message)
                        .note(ranges[outer].span, if same { "first here" } else { "the larger one" })
                        .help("remove it: it has no effect"),
                );
            }
            around.push(i);
        }
    }
}
