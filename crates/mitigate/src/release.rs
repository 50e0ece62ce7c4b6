//! The rate monitor (section IV-D of the SmartNIC paper): which blocked sources are released, the slowest first.
//!
//! A source that is slower than the fastest source of normal times does no harm. If it was released by mistake,
//! detection blocks it again in its next window.

/// Sources released in one period, at most this share of the blocked ones. If a threshold is wrong, the mistake shows
/// in the next window while most sources are still blocked.
const SHARE_MAX: f64 = 0.1;

/// A blocked source and its current rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Blocked<K> {
    /// The source.
    pub key: K,
    /// Packets a second that it sends now, whether software or a card drops them.
    pub rate_pps: f64,
}

/// The sources to release: those below the threshold, the slowest first. At least one may go in each period.
pub fn release<K: Copy>(mut blocked: Vec<Blocked<K>>, normal_max_pps: f64) -> Vec<K> {
    let budget = ((blocked.len() as f64 * SHARE_MAX).ceil() as usize).max(1);
    blocked.sort_by(|one, other| one.rate_pps.total_cmp(&other.rate_pps));
    let is_slow = |source: &&Blocked<K>| source.rate_pps == 0.0 || source.rate_pps < normal_max_pps;
    blocked.iter().take_while(is_slow).take(budget).map(|source| source.key).collect()
}

#[cfg(test)]
mod tests {
    use super::{Blocked, release};
    use proptest::prelude::*;

    #[test]
    fn the_slowest_go_first_and_attackers_stay() {
        let rates = [900.0, 3.0, 0.0, 50.0, 2.0, 700.0, 1.0, 4.0, 5.0, 6.0, 7.0, 8.0];
        let mut blocked: Vec<_> = (0..).zip(rates).map(|(key, rate_pps)| Blocked { key, rate_pps }).collect();
        assert_eq!(release(blocked.clone(), 10.0), [2, 6]);
        let mut periods = 0;
        while !release(blocked.clone(), 10.0).is_empty() {
            let released = release(blocked.clone(), 10.0);
            blocked.retain(|source| !released.contains(&source.key));
            periods += 1;
        }
        let left: Vec<f64> = blocked.iter().map(|source| source.rate_pps).collect();
        assert_eq!((left, periods), (vec![900.0, 50.0, 700.0], 8));
    }

    proptest! {
        #[test]
        fn nobody_faster_than_normal_is_released(rates in prop::collection::vec(0.0f64..1000.0, 0..100), normal in 0.0f64..500.0) {
            let blocked: Vec<_> = rates.iter().enumerate().map(|(key, &rate_pps)| Blocked { key, rate_pps }).collect();
            let released = release(blocked, normal);
            prop_assert!(released.iter().all(|&key| rates[key] < normal || rates[key] == 0.0));
            prop_assert!(released.len() <= rates.len().div_ceil(10).max(1));
            prop_assert!(released.is_sorted_by(|&one, &other| rates[one] <= rates[other]));
        }
    }
}
