//! Entropy of a field over a sample, as a number between 0 (one value) and 1 (all values differ).

use std::collections::HashMap;
use std::hash::Hash;

/// Shannon's entropy divided by its maximum for as many values. 0 for fewer than two values.
pub fn normalised<T: Eq + Hash>(values: impl Iterator<Item = T>) -> f64 {
    let mut counts: HashMap<T, u64> = HashMap::new();
    values.for_each(|value| *counts.entry(value).or_default() += 1);
    let total = counts.values().sum::<u64>() as f64;
    if total < 2.0 {
        return 0.0;
    }
    let entropy: f64 = counts.values().map(|&count| count as f64 / total).map(|share| -share * share.log2()).sum();
    entropy / total.log2()
}

#[cfg(test)]
mod tests {
    use super::normalised;

    #[test]
    fn entropy_of_simple_distributions() {
        assert_eq!(normalised([1, 1, 1, 1].into_iter()), 0.0);
        assert!((normalised(0..1000) - 1.0).abs() < 1e-9);
        assert!((normalised([1, 1, 2, 2].into_iter()) - 0.5).abs() < 1e-9);
        assert_eq!(normalised([7].into_iter()), 0.0);
    }
}
