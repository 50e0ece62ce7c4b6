//! Flattens overlapping prefixes into disjoint ranges, so that longest prefix match is resolved once, at build time.

use crate::prefix::{Address, Prefix};

/// Addresses of one label, from `start` up to the start of the next range. Label 0 is a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range<A> {
    /// The first address.
    pub start: A,
    /// The label; 0 if no prefix holds the addresses.
    pub label: u32,
}

/// Divides the whole address space into the ranges of sorted, distinct prefixes (see [`Address::order`]).
///
/// The first range starts at 0, and neighbours differ in label. There are at most two ranges per prefix, plus one.
pub fn flatten<A: Address>(prefixes: &[Prefix<A>]) -> Vec<Range<A>> {
    let mut ranges = Vec::with_capacity(prefixes.len() + prefixes.len() / 2 + 1);
    ranges.push(Range { start: A::ZERO, label: 0 });
    // The prefixes around the current one, innermost last. There is at most one per length.
    let mut open: Vec<(A, u32)> = Vec::with_capacity(usize::from(A::FAMILY.bits()) + 1);
    for prefix in prefixes {
        while let Some(&(last, _)) = open.last()
            && last < prefix.addr
        {
            close(&mut ranges, &mut open);
        }
        push(&mut ranges, prefix.addr, prefix.label);
        open.push((prefix.last(), prefix.label));
    }
    while !open.is_empty() {
        close(&mut ranges, &mut open);
    }
    ranges
}

/// Closes the innermost open prefix. The addresses after it belong to the prefix around it.
fn close<A: Address>(ranges: &mut Vec<Range<A>>, open: &mut Vec<(A, u32)>) {
    if let Some((last, _)) = open.pop()
        && let Some(start) = last.next()
    {
        push(ranges, start, open.last().map_or(0, |&(_, label)| label));
    }
}

fn push<A: Address>(ranges: &mut Vec<Range<A>>, start: A, label: u32) {
    if ranges.last().is_some_and(|last| last.start == start) {
        ranges.pop();
    }
    if ranges.last().is_none_or(|last| last.label != label) {
        ranges.push(Range { start, label });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flat(prefixes: &[(u32, u8, u32)]) -> Vec<(u32, u32)> {
        let prefixes: Vec<_> = prefixes.iter().map(|&(addr, len, label)| Prefix::new(addr, len, label)).collect();
        flatten(&prefixes).into_iter().map(|range| (range.start, range.label)).collect()
    }

    #[test]
    fn nothing_is_one_gap() {
        assert_eq!(flat(&[]), [(0, 0)]);
    }

    #[test]
    fn nested_prefixes_return_to_what_is_around() {
        assert_eq!(
            flat(&[(0x0a00_0000, 8, 1), (0x0a01_0000, 16, 2), (0x0a01_0100, 24, 1)]),
            [
                (0, 0),
                (0x0a00_0000, 1),
                (0x0a01_0000, 2),
                (0x0a01_0100, 1),
                (0x0a01_0200, 2),
                (0x0a02_0000, 1),
                (0x0b00_0000, 0)
            ]
        );
    }

    #[test]
    fn neighbours_of_one_label_merge() {
        assert_eq!(flat(&[(0, 1, 3), (0x8000_0000, 1, 3)]), [(0, 3)]);
        assert_eq!(flat(&[(0, 0, 3), (5, 32, 3)]), [(0, 3)]);
    }

    #[test]
    fn the_last_address_ends_the_space() {
        assert_eq!(flat(&[(0, 0, 1), (u32::MAX, 32, 2)]), [(0, 1), (u32::MAX, 2)]);
    }

    #[test]
    fn a_longer_prefix_at_the_same_start_replaces_and_merges() {
        assert_eq!(flat(&[(0, 0, 1), (0, 8, 0), (0, 32, 1)]), [(0, 1), (1, 0), (0x0100_0000, 1)]);
    }
}
