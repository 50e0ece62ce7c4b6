//! How long and how often the scenario measures, and what it makes of the samples.

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};
use weir_command::failure::Failure;
use weir_engine::measure::Spread;

/// How much is measured.
#[derive(Clone, Copy)]
pub struct Effort {
    /// Time for which requests follow one another without a pause.
    pub turn: Duration,
    /// Maximum number of requests that follow one another without a pause.
    pub requests_max: usize,
    /// Number of addresses in a batch.
    pub batch: usize,
    /// Number of batches and of replaced lists.
    pub rounds: usize,
}

/// Samples of as many changes as fit into a turn, within `count`.
///
/// # Errors
/// A change failed.
pub fn repeated<C>(
    turn: Duration,
    count: RangeInclusive<usize>,
    changes: impl Iterator<Item = C>,
    timed: impl FnMut(C) -> Result<f64, Failure>,
) -> Result<Vec<f64>, Failure> {
    let start = Instant::now();
    let wanted = changes.take(*count.end()).enumerate();
    wanted
        .take_while(|&(done, _)| done < *count.start() || start.elapsed() < turn)
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

    const TURN: Duration = Duration::from_millis(200);

    #[test]
    fn slow_changes_are_repeated_less_often() {
        let slow = |_| {
            std::thread::sleep(TURN / 3);
            Ok(1.0)
        };
        assert_eq!(repeated(TURN, 2..=9, 0.., slow).expect("none fails").len(), 3);
        assert_eq!(repeated(TURN, 4..=9, 0.., slow).expect("none fails").len(), 4);
        assert_eq!(repeated(TURN, 2..=9, 0.., |_| Ok(1.0)).expect("none fails").len(), 9);
    }

    #[test]
    fn one_in_a_hundred_takes_longer() {
        let samples: Vec<f64> = (0..1000).rev().map(f64::from).collect();
        assert_eq!((p99(&samples), p99(&[7.0]), spread(&samples).max), (990.0, 7.0, 999.0));
    }
}
