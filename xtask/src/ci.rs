//! The steps of CI, in order. Later steps run even if one fails.

use crate::shell::{self, cargo, target_dir};
use crate::tally::Tally;
use crate::times::{Stopwatch, Times};
use crate::{compile_once, fuzz};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// Features that are off by default, but tested.
const FEATURES: &str = "--features=weir/dpdk,weir-bench/dpdk";

/// Number of parallel tests per core. Tests on interfaces mostly wait.
const TESTS_PER_CORE: usize = 2;

/// Runs every step. Prints the durations, and as last line the sum of all tests.
pub fn run(fuzz_seconds: u32) -> Result<(), String> {
    let mut report = Report::default();
    report.step("rustfmt", || shell::run(&mut cargo(["fmt", "--all", "--check"])));
    report.step("clang-format", clang_format);
    report.step("check without features", || shell::run(&mut cargo(["check", "--package", "weir", "--quiet"])));
    report.step("clippy", || {
        let all = ["clippy", "--workspace", "--all-targets", FEATURES, "--quiet", "--", "-D", "warnings"];
        shell::run(&mut cargo(all))
    });
    report.step("build tests", || shell::run(&mut cargo(["test", "--workspace", FEATURES, "--no-run", "--quiet"])));
    let mut binaries = Times::default();
    let mut fuzz_build = None;
    report.runner("tests", |tally| tests(tally, &mut binaries, &mut fuzz_build));
    report.runner("fuzz", |tally| {
        fuzz_build.unwrap_or_else(fuzz::Build::start)?.wait()?;
        *tally += fuzz::run_built(fuzz_seconds)?;
        Ok(())
    });
    report.end(&binaries)
}

/// Runs the tests and overwrites every snapshot with their output.
pub fn bless() -> Result<(), String> {
    let mut command = cargo(["test", "--workspace", FEATURES, "--no-fail-fast"]);
    shell::run(command.env("INSTA_UPDATE", "always").env("INSTA_FORCE_PASS", "1"))
}

/// Checks the C with one version of clang-format, because versions format differently. Generated C in snapshots is
/// excluded.
fn clang_format() -> Result<(), String> {
    let mut files = shell::files(Path::new("."), &["c", "h"]);
    files.retain(|path| !path.starts_with("./tests/policies"));
    if files.is_empty() {
        return Ok(());
    }
    shell::run(Command::new("clang-format-19").args(["--dry-run", "-Werror", "--"]).args(files))
}

/// Runs the tests. They wait for interfaces much of the time, in which the fuzz targets are built. This build starts with the first test binary:
/// until then cargo locks the folder that both build in.
fn tests(
    tally: &mut Tally,
    binaries: &mut Times,
    fuzz_build: &mut Option<Result<fuzz::Build, String>>,
) -> Result<(), String> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut command = cargo(["test", "--workspace", FEATURES, "--no-fail-fast"]);
    command.env("INSTA_UPDATE", "no").env("RUST_TEST_THREADS", (TESTS_PER_CORE * cores).to_string());
    command.env("PATH", compile_once::install(&target_dir().join("compile-once"))?);
    let mut watch = Stopwatch::default();
    let outcome = shell::run_lines(&mut command, |line| {
        tally.add_line(line);
        watch.add_line(line);
        if watch.is_running() {
            fuzz_build.get_or_insert_with(fuzz::Build::start);
        }
    });
    *binaries = watch.end();
    outcome?;
    // A test runner without tests succeeds, which would hide an error here.
    if tally.passed == 0 || binaries.is_empty() { Err("no test was run".into()) } else { Ok(()) }
}

/// The results of the steps.
#[derive(Default)]
struct Report {
    tally: Tally,
    broken: Vec<String>,
    times: Times,
}

impl Report {
    /// Runs a step without tests. It counts only if it fails.
    fn step(&mut self, name: &str, run: impl FnOnce() -> Result<(), String>) {
        self.runner(name, |_| run());
    }

    /// Runs a step and counts its tests. A failure without a failed test (a crash, a build error) counts as one.
    fn runner(&mut self, name: &str, run: impl FnOnce(&mut Tally) -> Result<(), String>) {
        println!("ci: {name}");
        let start = Instant::now();
        let mut tally = Tally::default();
        if let Err(message) = run(&mut tally) {
            self.broken.push(format!("{name}: {message}"));
            tally.failed = tally.failed.max(1);
        }
        self.tally += tally;
        self.times.add(name, start.elapsed());
    }

    fn end(self, binaries: &Times) -> Result<(), String> {
        println!("ci: time by step:\n{}", self.times);
        println!("ci: time by test binary:\n{binaries}");
        self.broken.iter().for_each(|message| println!("ci: FAILED {message}"));
        println!("{}", self.tally);
        if self.tally.failed == 0 { Ok(()) } else { Err("ci failed".into()) }
    }
}
