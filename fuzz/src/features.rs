//! Fuzz target for the layout of features: which cell counts an address.

use std::collections::BTreeMap;
use weir_abi::FeatureShape;
use weir_abi::features::{GROUP, HEADS, RECENTS, RECORDS, REPLAY_SEED, group_of};

/// Ranges of protected addresses of an input.
const RANGES_MAX: u8 = 8;
/// Cells of an input: 64 to 4096.
const SIZE_BITS: [u8; 2] = [6, 12];

/// Each prefix of protected addresses has a cell of its own, or a group; and the parts of a sheet do not overlap.
pub(crate) fn feature_layout(data: &[u8]) {
    let mut input = Input(data);
    let size = 1 << (SIZE_BITS[0] + input.below(SIZE_BITS[1] - SIZE_BITS[0] + 1));
    let lengths = [input.below(33), input.below(129)];
    let inside = input.inside();
    let shape = FeatureShape::new(size, lengths, [&inside[0], &inside[1]]);

    assert_eq!((shape.cells_at(0), shape.cells_at(1)), (HEADS, HEADS + shape.size as usize));
    assert_eq!((shape.keys_at(0), shape.keys_at(1)), (shape.cells_at(2), shape.cells_at(2) + shape.groups()));
    assert_eq!((shape.recents_at(0), shape.recents_at(1)), (shape.keys_at(2), shape.keys_at(2) + shape.recents()));
    assert_eq!((shape.records_at(0), shape.records_at(1)), (shape.recents_at(2), shape.recents_at(2) + RECORDS));
    assert_eq!(shape.elements(), shape.records_at(2));
    if shape.is_direct() {
        own_cells(&shape, size, &inside);
    } else {
        assert_eq!(
            (shape.size, shape.groups() * GROUP, shape.recents() * RECENTS),
            (size, size as usize, size as usize)
        );
        for (is_ipv6, ranges) in [false, true].into_iter().zip(&inside) {
            for &(first, last) in ranges {
                let group = |address| group_of(REPLAY_SEED, shape.key(is_ipv6, address), shape.groups());
                assert!(group(first) < shape.groups() && group(last) < shape.groups());
                assert_eq!(shape.cell(is_ipv6, first), None);
            }
        }
    }
}

/// Cells and prefixes are the same in number, and each cell belongs to one prefix.
fn own_cells(shape: &FeatureShape, size: u32, inside: &[Vec<(u128, u128)>; 2]) {
    assert!(shape.size <= size && shape.groups() == 0 && shape.recents() == 0);
    assert_eq!(shape.ranges.len(), inside[0].len() + inside[1].len());
    let mut prefixes: BTreeMap<usize, [u64; 2]> = BTreeMap::new();
    for range in &shape.ranges {
        for (number, key) in shape.keys(range).enumerate() {
            let known = *prefixes.entry(range.place as usize + number).or_insert(key);
            assert_eq!(known, key, "two ranges share a cell if they share a prefix");
        }
        for address in [range.first, range.first + (range.last - range.first) / 2, range.last] {
            let cell = shape.cell(range.is_ipv6, address).expect("it is inside");
            assert_eq!(prefixes.get(&cell), Some(&shape.key(range.is_ipv6, address)));
        }
    }
    assert!(prefixes.keys().copied().eq(0..shape.size as usize), "no cell is unused");
    let mut keys: Vec<[u64; 2]> = prefixes.into_values().collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), shape.size as usize, "a prefix has one cell");
}

struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn below(&mut self, bound: u8) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        first % bound
    }

    fn number(&mut self, bytes: u32) -> u128 {
        (0..bytes).fold(0, |number, _| number << 8 | u128::from(self.below(u8::MAX)))
    }

    /// Disjoint ranges in order, of IPv4 and IPv6, as the checker makes them.
    fn inside(&mut self) -> [Vec<(u128, u128)>; 2] {
        let mut inside: [Vec<(u128, u128)>; 2] = Default::default();
        for _ in 0..self.below(RANGES_MAX + 1) {
            let family = self.below(2);
            // Both ends of an IPv6 address, so that prefixes of all lengths differ.
            let (first, end) = match family {
                0 => (self.number(4), u128::from(u32::MAX)),
                _ => (self.number(4) << 96 | self.number(3) << 60 | self.number(2), u128::MAX),
            };
            let bits = self.below(if family == 0 { 32 } else { 128 });
            let span = (1u128 << bits) - 1 + self.number(1);
            inside[usize::from(family)].push((first, first.saturating_add(span).min(end)));
        }
        for ranges in &mut inside {
            ranges.sort_unstable();
            let mut next = 0;
            ranges.retain(|&(first, last)| {
                let is_disjoint = first >= next;
                next = if is_disjoint { last.saturating_add(1) } else { next };
                is_disjoint
            });
        }
        inside
    }
}
