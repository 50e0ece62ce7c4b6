//! Measures the duration of every step, and of every test binary that cargo runs.

use std::fmt;
use std::time::{Duration, Instant};

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

    /// Whether nothing was measured.
    pub fn is_empty(&self) -> bool {
        self.taken.is_empty()
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

/// Measures test binaries by the lines with which cargo announces them.
#[derive(Default)]
pub struct Stopwatch {
    times: Times,
    running: Option<(String, Instant)>,
}

impl Stopwatch {
    /// Processes a line of cargo's output, which may end one binary and start the next.
    pub fn add_line(&mut self, line: &str) {
        if let Some(name) = announced(line) {
            self.stop();
            self.running = Some((name, Instant::now()));
        }
    }

    /// Whether a binary is running.
    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// The duration of each binary. The last one ends now.
    pub fn end(mut self) -> Times {
        self.stop();
        self.times
    }

    fn stop(&mut self) {
        if let Some((name, start)) = self.running.take() {
            self.times.add(name, start.elapsed());
        }
    }
}

/// The name of an announced binary. `     Running unittests src/lib.rs (target/debug/deps/weir_abi-70a6e25d021ec38b)`
/// is `weir_abi src/lib.rs`, `     Running tests/live.rs (target/debug/deps/live-9dfbee74727f86ec)` is `live`, `
/// Doc-tests weir_abi` is `weir_abi doc-tests`.
fn announced(line: &str) -> Option<String> {
    let line = line.trim_start();
    if let Some(package) = line.strip_prefix("Doc-tests ") {
        return Some(format!("{package} doc-tests"));
    }
    let (source, program) = line.strip_prefix("Running ")?.strip_suffix(')')?.split_once(" (")?;
    let file = program.rsplit('/').next().unwrap_or(program);
    let (name, hash) = file.rsplit_once('-')?;
    if hash.is_empty() || !hash.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    match source.strip_prefix("unittests ") {
        Some(source) => Some(format!("{name} {source}")),
        None => Some(name.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::{Stopwatch, Times, announced};
    use std::time::Duration;

    #[test]
    fn cargo_announces_each_binary() {
        let lib = "     Running unittests src/lib.rs (target/debug/deps/weir_abi-70a6e25d021ec38b)";
        assert_eq!(announced(lib).as_deref(), Some("weir_abi src/lib.rs"));
        let test = "     Running ../../tests/live.rs (/elsewhere/debug/deps/live-9dfbee74727f86ec)";
        assert_eq!(announced(test).as_deref(), Some("live"));
        assert_eq!(announced("   Doc-tests weir_abi").as_deref(), Some("weir_abi doc-tests"));
        for other in ["Running out of room (really)", "Running", "running 3 tests", "test a ... ok", ""] {
            assert_eq!(announced(other), None, "{other}");
        }
    }

    #[test]
    fn a_binary_ends_where_the_next_begins() {
        let mut watch = Stopwatch::default();
        let binary = |name: &str| format!("     Running tests/{name}.rs (target/debug/deps/{name}-0f)");
        watch.add_line("   Compiling weir");
        assert!(!watch.is_running());
        watch.add_line(&binary("house"));
        assert!(watch.is_running());
        std::thread::sleep(Duration::from_millis(30));
        watch.add_line(&binary("live"));
        let times = watch.end();
        let names: Vec<&str> = times.taken.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["house", "live"]);
        assert!(times.taken[0].1 >= Duration::from_millis(30));
    }

    #[test]
    fn the_longest_comes_first() {
        let mut times = Times::default();
        assert!(times.is_empty());
        times.add("house", Duration::from_millis(40));
        times.add("live", Duration::from_secs(123));
        assert_eq!(times.to_string(), "ci:   123.0 s  live\nci:     0.0 s  house");
    }
}
