//! The ranges of [`flatten`](crate::flatten::flatten), cut at the borders of equal, aligned blocks. A table that is
//! indexed by leading bits is filled from them.

use crate::flatten::Range;

/// Iterates over blocks of 2^`bits` addresses, in order. Yields the first address of each, and the ranges that reach
/// into it.
///
/// A block has at least one range, which may start before it. If there is only one range, all addresses have its label.
pub struct Blocks<'a> {
    ranges: &'a [Range<u32>],
    /// The first address of the next block; `None` after the end of the address space.
    first: Option<u32>,
    host_mask: u32,
}

impl<'a> Blocks<'a> {
    /// Blocks from `first`, a multiple of 2^`bits`, to the end of the address space. The first of `ranges` holds
    /// `first`, and the last one is treated as endless. `bits` is less than 32.
    pub fn new(ranges: &'a [Range<u32>], first: u32, bits: u32) -> Self {
        Blocks { ranges, first: Some(first), host_mask: (1 << bits) - 1 }
    }
}

impl<'a> Iterator for Blocks<'a> {
    type Item = (u32, &'a [Range<u32>]);

    fn next(&mut self) -> Option<Self::Item> {
        let first = self.first?;
        let last = first | self.host_mask;
        let later = self.ranges[1..].iter().take_while(|range| range.start <= last).count();
        let block = &self.ranges[..=later];
        self.first = last.checked_add(1);
        // The last range of a block reaches into the next block, unless another range starts there.
        let next_starts = self.ranges.get(later + 1).is_some_and(|range| Some(range.start) == self.first);
        self.ranges = &self.ranges[later + usize::from(next_starts)..];
        Some((first, block))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_cut_ranges() {
        let ranges = [(0, 0), (0x4000_0005, 1), (0x8000_0000, 2), (0xc000_0000, 3), (u32::MAX, 4)];
        let ranges = ranges.map(|(start, label)| Range { start, label });
        let labels: Vec<(u32, Vec<u32>)> = Blocks::new(&ranges, 0, 30)
            .map(|(first, block)| (first >> 30, block.iter().map(|range| range.label).collect()))
            .collect();
        assert_eq!(labels, [(0, vec![0]), (1, vec![0, 1]), (2, vec![2]), (3, vec![3, 4])]);
    }
}
