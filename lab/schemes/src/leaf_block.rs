//! The labels of a /24, one for each address.

use weir_tables::flatten::Range;

/// Addresses of a /24, whose labels a leaf of [`crate::sail`] and [`crate::dir24_8`] holds.
pub(crate) const LEAF_BLOCK: usize = 256;

/// The label of each address of the /24 at `first`, in which `ranges` lie. `narrow` converts labels to `T`, which they
/// fit.
pub(crate) fn leaf_block<T: Copy>(first: u32, ranges: &[Range<u32>], narrow: impl Fn(u32) -> T) -> [T; LEAF_BLOCK] {
    let mut labels = [narrow(ranges[0].label); LEAF_BLOCK];
    for range in &ranges[1..] {
        labels[(range.start - first) as usize..].fill(narrow(range.label));
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaf_blocks_spell_ranges_out() {
        let ranges = [(5, 7), (0x103, 0), (0x1ff, 9)].map(|(start, label)| Range { start, label });
        let labels = leaf_block(0x100, &ranges, |label| label as u8);
        assert_eq!((&labels[..4], labels[254], labels[255]), (&[7, 7, 7, 0][..], 0, 9));
    }
}
