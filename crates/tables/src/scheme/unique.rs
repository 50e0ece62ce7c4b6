//! Stores equal runs of words once. Schemes use this to share equal blocks.

use std::collections::HashMap;

/// Words, and an index of the runs among them.
pub(crate) struct Unique<T> {
    words: Vec<T>,
    words_max: usize,
    /// Position and length of the first run with each hash; runs do not overlap. A second run with the same hash is
    /// stored, but is not indexed.
    runs: HashMap<u64, (usize, usize)>,
}

impl<T: Copy + PartialEq + Into<u64>> Unique<T> {
    /// Starts empty. There will be at most `words_max` words.
    pub fn new(words_max: usize) -> Self {
        Unique { words: Vec::new(), words_max, runs: HashMap::new() }
    }

    /// Returns the position of `run` and stores it if it is new; `None` if it does not fit.
    pub fn store(&mut self, run: &[T]) -> Option<usize> {
        let hash = run.iter().fold(run.len() as u64, |hash, &word| {
            (hash.rotate_left(5) ^ word.into()).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        });
        let end = self.words.len();
        let (known, len) = *self.runs.entry(hash).or_insert((end, run.len()));
        if len == run.len() && self.words[known..].starts_with(run) {
            return Some(known);
        }
        if run.len() > self.words_max - end {
            return None;
        }
        self.words.extend_from_slice(run);
        Some(end)
    }

    /// All words stored.
    pub fn into_words(self) -> Vec<T> {
        self.words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_stored_once_and_within_the_limit() {
        let mut unique = Unique::<u32>::new(5);
        assert_eq!([unique.store(&[1, 2]), unique.store(&[3]), unique.store(&[1, 2])], [Some(0), Some(2), Some(0)]);
        assert_eq!([unique.store(&[2, 1, 3]), unique.store(&[4, 4])], [None, Some(3)]);
        assert_eq!(unique.into_words(), [1, 2, 3, 4, 4]);
    }
}
