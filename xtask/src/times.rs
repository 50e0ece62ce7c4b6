//! The durations of steps and of test binaries.

use std::fmt;
use std::time::Duration;

/// Durations by name, in the order of measurement.
#[derive(Default)]
pub struct Times {
    taken: Vec<(String, Duration)>,
}

impl Times {
    /// Adds a duration.
    pub fn add(&mut self, name: impl Into<String>, took: Duration) {
        self.taken.push((name.into(), took));
    }
}

/// One line per name, the longest duration first: `ci:    12.3 s  live`.
impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sorted: Vec<_> = self.taken.iter().collect();
        sorted.sort_by_key(|(_, took)| std::cmp::Reverse(*took));
        for (index, (name, took)) in sorted.into_iter().enumerate() {
            let end_of_last = if index == 0 { "" } else { "\n" };
            write!(f, "{end_of_last}ci: {:>7.1} s  {name}", took.as_secs_f64())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Times;
    use std::time::Duration;

    #[test]
    fn the_longest_comes_first() {
        let mut times = Times::default();
        times.add("house", Duration::from_millis(40));
        times.add("live", Duration::from_secs(123));
        assert_eq!(times.to_string(), "ci:   123.0 s  live\nci:     0.0 s  house");
    }
}
