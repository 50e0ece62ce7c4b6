//! Resolves overlapping ranges of a labelled table: the smallest range that holds an address decides
//! (`docs/decisions/0016-overlapping-ranges.md`).
//!
//! Among prefixes the smallest is the longest. Ranges that are disjoint or nested become prefixes, which are looked up
//! by longest match. Ranges that cross are first cut at each other's ends into pieces of one label.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use weir_abi::Family;

use crate::prefix::{Address, Element, Prefix};

/// The addresses `first..=last` with one label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span<A> {
    pub first: A,
    pub last: A,
    pub label: u32,
}

/// The spans of one family that are not one prefix.
#[derive(Clone, Debug)]
pub(crate) enum Spans {
    V4(Vec<Span<u32>>),
    V6(Vec<Span<u128>>),
}

impl<A: Address> Span<A> {
    /// Returns the span of a range that is not one prefix, and the number of prefixes that cover it.
    pub fn of_element(element: &Element<A>, label: u32) -> Option<(Self, usize)> {
        let Element::Range(first, last) = *element else { return None };
        Some((Span { first, last, label }, element.prefix_count())).filter(|(_, count)| *count > 1)
    }

    /// The span as an element.
    pub fn element(&self) -> Element<A> {
        Element::Range(self.first, self.last)
    }

    /// Number of addresses minus one.
    fn size(&self) -> u128 {
        self.last.wide() - self.first.wide()
    }

    fn prefixes(&self, push: impl FnMut(Prefix<A>)) {
        self.element().prefixes(self.label, push);
    }
}

impl<A: Address> From<&Prefix<A>> for Span<A> {
    fn from(prefix: &Prefix<A>) -> Self {
        Span { first: prefix.addr, last: prefix.last(), label: prefix.label }
    }
}

impl<A: Address> fmt::Display for Span<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last) = (self.first.wide(), self.last.wide());
        match A::FAMILY {
            Family::Ipv4 => write!(f, "{}-{}", Ipv4Addr::from(first as u32), Ipv4Addr::from(last as u32)),
            Family::Ipv6 => write!(f, "{}-{}", Ipv6Addr::from(first), Ipv6Addr::from(last)),
        }
    }
}

/// Ranges that cross without one holding the other, where labels differ.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Crossings {
    /// Number of ranges that reach over the end of another.
    pub count: usize,
    /// The first such range, and the range that it crosses.
    pub first: Option<[String; 2]>,
}

/// Turns sorted, distinct prefixes and distinct spans into prefixes. The longest match among them is the smallest of
/// the given ones.
pub(crate) fn resolve<A: Address>(prefixes: &mut Vec<Prefix<A>>, spans: Vec<Span<A>>) -> Crossings {
    let mut all: Vec<Span<A>> = prefixes.iter().map(Span::from).chain(spans).collect();
    all.sort_by_key(|span| (span.first, Reverse(span.last)));
    let (tangles, crossings) = tangles(&all);
    prefixes.clear();
    let mut push = |span: &Span<A>| span.prefixes(|prefix| prefixes.push(prefix));
    let mut apart = 0;
    for &(start, end) in tangles.iter().chain([&(all.len(), all.len())]) {
        all[apart..start].iter().for_each(&mut push);
        untangle(&all[start..end]).iter().for_each(&mut push);
        apart = end;
    }
    // Two nested spans may give the same prefix. The inner one comes later, and the sort is stable. The sort is fast,
    // because disjoint spans are already in order.
    prefixes.sort_by_key(|prefix| prefix.addr.order(prefix.len));
    prefixes.dedup_by(|later, kept| {
        let same = (later.addr, later.len) == (kept.addr, kept.len);
        if same {
            kept.label = later.label;
        }
        same
    });
    crossings
}

/// A span around the current one. Of several that cross, one value stands for all from the first to the last end.
struct Open<A> {
    latest: Span<A>,
    start: usize,
    crosses: bool,
    mixed: bool,
}

/// Finds the runs of spans in which some cross; no run is inside another. The spans are sorted by start, then from
/// large to small.
fn tangles<A: Address>(all: &[Span<A>]) -> (Vec<(usize, usize)>, Crossings) {
    let mut runs = Vec::new();
    let mut crossings = Crossings::default();
    // Open spans, innermost last. The innermost ends first.
    let mut open: Vec<Open<A>> = Vec::new();
    for (at, &span) in all.iter().enumerate() {
        while let Some(ended) = open.pop_if(|open| open.latest.last < span.first) {
            runs.extend(ended.crosses.then_some((ended.start, at)));
        }
        let mut own = Open { latest: span, start: at, crosses: false, mixed: false };
        while let Some(crossed) = open.pop_if(|open| open.latest.last < span.last) {
            own.start = crossed.start;
            own.crosses = true;
            own.mixed |= crossed.mixed || crossed.latest.label != span.label;
            if own.mixed {
                crossings.count += 1;
                crossings.first.get_or_insert_with(|| [crossed.latest.to_string(), span.to_string()]);
            }
        }
        open.push(own);
    }
    runs.extend(open.iter().filter(|open| open.crosses).map(|open| (open.start, all.len())));
    runs.sort_by_key(|&(start, end)| (start, Reverse(end)));
    let mut covered = 0;
    runs.retain(|&(start, end)| {
        let outermost = start >= covered;
        covered = covered.max(end);
        outermost
    });
    (runs, crossings)
}

/// Cuts spans at each other's ends. Each piece gets the label of the smallest span there. Of spans of equal size,
/// the highest one counts.
fn untangle<A: Address>(spans: &[Span<A>]) -> Vec<Span<A>> {
    let mut ends: Vec<A> = spans.iter().flat_map(|span| [Some(span.first), span.last.next()]).flatten().collect();
    ends.sort_unstable();
    ends.dedup();
    let mut waiting = spans.iter().peekable();
    let mut here = BinaryHeap::new();
    let mut pieces: Vec<Span<A>> = Vec::new();
    for (at, &first) in ends.iter().enumerate() {
        while let Some(span) = waiting.next_if(|span| span.first == first) {
            here.push((Reverse(span.size()), span.first, span.last, span.label));
        }
        while here.peek().is_some_and(|&(_, _, last, _)| last < first) {
            here.pop();
        }
        let Some(&(_, _, last, label)) = here.peek() else { continue };
        let last = ends.get(at + 1).map_or(last, |next| next.before());
        match pieces.last_mut() {
            Some(piece) if piece.label == label && piece.last.next() == Some(first) => piece.last = last,
            _ => pieces.push(Span { first, last, label }),
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use crate::entries::{Entries, Kind};
    use proptest::prelude::*;
    use std::net::Ipv4Addr;
    use weir_abi::{Family, Layout};

    fn addr(number: u32) -> std::net::IpAddr {
        Ipv4Addr::from(number).into()
    }

    /// The label of an address by the definition: the label of the smallest span that contains it. Of equal sizes the
    /// highest span wins, of equal spans the latest.
    fn expected(spans: &[(u32, u32, u32)], at: u32) -> u32 {
        let holds = spans.iter().enumerate().filter(|(_, (first, last, _))| *first <= at && at <= *last);
        let smallest = holds.min_by_key(|(order, (first, last, _))| (last - first, !first, usize::MAX - order));
        smallest.map_or(0, |(_, (_, _, label))| *label)
    }

    fn checked(spans: &[(u32, u32, u32)], space: std::ops::Range<u32>) -> Result<usize, TestCaseError> {
        let mut entries = Entries::new(Family::Ipv4, Kind::Labels);
        for label in 1..=9 {
            // Interns the labels, so that ids are in order.
            entries.insert_text("255.255.255.255", Some(&label.to_string())).unwrap();
        }
        for &(first, last, label) in spans {
            entries.insert_range(addr(first), addr(last), Some(&label.to_string())).unwrap();
        }
        let of_entries = entries.reference();
        let table = entries.settle();
        let image = table.build(Layout::RankLeaf).unwrap();
        for at in space {
            let label = expected(spans, at);
            prop_assert_eq!(table.reference().find4(at), label, "{:x}", at);
            prop_assert_eq!(of_entries.find4(at), label, "{:x}", at);
            prop_assert_eq!(image.view().find4(at), label, "{:x}", at);
        }
        Ok(table.facts().crossings.count)
    }

    proptest! {
        #[test]
        fn the_smallest_decides(spans in prop::collection::vec((0u32..80, 0u32..40, 1u32..5), 0..14)) {
            let base = 0x0a00_0000;
            let spans: Vec<_> = spans.iter().map(|&(first, size, label)| (base + first, base + first + size, label)).collect();
            checked(&spans, base..base + 130)?;
        }

        #[test]
        fn also_among_prefixes(spans in prop::collection::vec((0u32..8, 0u32..5, 1u32..5, any::<bool>()), 0..14)) {
            let span = |&(first, host, label, cut): &(u32, u32, u32, bool)| {
                let first = first << host;
                (first + u32::from(cut && host > 0), first + (1 << host) - 1, label)
            };
            checked(&spans.iter().map(span).collect::<Vec<_>>(), 0..130)?;
        }
    }

    #[test]
    fn at_both_ends_of_the_space() {
        let spans = [
            (0, 9, 1),
            (5, 20, 2),
            (u32::MAX - 30, u32::MAX - 2, 3),
            (u32::MAX - 9, u32::MAX - 1, 4),
            (1, u32::MAX - 1, 5),
        ];
        assert_eq!(checked(&spans, 0..40).unwrap(), 2);
        assert_eq!(checked(&spans, u32::MAX - 40..u32::MAX).unwrap(), 2);
        assert_eq!(checked(&[(0, u32::MAX - 1, 1), (1, u32::MAX, 2)], 0..9).unwrap(), 1);
    }

    #[test]
    fn ranges_of_one_label_may_cross() {
        assert_eq!(checked(&[(0, 9, 1), (5, 20, 1), (8, 30, 1), (6, 7, 2)], 0..40).unwrap(), 0);
    }

    /// Many crossings and many levels of nesting both take little time.
    #[test]
    fn many_crossings_take_no_time() {
        let stairs: Vec<_> = (0..20_000).map(|step| (3 * step, 3 * step + 70_000, 1 + step % 4)).collect();
        let onion: Vec<_> = (0..20_000).map(|level| (level + 1, 100_000 - level, 1 + level % 4)).collect();
        assert!(checked(&stairs, 0..9).unwrap() > 10_000);
        assert_eq!(checked(&onion, 0..9).unwrap(), 0);
    }
}
