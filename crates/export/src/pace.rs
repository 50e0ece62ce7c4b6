//! At most so many in a second.

/// Milliseconds of a second.
const SECOND_MS: u64 = 1000;

/// Lets at most `per_second` pass in each second of the caller's clock, and counts the others.
#[derive(Clone, Debug)]
pub struct Pace {
    per_second: u32,
    second: u64,
    passed: u32,
    suppressed: u64,
}

impl Pace {
    /// A pace; 0 lets nothing pass.
    pub fn new(per_second: u32) -> Self {
        Pace { per_second, second: 0, passed: 0, suppressed: 0 }
    }

    /// Whether one more may pass at this time, in milliseconds of a clock that does not go back.
    pub fn allows(&mut self, now_ms: u64) -> bool {
        let second = now_ms / SECOND_MS;
        if second != self.second {
            (self.second, self.passed) = (second, 0);
        }
        let allowed = self.passed < self.per_second;
        if allowed {
            self.passed += 1;
        } else {
            self.suppressed += 1;
        }
        allowed
    }

    /// Number of those that did not pass.
    pub fn suppressed(&self) -> u64 {
        self.suppressed
    }
}

#[cfg(test)]
mod tests {
    use super::Pace;

    #[test]
    fn each_second_lets_as_many_pass_and_counts_the_others() {
        let mut pace = Pace::new(3);
        let mut of = |at_ms: u64, count: usize| (0..count).filter(|_| pace.allows(at_ms)).count();
        assert_eq!([of(999, 2), of(999, 9), of(1000, 2), of(1999, 2), of(5000, 3)], [2, 1, 2, 1, 3]);
        assert_eq!(pace.suppressed(), 8 + 1);
        let mut none = Pace::new(0);
        assert!(!none.allows(0) && !none.allows(1000) && none.suppressed() == 2);
    }
}
