//! The Internet checksum (RFC 1071), and its incremental update (RFC 1624).

/// Adds bytes to a sum, as big-endian words. An odd last byte is the upper half of a word.
pub(super) fn sum(start: u32, bytes: &[u8]) -> u32 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
    bytes.chunks(2).fold(start, |sum, pair| sum + word(pair))
}

/// Adds the carries.
pub(super) fn folded(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// The checksum after a change of words: HC' = ~(~HC + ~m + m') (RFC 1624, section 3). A wrong checksum stays wrong.
pub(super) fn updated(checksum: u16, old: &[u8], new: &[u8]) -> u16 {
    let inverted: Vec<u8> = old.iter().map(|byte| !byte).collect();
    !folded(sum(sum((!checksum).into(), &inverted), new))
}

#[cfg(test)]
mod tests {
    use super::{folded, sum, updated};

    #[test]
    fn an_update_is_a_new_sum() {
        let mut bytes: Vec<u8> = (0..40_u32).map(|nth| (nth * 37) as u8).collect();
        let before = !folded(sum(0, &bytes));
        for at in (0..40).step_by(2) {
            let old = bytes.clone();
            bytes[at..at + 2].copy_from_slice(&[0xff, (at * 3) as u8]);
            let checksum = !folded(sum(0, &old));
            assert_eq!(updated(checksum, &old[at..at + 2], &bytes[at..at + 2]), !folded(sum(0, &bytes)));
            assert_ne!(updated(checksum ^ 1, &old[at..at + 2], &bytes[at..at + 2]), !folded(sum(0, &bytes)));
        }
        assert_ne!(before, !folded(sum(0, &bytes)));
    }

    /// The example of RFC 1624, section 4.
    #[test]
    fn the_example_of_the_rfc() {
        assert_eq!(updated(0xdd2f, &[0x55, 0x55], &[0x32, 0x85]), 0x0000);
    }
}
