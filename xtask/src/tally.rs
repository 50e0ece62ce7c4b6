//! Counts passed and failed tests in the output of test runners.

/// The sum over test runners.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Number of passed tests, without ignored ones.
    pub passed: u64,
    /// Number of failed tests, and of failed steps without a failed test.
    pub failed: u64,
}

impl Tally {
    /// Adds the numbers of a line of libtest's output, if it is a summary: `test result: ok. 12 passed; 0 failed; 0
    /// ignored; 0 measured; 0 filtered out; finished in 0.01s`.
    pub fn add_line(&mut self, line: &str) {
        let Some(rest) = line.strip_prefix("test result: ") else { return };
        let Some((_, counts)) = rest.split_once(". ") else { return };
        for part in counts.split("; ") {
            match part.split_once(' ').map(|(n, what)| (n.parse::<u64>(), what)) {
                Some((Ok(n), "passed")) => self.passed += n,
                Some((Ok(n), "failed")) => self.failed += n,
                _ => {}
            }
        }
    }
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)
    }
}

#[cfg(test)]
mod tests {
    use super::Tally;

    fn tally(lines: &[&str]) -> Tally {
        let mut tally = Tally::default();
        lines.iter().for_each(|line| tally.add_line(line));
        tally
    }

    #[test]
    fn summaries_add_up() {
        let sum = tally(&[
            "running 3 tests",
            "test a::b ... ok",
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.00s",
            "test result: FAILED. 10 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.20s",
        ]);
        assert_eq!(sum, Tally { passed: 13, failed: 2 });
        assert_eq!(sum.to_string(), "13 passed, 2 failed");
    }

    #[test]
    fn other_lines_count_nothing() {
        assert_eq!(tally(&["    test result: ok. 3 passed; 0 failed", "7 passed", ""]), Tally::default());
    }
}
