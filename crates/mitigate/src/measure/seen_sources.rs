//! Whether a source was ever seen: two Bloom filters. The older one is forgotten when the newer one is full.

use super::slots::hash;
use serde::{Deserialize, Serialize};

/// Bits of a filter. A full one has seen about 2 million sources, with 3 % false answers.
const BITS: usize = 1 << 24;
/// Bits set for each source.
const HASHES: u64 = 4;
/// A filter with this share of its bits set, 1/4, is full: a false answer is then 1/4^4, about 0.4 %.
const FULL: usize = BITS / 4;

/// Sources that were seen lately.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SeenSources {
    filters: [Vec<u64>; 2],
    bits_set: usize,
    seed: u64,
}

impl SeenSources {
    /// No source was seen.
    pub fn new(seed: u64) -> Self {
        SeenSources { filters: [0, 1].map(|_| vec![0; BITS / 64]), bits_set: 0, seed }
    }

    /// Remembers a source by its hash, and returns whether it is new.
    pub fn is_new(&mut self, source: u64) -> bool {
        let bits: [usize; HASHES as usize] =
            std::array::from_fn(|at| (hash(self.seed, &[source, at as u64]) % BITS as u64) as usize);
        let has = |filter: &[u64], bit: usize| filter[bit / 64] >> (bit % 64) & 1 == 1;
        let is_seen = self.filters.iter().any(|filter| bits.iter().all(|&bit| has(filter, bit)));
        for bit in bits {
            if !has(&self.filters[0], bit) {
                self.filters[0][bit / 64] |= 1 << (bit % 64);
                self.bits_set += 1;
            }
        }
        if self.bits_set >= FULL {
            self.filters.swap(0, 1);
            self.filters[0].fill(0);
            self.bits_set = 0;
        }
        !is_seen
    }
}

#[cfg(test)]
mod tests {
    use super::SeenSources;

    #[test]
    fn sources_are_new_once() {
        let mut seen = SeenSources::new(3);
        let first = (0..10_000).filter(|&source| seen.is_new(source)).count();
        assert!(first > 9_990, "{first}");
        assert_eq!((0..10_000).filter(|&source| seen.is_new(source)).count(), 0);
    }
}
