//! The steps of CI, in order. Later steps run even if one fails.

use crate::binaries::{self, Binary};
use crate::shell::{self, cargo, target_dir};
use crate::tally::{Failure, Tally};
use crate::times::Times;
use crate::{compile_once, fuzz};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Features that are off by default, but tested.
pub const FEATURES: &str = "--features=weir/dpdk,weir-bench/dpdk";

/// The lookups that compiled policies take (`crates/engine/src/kernels.rs`): with AVX-512 those of prefixes and of sets
/// of IPv6, without it those of sets of IPv4, so both kinds run. Without this variable each process times them. Its noise
/// would give the same policy different flags, and it would be compiled again.
const KERNELS: (&str, &str) = ("WEIR_KERNELS", "14");

/// Number of parallel tests per core. Tests on interfaces mostly wait.
const TESTS_PER_CORE: usize = 2;

/// The tests on interfaces. They wait for the kernel, and have limits of time.
const LIVE: &str = "weir live";
/// The binaries that take longest, which begin first.
const LONGEST: &[&str] = &[LIVE, "weir random", "weir features", "weir command", "weir kernel", "weir tracking"];
/// All scenarios of the benchmarks at their smallest scale. They notice lost packets, and use interfaces of the kernel as
/// other tests do. They leave the processors idle half of the time.
const SMOKE: &str = "weir-bench smoke";
/// Tests that only compute. They run beside [`SMOKE`].
const COMPUTING: &[&str] = &[
    "weir-card rtl",
    "weir adversary",
    "weir-tables weir_tables",
    "weir-tables lookup",
    "weir-schemes schemes",
    "weir-bench weir_bench",
    "weir-daemon weir_daemon",
    "weir-fuzz corpus",
];
/// Gives them a processor only when nothing else wants it.
const WHEN_IDLE: [&str; 3] = ["chrt", "--idle", "0"];
/// Gives the processors to [`LIVE`] first. The other tests compile and compute.
const NICE: [&str; 3] = ["nice", "-n", "10"];
/// Ends a test binary, and what it has started, after 45 minutes, or when this program ends. Without it, one test that
/// hangs would hide the results of all others.
const LIMIT: [&str; 7] = ["setpriv", "--pdeathsig", "TERM", "timeout", "--kill-after", "30", "2700"];
/// Maximum number of failed tests of [`LIVE`] that are repeated. More of them are not the fault of a busy machine.
const REPEATED_MAX: usize = 3;

/// The seed of random tests, so that no change is held back by a case that chance has found. Without this variable, a
/// test tries new cases each time.
const SEED: (&str, &str) = ("PROPTEST_RNG_SEED", "38");

/// Runs every step. Prints the durations, the messages of all failures, and as last line the sum of all tests.
pub fn run() -> Result<(), String> {
    let mut report = Report::default();
    report.step("rustfmt", cargo(["fmt", "--all", "--check"]));
    report.step("clang-format", clang_format());
    report.step("check without features", cargo(["check", "--package", "weir", "--quiet"]));
    let clippy = ["clippy", "--workspace", "--all-targets", FEATURES, "--quiet", "--", "-D", "warnings"];
    report.step("clippy", cargo(clippy));
    report.step("build tests", cargo(["test", "--workspace", FEATURES, "--no-run", "--quiet"]));
    let (mut by_binary, mut later) = (Times::default(), Vec::new());
    report.runner("tests", || tests(&mut by_binary, &mut later));
    report.runner("smoke and fuzz", || smoke_and_fuzz(later, &mut by_binary));
    report.end(&by_binary)
}

/// Runs the tests and overwrites every snapshot with their output.
pub fn bless() -> Result<(), String> {
    let mut command = cargo(["test", "--workspace", FEATURES, "--no-fail-fast"]);
    shell::run(command.env("INSTA_UPDATE", "always").env("INSTA_FORCE_PASS", "1"))
}

/// Checks the C with one version of clang-format, because versions format differently. Generated C in snapshots is
/// excluded.
fn clang_format() -> Command {
    let mut files = shell::files(Path::new("."), &["c", "h"]);
    files.retain(|path| !path.starts_with("./tests/policies"));
    let mut command = Command::new("clang-format-19");
    command.args(["--dry-run", "-Werror", "--"]).args(files);
    command
}

/// Runs the tests, one binary per core at a time. [`SMOKE`] and [`COMPUTING`] are put into `later`.
fn tests(times: &mut Times, later: &mut Vec<Binary>) -> Result<Tally, String> {
    let cores = shell::cores();
    let cache = target_dir().join("compile-once");
    let path = compile_once::install(&cache, None)?;
    let test = |what| {
        let mut command = cargo(["test", "--workspace", FEATURES, "--no-fail-fast", what]);
        command.env("INSTA_UPDATE", "no").env("RUST_TEST_THREADS", (TESTS_PER_CORE * cores).to_string());
        command.env("PATH", &path).env(SEED.0, SEED.1).env(KERNELS.0, KERNELS.1);
        command
    };
    let mut listing = test("--tests");
    let mut binaries = binaries::list(listing.arg("--quiet"), &target_dir().join("binaries"))?;
    let order = |name: &str| LONGEST.iter().position(|longest| *longest == name).unwrap_or(LONGEST.len());
    binaries.sort_by_key(|binary| order(&binary.name));
    let live = binaries.iter().find(|binary| binary.name == LIVE).map(|binary| shell::started_by([], &binary.command));
    for name in COMPUTING.iter().chain([&SMOKE]) {
        let found = later.len();
        later.extend(binaries.extract_if(.., |binary| binary.name == *name));
        if later.len() == found {
            return Err(format!("{name} is no test binary"));
        }
    }
    let documents = run_tests(Binary { name: "doc-tests".into(), command: test("--doc") });
    let mut sum = Tally::default();
    let mut results = vec![documents];
    results.extend(shell::in_parallel(binaries, cores, run_tests));
    for (name, took, tally) in results {
        times.add(name, took);
        sum += tally;
    }
    if let Some(live) = live {
        repeat_alone(live, &mut sum);
    }
    println!("ci: {}", compile_once::Calls::of(&cache));
    // A test runner without tests succeeds, which would hide an error here.
    if sum.passed == 0 { Err("no test was run".into()) } else { Ok(sum) }
}

/// Runs the smallest benchmarks, and meanwhile fuzzes the C, and then runs the other tests of `later`.
fn smoke_and_fuzz(mut later: Vec<Binary>, times: &mut Times) -> Result<Tally, String> {
    let smoke: Vec<Binary> = later.extract_if(.., |binary| binary.name == SMOKE).collect();
    std::thread::scope(|scope| {
        let smoke = scope.spawn(|| smoke.into_iter().map(run_tests).collect::<Vec<_>>());
        let mut sum = fuzz::run_c();
        let mut results: Vec<_> = later.into_iter().map(run_tests).collect();
        results.extend(smoke.join().map_err(|_| "a thread panicked".to_owned())?);
        for (name, took, tally) in results {
            times.add(name, took);
            sum += tally;
        }
        Ok(sum)
    })
}

/// Repeats the few tests on interfaces that failed while the other tests used the processors, one after another. The
/// sum names those that pass now: their limits of time were too short for a busy machine, or they are wrong at times.
fn repeat_alone(mut live: Command, sum: &mut Tally) {
    let failed = sum.failed_tests(LIVE);
    if (1..=REPEATED_MAX).contains(&failed.len()) {
        live.arg("--exact").args(failed).env("RUST_TEST_THREADS", "1");
        let (_, _, repeated) = run_tests(Binary { name: LIVE.into(), command: live });
        sum.replace_failures(LIVE, repeated);
    }
}

/// Runs a test binary. Returns its name and duration, and its results.
fn run_tests(binary: Binary) -> (String, Duration, Tally) {
    let Binary { name, command } = binary;
    let command = match name.as_str() {
        LIVE => command,
        other if COMPUTING.contains(&other) => shell::started_by(WHEN_IDLE, &command),
        _ => shell::started_by(NICE, &command),
    };
    let mut command = shell::started_by(LIMIT, &command);
    let start = Instant::now();
    let (output, outcome) = shell::run_and_read(&name, &mut command);
    let tally = Tally::read(&name, &output, outcome);
    (name, start.elapsed(), tally)
}

/// The results of the steps.
#[derive(Default)]
struct Report {
    tally: Tally,
    times: Times,
}

impl Report {
    /// Runs a step without tests. It counts only if it fails.
    fn step(&mut self, name: &str, mut command: Command) {
        self.runner(name, || {
            let (output, outcome) = shell::run_and_read(name, &mut command);
            outcome.map(|()| Tally::default()).map_err(|status| format!("{status}\n{output}"))
        });
    }

    /// Runs a step and counts its tests. A failure of the step itself (such as a build error) counts as one.
    fn runner(&mut self, name: &str, run: impl FnOnce() -> Result<Tally, String>) {
        println!("ci: {name}");
        let start = Instant::now();
        match run() {
            Ok(tally) => self.tally += tally,
            Err(message) => self.tally.failures.push(Failure::new(name, &message)),
        }
        self.times.add(name, start.elapsed());
    }

    fn end(self, by_binary: &Times) -> Result<(), String> {
        println!("ci: time by step:\n{}", self.times);
        println!("ci: time by test binary:\n{by_binary}");
        print!("{}", self.tally.failures());
        println!("{}", self.tally);
        if self.tally.failures.is_empty() { Ok(()) } else { Err("ci failed".into()) }
    }
}
