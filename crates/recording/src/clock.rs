//! The times of a recording. They never go back, and they go on if a clock was set or a timestamp is wrong.

use weir_mitigate::measure::WINDOW_NS;

/// A packet further ahead of the latest time is doubted: the next one confirms it, unless it is back again.
const AHEAD_MAX_NS: i64 = 300_000_000_000;
/// Packets in a wrong order are late by at most this time. A packet that is later is doubted: if the next one is near
/// it, the clock was set back, and time goes on from the latest time.
const LATE_MAX_NS: i64 = 5_000_000_000;
/// Lateness that detection notices.
const NOTICED_NS: i64 = WINDOW_NS as i64;

/// Makes times of timestamps. Both are ns since 1970.
#[derive(Debug, Default)]
pub struct Clock {
    /// The latest time.
    now_ns: i64,
    /// What is added to timestamps.
    shift_ns: i64,
    /// Whether the current capture had a packet.
    has_begun: bool,
    /// What would be the time of the previous packet, if it was doubted.
    doubted_ns: Option<i64>,
    corrected: u64,
}

impl Clock {
    /// A capture begins. If its first timestamp is before the latest time, it begins at the latest time.
    pub fn begin_capture(&mut self) {
        (self.has_begun, self.doubted_ns) = (false, None);
    }

    /// The time of the next packet.
    pub fn follow(&mut self, stamp_ns: u64) -> u64 {
        let stamp_ns = i64::try_from(stamp_ns).unwrap_or(i64::MAX);
        if !self.has_begun {
            self.has_begun = true;
            self.shift_ns = self.now_ns.saturating_sub(stamp_ns).max(0);
            self.now_ns = self.now_ns.max(stamp_ns);
            return self.now_ns as u64;
        }
        let time_ns = stamp_ns.saturating_add(self.shift_ns);
        let doubted_ns = self.doubted_ns.take();
        let ahead_ns = time_ns - self.now_ns;
        if ahead_ns > AHEAD_MAX_NS {
            self.doubt_ahead(time_ns, doubted_ns);
        } else if ahead_ns >= 0 {
            self.now_ns = time_ns;
        } else if ahead_ns >= -LATE_MAX_NS {
            self.corrected += u64::from(ahead_ns <= -NOTICED_NS);
        } else {
            self.doubt_back(time_ns, doubted_ns);
        }
        self.now_ns as u64
    }

    fn doubt_ahead(&mut self, time_ns: i64, doubted_ns: Option<i64>) {
        let is_gap = |doubted_ns| doubted_ns > self.now_ns && time_ns >= doubted_ns - LATE_MAX_NS;
        if doubted_ns.is_some_and(is_gap) {
            self.now_ns = time_ns;
            self.corrected -= 1;
        } else {
            self.doubted_ns = Some(time_ns);
            self.corrected += 1;
        }
    }

    fn doubt_back(&mut self, time_ns: i64, doubted_ns: Option<i64>) {
        let is_near = |doubted_ns| (-LATE_MAX_NS..=AHEAD_MAX_NS).contains(&(time_ns - doubted_ns));
        if doubted_ns.is_some_and(is_near) {
            self.shift_ns += self.now_ns - time_ns;
        } else {
            self.doubted_ns = Some(time_ns);
        }
        self.corrected += 1;
    }

    /// Packets that have the time of the previous packet, because their own is late or wrong.
    pub fn corrected(&self) -> u64 {
        self.corrected
    }
}

#[cfg(test)]
mod tests {
    use super::Clock;

    const SECOND: u64 = 1_000_000_000;
    const DAY: u64 = 86_400;

    /// The times of timestamps, both in seconds, and how many were corrected.
    fn times(stamps: &[u64]) -> (Vec<u64>, u64) {
        let mut clock = Clock::default();
        let times = stamps.iter().map(|stamp| clock.follow(stamp * SECOND) / SECOND).collect();
        (times, clock.corrected())
    }

    #[test]
    fn a_wrong_timestamp_does_not_move_time() {
        assert_eq!(times(&[10, 11, 12 + DAY, 12, 13]), (vec![10, 11, 11, 12, 13], 1));
        assert_eq!(
            times(&[DAY, DAY + 1, 2, DAY + 2, 3, DAY + 9]),
            (vec![DAY, DAY + 1, DAY + 1, DAY + 2, DAY + 2, DAY + 9], 2)
        );
        assert_eq!(times(&[10, 11, 2 * DAY]), (vec![10, 11, 11], 1));
    }

    #[test]
    fn time_goes_on_when_a_clock_is_set_back() {
        assert_eq!(times(&[DAY, 10, 11, 12, 14]), (vec![DAY, DAY, DAY, DAY + 1, DAY + 3], 2));
        assert_eq!(times(&[DAY, DAY + 1, DAY - 9, DAY - 9, DAY - 8]).0[2..], [DAY + 1, DAY + 1, DAY + 2]);
    }

    #[test]
    fn a_gap_is_no_error() {
        assert_eq!(times(&[10, DAY, DAY + 1]), (vec![10, 10, DAY + 1], 0));
        assert_eq!(times(&[0, 250, 500]), (vec![0, 250, 500], 0));
        assert_eq!(times(&[0, DAY, 2 * DAY, 3 * DAY, 4 * DAY]).1, 0);
    }

    #[test]
    fn packets_in_a_wrong_order_are_late() {
        assert_eq!(times(&[10, 12, 11, 13, 9, 14]), (vec![10, 12, 12, 13, 13, 14], 2));
        let mut clock = Clock::default();
        assert_eq!([5, 3, 6].map(|stamp| clock.follow(stamp * 1_000_000)), [5_000_000, 5_000_000, 6_000_000]);
        assert_eq!(clock.corrected(), 0);
        let (times, corrected) = times(&(0..100).rev().collect::<Vec<_>>());
        assert_eq!((times, corrected), (vec![99; 100], 99));
    }

    #[test]
    fn a_capture_begins_at_the_end_of_the_previous_one() {
        let mut clock = Clock::default();
        let mut follow = |begins: bool, stamp: u64| {
            if begins {
                clock.begin_capture();
            }
            clock.follow(stamp * SECOND) / SECOND
        };
        assert_eq!([follow(true, 100), follow(false, 101), follow(true, 20), follow(false, 22)], [100, 101, 101, 103]);
        assert_eq!([follow(true, DAY), follow(false, DAY + 1)], [DAY, DAY + 1]);
        assert_eq!(clock.corrected(), 0);
    }

    #[test]
    fn any_timestamp_is_a_time() {
        let mut clock = Clock::default();
        for stamp in [0, u64::MAX, 1, u64::MAX, u64::MAX, 0, 0, i64::MAX as u64, u64::MAX] {
            clock.follow(stamp);
        }
        clock.begin_capture();
        assert!(clock.follow(0) <= clock.follow(u64::MAX));
    }
}
