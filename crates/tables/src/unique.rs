//! Stores equal runs of words once. Layouts use this to share equal blocks.

use std::collections::HashMap;

/// Words, and an index of the runs among them.
pub struct Unique<T> {
    words: Vec<T>,
    words_max: usize,
    /// Position and length of the first run with each hash; runs do not overlap. A second run with the same hash is
    /// stored, but is not indexed.
    runs: HashMap<u64, (usize, usize)>,
    /// Position and length of the run stored or found last. Neighbouring blocks are often equal.
    last: Option<(usize, usize)>,
}

impl<T: Copy + PartialEq + Into<u64>> Unique<T> {
    /// Starts empty. There will be at most `words_max` words.
    pub fn new(words_max: usize) -> Self {
        Unique { words: Vec::new(), words_max, runs: HashMap::new(), last: None }
    }

    /// Returns the position of `run` and stores it if it is new; `None` if it does not fit.
    pub fn store(&mut self, run: &[T]) -> Option<usize> {
        if let Some((last, len)) = self.last
            && len == run.len()
            && self.words[last..].starts_with(run)
        {
            return Some(last);
        }
        let position = self.find_or_store(run)?;
        self.last = Some((position, run.len()));
        Some(position)
    }

    fn find_or_store(&mut self, run: &[T]) -> Option<usize> {
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
        assert_eq!([unique.store(&[1, 2]), unique.store(&[1]), unique.store(&[1])], [Some(0), Some(3), Some(3)]);
        assert_eq!([unique.store(&[2, 1]), unique.store(&[4]), unique.store(&[1])], [None, Some(4), Some(3)]);
        assert_eq!(unique.into_words(), [1, 2, 3, 1, 4]);
    }
}
