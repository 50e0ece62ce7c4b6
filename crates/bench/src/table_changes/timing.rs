//! How long and how often the scenario measures, and what it makes of the samples.

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};
use weir::failure::Failure;
use weir_engine::measure::Spread;

/// Time for which requests follow one another without a pause.
pub const TURN: Duration = Duration::from_secs(2);
/// Number of addresses in a batch.
pub const BATCH: usize = 10_000;
/// Number of batches and of replaced lists.
pub const ROUNDS: usize = 5;

/// Samples of as many changes as fit into a turn, within `count`.
///
/// # Errors
/// A change failed.
pub fn repeated<C>(
    count: RangeInclusive<usize>,
    changes: impl Iterator<Item = C>,
    timed: impl FnMut(C) -> Result<f64, Failure>,
) -> Result<Vec<f64>, Failure> {
    let start = Instant::now();
    let wanted = changes.take(*count.end()).enumerate();
    wanted
        .take_while(|&(done, _)| done < *count.start() || start.elapsed() < TURN)
        .map(|(_, change)| change)
        .map(timed)
        .collect()
}

/// Median and extremes.
pub fn spread(samples: &[f64]) -> Spread {
    Spread::of(samples.to_vec()).expect("there were changes")
}

/// The 99th percentile.
pub fn p99(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[(sorted.len() * 99 / 100).min(sorted.len() - 1)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_changes_are_repeated_less_often() {
        let slow = |_| {
            std::thread::sleep(TURN / 3);
            Ok(1.0)
        };
        assert_eq!(repeated(2..=9, 0.., slow).expect("none fails").len(), 3);
        assert_eq!(repeated(4..=9, 0.., slow).expect("none fails").len(), 4);
        assert_eq!(repeated(2..=9, 0.., |_| Ok(1.0)).expect("none fails").len(), 9);
    }

    #[test]
    fn one_in_a_hundred_takes_longer() {
        let samples: Vec<f64> = (0..1000).rev().map(f64::from).collect();
        assert_eq!((p99(&samples), p99(&[7.0]), spread(&samples).max), (990.0, 7.0, 999.0));
    }
}
