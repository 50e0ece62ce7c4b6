//! Counts passed tests in the output of test runners, and finds the messages of failed ones.

use std::fmt;

/// Maximum number of lines of all messages at the end of a log, unless there are very many failures.
const LINES_OF_ALL: usize = 34;
/// Maximum and minimum number of lines of one message.
const LINES_OF_ONE: [usize; 2] = [3, 15];
/// Maximum number of characters of a line. Random cases have lines of a mebibyte.
const LINE_CHARS: usize = 240;

/// What libtest prints after the name of a test that has to panic.
const SHOULD_PANIC: &str = " - should panic";
/// What libtest prints after the name of a test that runs for a minute.
const SLOW: &str = " has been running for over 60 seconds";

/// A failed test, or a failed step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    name: String,
    /// The whole message.
    lines: Vec<String>,
}

impl Failure {
    /// A failure with a message of any number of lines.
    pub fn new(name: impl Into<String>, message: &str) -> Self {
        Failure { name: name.into(), lines: message.lines().map(str::to_owned).collect() }
    }

    /// Whether a runner or one of its tests failed.
    fn is_of(&self, runner: &str) -> bool {
        self.name.strip_prefix(runner).is_some_and(|rest| rest.is_empty() || rest.starts_with(": "))
    }

    /// The essential lines of the message: those around the first panic. Without backtraces, empty lines, and
    /// proptest's advice on its seeds.
    fn excerpt(&self, count: usize) -> Vec<String> {
        let (mut lines, mut in_backtrace) = (Vec::new(), false);
        for line in &self.lines {
            in_backtrace |= line == "stack backtrace:";
            if !in_backtrace && !line.trim().is_empty() && !line.starts_with("proptest: ") {
                lines.push(line);
            }
            in_backtrace &= !line.starts_with("note: ");
        }
        let panic = lines.iter().position(|line| line.starts_with("thread '") && line.contains(" panicked at "));
        // What precedes a panic may belong to it, such as a seed or the difference between snapshots.
        let first = panic.unwrap_or(0).saturating_sub(count / 2);
        lines.iter().skip(first).take(count).map(|line| line.chars().take(LINE_CHARS).collect()).collect()
    }
}

/// The sum over test runners.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Number of passed tests, without ignored ones.
    pub passed: u64,
    /// Failed tests and steps.
    pub failures: Vec<Failure>,
    /// Tests among the passed ones that failed at first, and passed alone.
    pub passed_alone: Vec<String>,
}

impl Tally {
    /// The names of the tests of a runner that failed. Empty if the runner failed in another way, too.
    pub fn failed_tests(&self, runner: &str) -> Vec<String> {
        let failures = self.failures.iter().filter(|failure| failure.is_of(runner));
        let names = failures.map(|failure| failure.name.strip_prefix(runner)?.strip_prefix(": "));
        names.map(|name| name.map(str::to_owned)).collect::<Option<_>>().unwrap_or_default()
    }

    /// Takes the results of a runner's failed tests from their repetition. If not each of them has passed or failed
    /// again, all stay failed.
    pub fn replace_failures(&mut self, runner: &str, repeated: Tally) {
        let failed: Vec<Failure> = self.failures.extract_if(.., |failure| failure.is_of(runner)).collect();
        let again = |failure: &&Failure| repeated.failures.iter().any(|other| other.name == failure.name);
        let (_, passed): (Vec<_>, Vec<_>) = failed.iter().partition(again);
        if passed.len() as u64 == repeated.passed {
            self.passed_alone.extend(passed.into_iter().map(|failure| failure.name.clone()));
            self.passed += repeated.passed;
        } else {
            self.failures.extend(failed);
        }
        self.failures.extend(repeated.failures);
    }

    /// The tests in libtest's output. Each summary line counts, as in `test result: ok. 12 passed; 0 failed; 0 ignored;
    /// 0 measured; 0 filtered out; finished in 0.01s`. A runner that fails without a failed test counts as one failure.
    /// Its message is the last lines.
    pub fn read(runner: &str, output: &str, outcome: Result<(), String>) -> Self {
        let (mut tally, mut in_message) = (Tally::default(), false);
        for line in output.lines() {
            if let Some(test) = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----")) {
                tally.failures.push(Failure::new(format!("{runner}: {test}"), ""));
                in_message = true;
            } else if let Some((_, counts)) = line.strip_prefix("test result: ").and_then(|rest| rest.split_once(". "))
            {
                let passed = counts.split("; ").find_map(|part| part.strip_suffix(" passed"));
                tally.passed += passed.and_then(|number| number.parse::<u64>().ok()).unwrap_or(0);
                in_message = false;
            } else if line == "failures:" {
                in_message = false;
            } else if let (true, Some(failure)) = (in_message, tally.failures.last_mut()) {
                failure.lines.push(line.to_owned());
            }
        }
        let Err(message) = outcome else { return tally };
        // A runner that was ended has not printed its messages.
        for (test, what) in unfinished(output) {
            let name = format!("{runner}: {test}");
            if tally.failures.iter().all(|failure| failure.name != name) {
                tally.failures.push(Failure::new(name, what));
            }
        }
        if tally.failures.is_empty() {
            let lines: Vec<&str> = output.lines().collect();
            let last = &lines[lines.len().saturating_sub(LINES_OF_ONE[1] - 1)..];
            tally.failures.push(Failure::new(runner, &format!("{message}\n{}", last.join("\n"))));
        }
        tally
    }

    /// The failures with excerpts of their messages. Few failures get more lines.
    pub fn failures(&self) -> impl fmt::Display {
        let [min, max] = LINES_OF_ONE;
        let each = (LINES_OF_ALL / self.failures.len().max(1)).saturating_sub(1).clamp(min, max);
        let mut text = String::new();
        for failure in &self.failures {
            text += &format!("ci: FAILED {}\n", failure.name);
            failure.excerpt(each).iter().for_each(|line| text += &format!("    {line}\n"));
        }
        text
    }
}

/// The tests that failed, and those that were slow and did not end, with what happened.
fn unfinished(output: &str) -> Vec<(&str, &'static str)> {
    let results: Vec<(&str, &str)> = output
        .lines()
        .filter_map(|text| text.strip_prefix("test ")?.split_once(" ... "))
        .map(|(test, result)| (test.strip_suffix(SHOULD_PANIC).unwrap_or(test), result))
        .collect();
    let failed = results.iter().filter(|(_, result)| *result == "FAILED").map(|(test, _)| (*test, "it failed"));
    let slow = output.lines().filter_map(|text| text.strip_prefix("test ")?.strip_suffix(SLOW));
    let slow = slow.map(|test| test.strip_suffix(SHOULD_PANIC).unwrap_or(test));
    let hangs = slow.filter(|slow| results.iter().all(|(test, _)| test != slow)).map(|test| (test, "it did not end"));
    failed.chain(hangs).collect()
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failures.extend(other.failures);
        self.passed_alone.extend(other.passed_alone);
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failures.len())?;
        match self.passed_alone.as_slice() {
            [] => Ok(()),
            names => write!(f, " ({} passed only alone: {})", names.len(), names.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Failure, LINE_CHARS, Tally};

    /// The output of a runner with two failed tests.
    const FAILED: &str = "running 3 tests\ntest a ... FAILED\ntest b ... FAILED\ntest c ... ok\n\nfailures:\n\n\
        ---- a stdout ----\nproptest: Saving this and future failures\ncc 1234\n\n\
        thread 'a' (7) panicked at tests/a.rs:1:2:\nTest failed: eval and xdp differ\nstack backtrace:\n   0: core\n\
        note: Some details are omitted\n\n---- b stdout ----\n\nthread 'b' panicked at tests/b.rs:1:2:\nno\n\n\n\
        failures:\n    a\n    b\n\n\
        test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.20s\n";

    #[test]
    fn summaries_add_up() {
        let passed = "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.00s";
        let mut sum = Tally::read("one", &format!("{passed}\n    {passed}\n7 passed\n{passed}\n"), Ok(()));
        assert_eq!(sum, Tally { passed: 6, ..Tally::default() });
        sum += Tally::read("two", FAILED, Err("exit status: 101".into()));
        assert_eq!(sum.to_string(), "7 passed, 2 failed");
    }

    #[test]
    fn a_test_that_passes_alone_is_named() {
        let mut tally = Tally::read("live", FAILED, Err("exit status: 101".into()));
        tally += Tally::read("live 2", "", Err("signal: 6".into()));
        assert_eq!(tally.failed_tests("live"), ["a", "b"]);
        assert!(tally.failed_tests("live 2").is_empty() && tally.failed_tests("random").is_empty());
        let again = "test a ... FAILED\ntest b ... ok\n\nfailures:\n\n---- a stdout ----\nno\n\nfailures:\n    a\n\n\
            test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 1 filtered out; finished in 0.10s\n";
        tally.replace_failures("live", Tally::read("live", again, Err("exit status: 101".into())));
        assert_eq!(tally.to_string(), "2 passed, 2 failed (1 passed only alone: live: b)");
        assert_eq!(tally.failures().to_string(), "ci: FAILED live 2\n    signal: 6\nci: FAILED live: a\n    no\n");

        let mut ended = Tally::read("live", FAILED, Err("exit status: 101".into()));
        ended.replace_failures("live", Tally::read("live", "", Err("exit status: 124".into())));
        assert_eq!(ended.to_string(), "1 passed, 3 failed");
    }

    #[test]
    fn failures_have_their_messages() {
        let tally = Tally::read("random", FAILED, Err("exit status: 101".into()));
        let expected = "ci: FAILED random: a\n    cc 1234\n    thread 'a' (7) panicked at tests/a.rs:1:2:\n    \
            Test failed: eval and xdp differ\nci: FAILED random: b\n    thread 'b' panicked at tests/b.rs:1:2:\n    no\n";
        assert_eq!(tally.failures().to_string(), expected);
    }

    #[test]
    fn a_crash_is_a_failure() {
        let tally = Tally::read("live", "running 1 test\nfree(): invalid pointer\n", Err("signal: 6".into()));
        let expected = "ci: FAILED live\n    signal: 6\n    running 1 test\n    free(): invalid pointer\n";
        assert_eq!(tally.failures().to_string(), expected);
        assert_eq!(tally.to_string(), "0 passed, 1 failed");
    }

    #[test]
    fn tests_of_a_runner_that_was_ended_are_named() {
        let output = "running 6 tests\ntest a has been running for over 60 seconds\ntest a ... ok\n\
            test b has been running for over 60 seconds\ntest c ... FAILED\n\
            test d - should panic has been running for over 60 seconds\ntest d - should panic ... ok\n\
            thread 'main' (1) panicked at weir.rs:1:2:\nno\n";
        let tally = Tally::read("live", output, Err("exit status: 124".into()));
        let expected = "ci: FAILED live: c\n    it failed\nci: FAILED live: b\n    it did not end\n";
        assert_eq!(tally.failures().to_string(), expected);
    }

    #[test]
    fn messages_fit_the_end_of_a_log() {
        let before: String = (0..50).map(|line| format!("before {line}\n")).collect();
        let long = format!("{before}thread 'a' panicked at a.rs:1:\n{}\n{before}", "x".repeat(1 << 20));
        for (failures, lines) in [(1, 16), (2, 32), (5, 30), (20, 80)] {
            let tally = Tally { failures: vec![Failure::new("a", &long); failures], ..Tally::default() };
            let text = tally.failures().to_string();
            assert_eq!(text.lines().count(), lines);
            assert!(text.contains("panicked at a.rs") && text.lines().all(|line| line.len() <= LINE_CHARS + 4));
        }
    }
}
