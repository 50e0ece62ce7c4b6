//! Elements that stand inside a bigger one of the same set.

use super::Checker;
use super::value::Range;
use crate::diag::Diagnostic;

/// Overlapping elements looked at for one that covers another; a bound, for sets made to be slow.
const AROUND_MAX: usize = 64;

impl Checker<'_> {
    /// Warns of elements that add nothing: the smallest one that covers them says the same. `labels[i]` belongs to `ranges[i]`;
    /// it is empty for plain sets.
    pub(super) fn warn_of_overlap(&mut self, ranges: &[Range], labels: &[&str]) {
        let label = |i: usize| labels.get(i).copied().unwrap_or_default();
        let mut order: Vec<usize> = (0..ranges.len()).collect();
        order.sort_by_key(|&i| (ranges[i].first, std::cmp::Reverse(ranges[i].last), ranges[i].span));
        // Elements that cover the place, each inside the one before it.
        let mut around: Vec<usize> = Vec::new();
        for i in order {
            while around.last().is_some_and(|&outer| ranges[outer].last < ranges[i].first) {
                around.pop();
            }
            // A range that only overlaps the last one may still be inside the one before.
            let cover =
                around.iter().rev().take(AROUND_MAX).copied().find(|&outer| ranges[outer].last >= ranges[i].last);
            if let Some(outer) = cover.filter(|&outer| label(outer) == label(i)) {
                let same = ranges[outer].first == ranges[i].first && ranges[outer].last == ranges[i].last;
                let message =
                    if same { "this element is written twice" } else { "this element is inside a bigger one" };
                self.warn(
                    Diagnostic::warning("W0407", ranges[i].span, message)
                        .note(ranges[outer].span, if same { "first here" } else { "the bigger one" })
                        .help("remove it: it changes nothing"),
                );
            }
            around.push(i);
        }
    }
}
