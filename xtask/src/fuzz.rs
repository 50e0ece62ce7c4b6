//! Fuzzing with libFuzzer, on stable Rust and on C.
//!
//! Rust targets are the binaries of `fuzz/`, built with LLVM's coverage pass, which stable rustc accepts through `-C`.
//! C targets are `fuzz/*.c`, with AddressSanitizer and UndefinedBehaviorSanitizer. A run starts from
//! `fuzz/seeds/<target>` and `fuzz/corpus/<target>`. New inputs are kept in cargo's target folder. Crashing inputs are
//! written to `fuzz/corpus/<target>`, which `cargo test` replays.

use crate::shell::{self, cargo, target_dir};
use crate::tally::{Failure, Tally};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Duration of each target in CI, in seconds.
const CI_SECONDS: u32 = 5;
/// The seed in CI: the same inputs are tried each time, so no change fails by chance.
const SEED: u32 = 1;

/// Maximum length of generated inputs in bytes. Longer seeds are truncated.
const INPUT_MAX_BYTES: u32 = 4096;
/// Maximum time for an input in seconds. It allows for sanitizers on a busy machine.
const HANG_SECONDS: u32 = 10;
/// Maximum memory in MiB. More means a leak or an unbounded allocation.
const MEMORY_MAX_MIB: u32 = 1024;

/// Leaves the processors to benchmarks that run meanwhile.
const NICE: [&str; 3] = ["nice", "-n", "10"];

/// Folders with inputs of other tests that serve as additional seeds.
const MORE_SEEDS: &[(&str, &str)] = &[("policy_parser", "tests/errors"), ("ir_parser", "crates/policy/tests/programs")];

/// Flags for libFuzzer's coverage, and for the checks that release builds omit.
const RUSTFLAGS: &str = "--cfg fuzzing -Cdebug-assertions -Coverflow-checks -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares";
const CFLAGS: &[&str] = &[
    "-std=c11",
    "-g",
    "-O1",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wno-psabi",
    "-fno-sanitize-recover=all",
    "-fsanitize=fuzzer,address,undefined",
    "-Idatapath",
];

/// Fuzzes `target`, or all targets, for `seconds` each. The error contains the messages of the failed ones.
pub fn run(target: Option<&str>, seconds: u32) -> Result<(), String> {
    let targets = targets();
    let chosen: Vec<&Target> = targets.iter().filter(|t| target.is_none_or(|name| t.name == name)).collect();
    if chosen.is_empty() {
        let names: Vec<&str> = targets.iter().map(|t| t.name.as_str()).collect();
        return Err(format!("no fuzz target {}; known: {}", target.unwrap_or("at all"), names.join(", ")));
    }
    if !chosen.iter().all(|target| target.is_c()) {
        shell::run(&mut build_rust()?)?;
    }
    let tally = fuzz_chosen(chosen, seconds, None);
    if tally.failures.is_empty() { Ok(()) } else { Err(format!("{tally}\n{}", tally.failures())) }
}

/// Fuzzes the targets in C, for [`CI_SECONDS`] each. `fuzz/tests` has mutants for those in Rust, because their build
/// with libFuzzer takes longer than all their tests.
pub fn run_c() -> Tally {
    fuzz_chosen(targets().iter().filter(|target| target.is_c()).collect(), CI_SECONDS, Some(SEED))
}

/// Fuzzes targets in parallel, one per core, because each is a process with one thread.
fn fuzz_chosen(chosen: Vec<&Target>, seconds: u32, seed: Option<u32>) -> Tally {
    let mut tally = Tally::default();
    for outcome in shell::in_parallel(chosen, shell::cores(), |target| target.fuzz(seconds, seed)) {
        match outcome {
            Ok(()) => tally.passed += 1,
            Err(failure) => tally.failures.push(failure),
        }
    }
    println!("fuzz: {tally}");
    tally
}

/// A fuzz target.
struct Target {
    name: String,
    source: PathBuf,
}

/// The targets in `fuzz/src/bin/<name>.rs` and `fuzz/<name>.c`.
fn targets() -> Vec<Target> {
    let rust = shell::files(Path::new("fuzz/src/bin"), &["rs"]);
    let c = shell::files(Path::new("fuzz"), &["c"]);
    let target = |source: PathBuf| {
        let name = source.file_stem().expect("a file with an extension has a stem").to_string_lossy().into_owned();
        Target { name, source }
    };
    rust.into_iter().chain(c).map(target).collect()
}

impl Target {
    fn is_c(&self) -> bool {
        self.source.extension().is_some_and(|extension| extension == "c")
    }

    fn fuzz(&self, seconds: u32, seed: Option<u32>) -> Result<(), Failure> {
        self.try_fuzz(seconds, seed).map_err(|message| Failure::new(format!("fuzz: {}", self.name), &message))
    }

    fn try_fuzz(&self, seconds: u32, seed: Option<u32>) -> Result<(), String> {
        let program = if self.is_c() { self.build_c()? } else { rust_dir()?.join(&self.name) };
        let name = &self.name;
        let learnt = target_dir().join("fuzz").join(name);
        let seeds = PathBuf::from(format!("fuzz/seeds/{name}"));
        let crashes = PathBuf::from(format!("fuzz/corpus/{name}"));
        for dir in [&learnt, &seeds, &crashes] {
            std::fs::create_dir_all(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        }
        let mut command = Command::new(program);
        command.arg(format!("-max_total_time={seconds}"));
        command.args(seed.map(|seed| format!("-seed={seed}")));
        command.arg(format!("-max_len={INPUT_MAX_BYTES}"));
        command.arg(format!("-timeout={HANG_SECONDS}"));
        command.arg(format!("-rss_limit_mb={MEMORY_MAX_MIB}"));
        command.arg(format!("-artifact_prefix={}/", crashes.display()));
        command.args(["-verbosity=1", "-print_final_stats=0", "-reload=0"]);
        command.args([&learnt, &seeds, &crashes]);
        command.args(MORE_SEEDS.iter().filter(|(target, _)| target == name).map(|(_, folder)| folder));
        println!("fuzz: {name}, {seconds} s");
        let summary = quiet_run(&mut shell::started_by(NICE, &command))?;
        println!("fuzz: {name} passed\n{summary}");
        Ok(())
    }

    fn build_c(&self) -> Result<PathBuf, String> {
        let dir = target_dir().join("fuzz");
        std::fs::create_dir_all(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        let program = dir.join(format!("{}.bin", self.name));
        shell::run(Command::new("clang-19").args(CFLAGS).arg(&self.source).arg("-o").arg(&program))?;
        Ok(program)
    }
}

/// The command that builds the Rust targets.
fn build_rust() -> Result<Command, String> {
    let mut command = cargo(["build", "--package", "weir-fuzz", "--features", "libfuzzer", "--bins", "--quiet"]);
    command.args(["--target", &host()?]).env("RUSTFLAGS", RUSTFLAGS);
    // libFuzzer is C++. This uses the compiler that is required anyway.
    command.env("CXX", "clang++-19");
    Ok(command)
}

fn rust_dir() -> Result<PathBuf, String> {
    Ok(target_dir().join(host()?).join("debug"))
}

/// The host's target triple. With an explicit target, build scripts and macros do not get the coverage flags.
fn host() -> Result<String, String> {
    let rustc = Command::new("rustc").arg("-vV").output().map_err(|error| format!("rustc: {error}"))?;
    let version = String::from_utf8_lossy(&rustc.stdout).into_owned();
    version.lines().find_map(|line| line.strip_prefix("host: ")).map(str::to_owned).ok_or("rustc -vV: no host".into())
}

/// Runs a fuzz target and returns two summarizing lines of its output. If it fails, all output is printed, and the
/// error begins at the panic or at the sanitizer's report.
fn quiet_run(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| error.to_string())?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        eprintln!("{stderr}");
        let lines: Vec<&str> = stderr.lines().collect();
        let first = lines.iter().position(|line| line.contains(" panicked at ") || line.contains("ERROR: "));
        return Err(format!("{}, see above\n{}", output.status, lines[first.unwrap_or(0)..].join("\n")));
    }
    // Without counters libFuzzer would mutate inputs blindly. This means that the build flags no longer work.
    let loaded =
        stderr.lines().find(|line| line.contains("inline 8-bit counters)")).ok_or("no coverage counters seen")?;
    let done = stderr.lines().rev().find(|line| line.starts_with("Done ")).unwrap_or("");
    Ok(format!("  {loaded}\n  {done}"))
}
