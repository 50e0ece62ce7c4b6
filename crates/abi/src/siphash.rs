//! SipHash-2-4 (Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012) of messages of whole words.
//!
//! A message of n words is one of 8n bytes, each word with its lowest byte first. `datapath/core/siphash.h` is the
//! same in C.

/// The state of the function.
#[derive(Clone, Copy)]
struct State([u64; 4]);

impl State {
    const fn round(self) -> Self {
        let State([mut a, mut b, mut c, mut d]) = self;
        a = a.wrapping_add(b);
        b = b.rotate_left(13) ^ a;
        a = a.rotate_left(32);
        c = c.wrapping_add(d);
        d = d.rotate_left(16) ^ c;
        a = a.wrapping_add(d);
        d = d.rotate_left(21) ^ a;
        c = c.wrapping_add(b);
        b = b.rotate_left(17) ^ c;
        c = c.rotate_left(32);
        State([a, b, c, d])
    }

    const fn compress(self, word: u64) -> Self {
        let State([a, b, c, d]) = self;
        let State([a, b, c, d]) = State([a, b, c, d ^ word]).round().round();
        State([a ^ word, b, c, d])
    }
}

/// The hash of a message.
pub const fn siphash<const WORDS: usize>(key: [u64; 2], message: &[u64; WORDS]) -> u64 {
    let [k0, k1] = key;
    let mut state = State([
        k0 ^ 0x736f_6d65_7073_6575,
        k1 ^ 0x646f_7261_6e64_6f6d,
        k0 ^ 0x6c79_6765_6e65_7261,
        k1 ^ 0x7465_6462_7974_6573,
    ]);
    let mut index = 0;
    while index < WORDS {
        state = state.compress(message[index]);
        index += 1;
    }
    // The last word has the number of bytes modulo 256 on top, and no further bytes of the message.
    let State([a, b, c, d]) = state.compress((WORDS as u64) << 59);
    let State([a, b, c, d]) = State([a, b, c ^ 0xff, d]).round().round().round().round();
    a ^ b ^ c ^ d
}

#[cfg(test)]
mod tests {
    use super::siphash;
    use std::hash::Hasher;

    /// The key and the messages of the authors' vectors: bytes 0, 1, 2, and so on.
    const KEY: [u64; 2] = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];

    fn message<const WORDS: usize>() -> [u64; WORDS] {
        std::array::from_fn(|word| u64::from_le_bytes(std::array::from_fn(|byte| (8 * word + byte) as u8)))
    }

    #[test]
    fn published_vectors() {
        assert_eq!(siphash(KEY, &message::<0>()).to_le_bytes(), [0x31, 0x0e, 0x0e, 0xdd, 0x47, 0xdb, 0x6f, 0x72]);
        assert_eq!(siphash(KEY, &message::<1>()).to_le_bytes(), [0x62, 0x24, 0x93, 0x9a, 0x79, 0xf5, 0xf5, 0x93]);
        assert_eq!(siphash(KEY, &message::<2>()).to_le_bytes(), [0xdb, 0x9b, 0xc2, 0x57, 0x7f, 0xcc, 0x2a, 0x3f]);
    }

    /// The standard library has the same function of bytes, and of any key.
    #[test]
    #[allow(deprecated, reason = "it is SipHash-2-4, and its successor is another function")]
    fn the_standard_library_agrees() {
        for nth in 0..1000_u64 {
            let key = [nth.wrapping_mul(0x9e37_79b9_7f4a_7c15), !nth];
            let words: [u64; 7] = std::array::from_fn(|word| nth.wrapping_mul(word as u64 + 1).rotate_left(17));
            let mut hasher = std::hash::SipHasher::new_with_keys(key[0], key[1]);
            words.iter().for_each(|word| hasher.write(&word.to_le_bytes()));
            assert_eq!(siphash(key, &words), hasher.finish());
        }
    }
}
