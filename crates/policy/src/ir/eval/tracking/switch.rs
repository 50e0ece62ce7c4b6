//! Whether SYNs are answered: a threshold with hysteresis, in seconds of the packets' time.

use crate::ir::Threshold;

/// The state of the switch.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Switch {
    /// The second of the latest SYN.
    second: u64,
    /// The number of its SYNs.
    count: u64,
    /// The first of the seconds that all had few SYNs.
    calm_from: u64,
    is_on: bool,
}

impl Switch {
    /// Counts a SYN. Returns whether it is answered.
    pub(super) fn counts(&mut self, time_ns: u64, threshold: &Threshold) -> bool {
        let second = time_ns / 1_000_000_000;
        if second > self.second {
            if self.count >= threshold.off.into() {
                self.calm_from = self.second + 1;
            }
            (self.second, self.count) = (second, 0);
        }
        self.count += 1;
        // This second is not over, so it does not count as calm.
        self.is_on &= self.second - self.calm_from.min(self.second) < threshold.calm_s.into();
        if self.count > threshold.on.into() {
            (self.is_on, self.calm_from) = (true, self.second + 1);
        }
        self.is_on
    }
}

#[cfg(test)]
mod tests {
    use super::{Switch, Threshold};

    const THRESHOLD: Threshold = Threshold { on: 10, off: 3, calm_s: 5 };

    /// Answers of `count` SYNs in a second.
    fn answered(switch: &mut Switch, second: u64, count: usize) -> usize {
        (0..count).filter(|&nth| switch.counts(second * 1_000_000_000 + nth as u64, &THRESHOLD)).count()
    }

    #[test]
    fn more_syns_than_the_threshold_switch_it_on_at_once() {
        let mut switch = Switch::default();
        assert_eq!(answered(&mut switch, 100, 10), 0);
        assert_eq!(answered(&mut switch, 101, 10), 0, "each second counts alone");
        assert_eq!(answered(&mut switch, 102, 15), 5);
        assert_eq!(answered(&mut switch, 103, 10), 10, "it stays on");
    }

    #[test]
    fn calm_seconds_in_a_row_switch_it_off() {
        let mut switch = Switch::default();
        assert_eq!(answered(&mut switch, 100, 11), 1);
        (101..=104).for_each(|second| assert_eq!(answered(&mut switch, second, 2), 2));
        assert_eq!(answered(&mut switch, 105, 3), 3, "not calm: 3 are not fewer than 3");
        (106..=110).for_each(|second| assert_eq!(answered(&mut switch, second, 2), 2, "second {second}"));
        assert_eq!(answered(&mut switch, 111, 2), 0);
        assert_eq!(answered(&mut switch, 112, 11), 1, "a new flood");
    }

    #[test]
    fn seconds_without_syns_are_calm() {
        let mut switch = Switch::default();
        assert_eq!(answered(&mut switch, 100, 11), 1);
        assert_eq!(answered(&mut switch, 105, 1), 1, "four calm seconds");
        let mut switch = Switch::default();
        assert_eq!(answered(&mut switch, 100, 11), 1);
        assert_eq!(answered(&mut switch, 106, 1), 0, "five calm seconds");
    }
}
