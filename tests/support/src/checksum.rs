//! The Internet checksum (RFC 1071).

/// Ones' complement of the ones' complement sum of big-endian 16-bit words. An odd last byte is padded with 0.
pub fn internet(parts: &[&[u8]]) -> u16 {
    let mut sum = 0u64;
    for part in parts {
        for word in part.chunks(2) {
            sum += u64::from(word[0]) << 8 | u64::from(word.get(1).copied().unwrap_or(0));
        }
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::internet;

    #[test]
    fn example_of_rfc_1071() {
        assert_eq!(internet(&[&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]]), !0xddf2);
    }

    #[test]
    fn parts_join_and_odd_bytes_are_padded() {
        assert_eq!(internet(&[&[1, 2], &[3]]), internet(&[&[1, 2, 3, 0]]));
    }
}
