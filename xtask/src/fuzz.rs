//! Fuzzing with libFuzzer on stable Rust and on C.
//!
//! Rust targets are the binaries of `fuzz/`, built with LLVM's coverage pass, which stable rustc takes through `-C`; C targets
//! are `fuzz/*.c`, with AddressSanitizer and UndefinedBehaviorSanitizer. A run starts from `fuzz/seeds/<target>` and
//! `fuzz/corpus/<target>`, keeps what it learns under cargo's target folder, and leaves what crashed in
//! `fuzz/corpus/<target>`, where `cargo test` replays it from then on.

use crate::shell::{self, cargo, target_dir};
use crate::tally::Tally;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

/// Seconds that CI gives each target.
pub const CI_SECONDS: u32 = 7;

/// Longest input that libFuzzer makes up, in bytes. Longer seeds are cut.
const INPUT_MAX_BYTES: u32 = 4096;
/// An input that takes longer is a hang, in seconds. Sanitized, on a busy machine.
const HANG_SECONDS: u32 = 10;
/// More memory than this is a leak or an unbounded allocation, in MiB.
const MEMORY_MAX_MIB: u32 = 1024;

/// Folders of inputs that are kept for other tests and make good seeds.
const MORE_SEEDS: &[(&str, &str)] = &[("policy_parser", "tests/errors"), ("ir_parser", "crates/policy/tests/programs")];

/// Coverage for libFuzzer, and the checks that a release build leaves out.
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
    "-fno-sanitize-recover=all",
    "-fsanitize=fuzzer,address,undefined",
    "-Idatapath/include",
];

/// Fuzzes `target`, or all of them, for `seconds` each. Counts the targets; the error names those that failed.
pub fn run(target: Option<&str>, seconds: u32) -> Result<Tally, String> {
    let targets = targets();
    let chosen: Vec<&Target> = targets.iter().filter(|t| target.is_none_or(|name| t.name == name)).collect();
    if chosen.is_empty() {
        let names: Vec<&str> = targets.iter().map(|t| t.name.as_str()).collect();
        return Err(format!("no fuzz target {}; there are: {}", target.unwrap_or("at all"), names.join(", ")));
    }
    if chosen.iter().any(|t| t.source.extension().is_some_and(|e| e == "rs")) {
        shell::run(&mut build_rust()?)?;
    }
    fuzz_chosen(chosen, seconds)
}

/// Fuzzes all targets for `seconds` each, after [`Build::wait`].
pub fn run_built(seconds: u32) -> Result<Tally, String> {
    fuzz_chosen(targets().iter().collect(), seconds)
}

/// The build of the Rust targets, in the background.
pub struct Build(Child);

impl Build {
    /// Starts the build.
    pub fn start() -> Result<Self, String> {
        let started = shell::in_background(&build_rust()?).stdin(Stdio::null()).spawn();
        started.map(Build).map_err(|error| format!("building fuzz targets: {error}"))
    }

    /// Returns when the targets are built.
    pub fn wait(mut self) -> Result<(), String> {
        let status = self.0.wait().map_err(|error| format!("building fuzz targets: {error}"))?;
        if status.success() { Ok(()) } else { Err(format!("building fuzz targets: {status}")) }
    }
}

fn fuzz_chosen(chosen: Vec<&Target>, seconds: u32) -> Result<Tally, String> {
    let (mut tally, mut broken) = (Tally::default(), Vec::new());
    for outcome in fuzz_all(chosen, seconds) {
        match outcome {
            Ok(()) => tally.passed += 1,
            Err(message) => broken.push(message),
        }
    }
    println!("fuzz: {} targets held, {} failed", tally.passed, broken.len());
    if broken.is_empty() { Ok(tally) } else { Err(broken.join("; ")) }
}

/// Fuzzes targets in parallel, one on each core: a target is a process with one thread.
fn fuzz_all(targets: Vec<&Target>, seconds: u32) -> Vec<Result<(), String>> {
    let queue = Mutex::new(targets.into_iter());
    let next = || queue.lock().expect("no worker panics while it holds the lock").next();
    let work = || std::iter::from_fn(next).map(|target| target.fuzz(seconds)).collect::<Vec<_>>();
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .flat_map(|worker| worker.join().expect("a worker reports failures and does not panic"))
            .collect()
    })
}

/// A fuzz target: its name and the file it is written in.
struct Target {
    name: String,
    source: PathBuf,
}

/// `fuzz/src/bin/<name>.rs` and `fuzz/<name>.c`.
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
    fn fuzz(&self, seconds: u32) -> Result<(), String> {
        let program = match self.source.extension() {
            Some(extension) if extension == "c" => self.build_c()?,
            _ => rust_dir()?.join(&self.name),
        };
        let name = &self.name;
        let learnt = target_dir().join("fuzz").join(name);
        let seeds = PathBuf::from(format!("fuzz/seeds/{name}"));
        let crashes = PathBuf::from(format!("fuzz/corpus/{name}"));
        for dir in [&learnt, &seeds, &crashes] {
            std::fs::create_dir_all(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        }
        let mut command = Command::new(program);
        command.arg(format!("-max_total_time={seconds}"));
        command.arg(format!("-max_len={INPUT_MAX_BYTES}"));
        command.arg(format!("-timeout={HANG_SECONDS}"));
        command.arg(format!("-rss_limit_mb={MEMORY_MAX_MIB}"));
        command.arg(format!("-artifact_prefix={}/", crashes.display()));
        command.args(["-verbosity=1", "-print_final_stats=0", "-reload=0"]);
        command.args([&learnt, &seeds, &crashes]);
        command.args(MORE_SEEDS.iter().filter(|(target, _)| target == name).map(|(_, folder)| folder));
        println!("fuzz: {name}, {seconds} s");
        let said = quiet_run(&mut command).map_err(|message| format!("{name}: {message}"))?;
        println!("fuzz: {name} held\n{said}");
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
    // libFuzzer itself is C++: the compiler that we require anyway.
    command.env("CXX", "clang++-19");
    Ok(command)
}

fn rust_dir() -> Result<PathBuf, String> {
    Ok(target_dir().join(host()?).join("debug"))
}

/// The host's target triple. Named outright, so that build scripts and macros are spared the coverage flags.
fn host() -> Result<String, String> {
    let rustc = Command::new("rustc").arg("-vV").output().map_err(|error| format!("rustc: {error}"))?;
    let version = String::from_utf8_lossy(&rustc.stdout).into_owned();
    version.lines().find_map(|line| line.strip_prefix("host: ")).map(str::to_owned).ok_or("rustc -vV: no host".into())
}

/// Runs a fuzz target and returns the two lines that sum up its output. The rest is only of use when it fails.
fn quiet_run(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        eprintln!("{said}");
        return Err(format!("{}, see above", output.status));
    }
    // Without counters libFuzzer throws dice: the build flags have stopped working.
    let loaded =
        said.lines().find(|line| line.contains("inline 8-bit counters)")).ok_or("no coverage counters seen")?;
    let done = said.lines().rev().find(|line| line.starts_with("Done ")).unwrap_or("");
    Ok(format!("  {loaded}\n  {done}"))
}
