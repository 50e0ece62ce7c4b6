//! A learned rate: how fast it may rise, and how it falls.
//!
//! What is learned in peace, an attacker can teach before he attacks. So no rate follows what it sees. It rises by a
//! bounded factor in an hour, whatever is sent, and falls when it is not met. Only in the first seconds of a life, when
//! nothing is known, it follows.

use serde::{Deserialize, Serialize};

/// A rate doubles in not less than this time: it quadruples in an hour.
pub const DOUBLING_S: f64 = 1800.0;
/// In a crowd it doubles in this time.
pub const FAST_DOUBLING_S: f64 = 60.0;
/// In a crowd it rises to at most this many times what it would be otherwise.
pub const FAST_MAX: f64 = 20.0;
/// A rate that is not met halves in this time.
pub const HALVING_S: f64 = 3600.0;

/// How fast a rate rises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Pace {
    /// To each maximum, because nothing is known yet.
    Follow,
    /// Slowly. A prefix that is seen for the first time begins as if it were idle: the first window of an attack would
    /// otherwise be usual.
    Slow,
    /// Faster, in a crowd of proven sources.
    Fast,
}

/// The highest usual rate of something, packets a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UsualRate {
    pps: f64,
    /// What it would be if it never rose fast; at most `pps`.
    steady_pps: f64,
}

impl UsualRate {
    /// The rate.
    pub fn pps(&self) -> f64 {
        self.pps
    }

    /// Sets it. It goes on from there.
    pub fn set(&mut self, pps: f64) {
        *self = UsualRate { pps, steady_pps: pps };
    }

    /// Learns the rate of a window. It may rise to `free_pps` at once.
    pub fn learn(&mut self, rate_pps: f64, seconds: f64, pace: Pace, free_pps: f64) {
        let rise = |doubling_s: f64| (seconds / doubling_s).exp2();
        let steady_pps = (self.steady_pps * rise(DOUBLING_S)).max(free_pps);
        let most_pps = match pace {
            Pace::Follow => f64::INFINITY,
            Pace::Slow => (self.pps * rise(DOUBLING_S)).max(free_pps),
            Pace::Fast => (self.pps * rise(FAST_DOUBLING_S)).max(free_pps),
        };
        let bound_pps = if pace == Pace::Follow { f64::INFINITY } else { (steady_pps * FAST_MAX).max(self.pps) };
        let fallen_pps = self.pps * fall(seconds);
        self.pps = rate_pps.min(most_pps).min(bound_pps).max(fallen_pps);
        self.steady_pps = if pace == Pace::Follow { self.pps } else { steady_pps.min(self.pps) };
    }

    /// Nothing was seen for some time.
    pub fn fall(&mut self, seconds: f64) {
        self.pps *= fall(seconds);
        self.steady_pps = self.steady_pps.min(self.pps);
    }
}

/// What is left of a rate that was not met for some time.
pub fn fall(seconds: f64) -> f64 {
    (-seconds / HALVING_S).exp2()
}

#[cfg(test)]
mod tests {
    use super::{FAST_MAX, Pace, UsualRate};
    use proptest::prelude::*;

    const WINDOW_S: f64 = 0.25;
    const HOUR_S: f64 = 3600.0;

    /// A level after an hour of a rate.
    fn after_an_hour(mut level: UsualRate, pace: Pace) -> f64 {
        (0..(HOUR_S / WINDOW_S) as u32).for_each(|_| level.learn(1e9, WINDOW_S, pace, 33.0));
        level.pps()
    }

    #[test]
    fn an_hour_quadruples_a_rate_and_a_crowd_raises_it_by_a_bounded_factor_more() {
        let mut level = UsualRate::default();
        level.learn(100.0, WINDOW_S, Pace::Follow, 0.0);
        assert!((after_an_hour(level, Pace::Slow) / 400.0 - 1.0).abs() < 0.01);
        let fast = after_an_hour(level, Pace::Fast);
        assert!((fast / (400.0 * FAST_MAX) - 1.0).abs() < 0.01, "{fast}");
    }

    #[test]
    fn a_rate_that_is_not_met_halves_in_an_hour() {
        let mut level = UsualRate::default();
        level.set(100.0);
        (0..(HOUR_S / WINDOW_S) as u32).for_each(|_| level.learn(1.0, WINDOW_S, Pace::Slow, 33.0));
        assert!((level.pps() - 50.0).abs() < 0.1, "{level:?}");
        level.fall(HOUR_S);
        assert!((level.pps() - 25.0).abs() < 0.1, "{level:?}");
    }

    proptest! {
        /// Whatever is sent, however it changes between crowds and none.
        #[test]
        fn no_hour_raises_a_rate_more(windows in prop::collection::vec((0.0f64..1e6, any::<bool>()), 1..200)) {
            let mut level = UsualRate::default();
            level.set(100.0);
            // Windows of a minute: not more than an hour of them.
            for (rate_pps, is_crowd) in windows.into_iter().take(60) {
                level.learn(rate_pps, 60.0, if is_crowd { Pace::Fast } else { Pace::Slow }, 33.0);
            }
            prop_assert!(level.pps() <= 400.0 * FAST_MAX * 1.001, "{level:?}");
        }
    }
}
