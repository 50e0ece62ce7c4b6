//! What CI runs, in order. A failing step does not hide the ones after it.

use crate::fuzz;
use crate::shell::{self, cargo};
use crate::tally::Tally;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// What is off unless asked for, and is tested all the same.
const FEATURES: &str = "--features=weir/dpdk,weir-bench/dpdk";

/// Runs every step and prints the sum of all tests as the last line.
pub fn run(fuzz_seconds: u32) -> Result<(), String> {
    let mut report = Report::default();
    report.step("rustfmt", || shell::run(&mut cargo(["fmt", "--all", "--check"])));
    report.step("clang-format", clang_format);
    report.step("check without features", || shell::run(&mut cargo(["check", "--package", "weir", "--quiet"])));
    report.step("clippy", || {
        let all = ["clippy", "--workspace", "--all-targets", FEATURES, "--quiet", "--", "-D", "warnings"];
        shell::run(&mut cargo(all))
    });
    report.runner("tests", tests);
    report.runner("fuzz", |tally| {
        *tally += fuzz::run(None, fuzz_seconds)?;
        Ok(())
    });
    report.end()
}

/// Runs the tests with every snapshot overwritten by what they produce.
pub fn bless() -> Result<(), String> {
    let mut command = cargo(["test", "--workspace", FEATURES, "--no-fail-fast"]);
    shell::run(command.env("INSTA_UPDATE", "always").env("INSTA_FORCE_PASS", "1"))
}

/// C is formatted by one version of clang-format, because each version has its own opinion. Snapshots of generated C are
/// the emitter's to format.
fn clang_format() -> Result<(), String> {
    let mut files = shell::files(Path::new("."), &["c", "h"]);
    files.retain(|path| !path.starts_with("./tests/policies"));
    if files.is_empty() {
        return Ok(());
    }
    shell::run(Command::new("clang-format-19").args(["--dry-run", "-Werror", "--"]).args(files))
}

fn tests(tally: &mut Tally) -> Result<(), String> {
    let mut command = cargo(["test", "--workspace", FEATURES, "--no-fail-fast"]);
    shell::run_lines(command.env("INSTA_UPDATE", "no"), |line| tally.add_line(line))?;
    // A runner that finds no tests ends well. Ours must not.
    if tally.passed == 0 { Err("no test was run".into()) } else { Ok(()) }
}

/// What the steps came to.
#[derive(Default)]
struct Report {
    tally: Tally,
    broken: Vec<String>,
}

impl Report {
    /// A step that is no test runner: it counts only when it fails.
    fn step(&mut self, name: &str, run: impl FnOnce() -> Result<(), String>) {
        self.runner(name, |_| run());
    }

    /// A step that counts its tests. If it ends badly without a failed test (a crash, a build error), that is one.
    fn runner(&mut self, name: &str, run: impl FnOnce(&mut Tally) -> Result<(), String>) {
        println!("ci: {name}");
        let start = Instant::now();
        let mut tally = Tally::default();
        if let Err(message) = run(&mut tally) {
            self.broken.push(format!("{name}: {message}"));
            tally.failed = tally.failed.max(1);
        }
        self.tally += tally;
        println!("ci: {name} took {:.1} s", start.elapsed().as_secs_f64());
    }

    fn end(self) -> Result<(), String> {
        self.broken.iter().for_each(|message| println!("ci: FAILED {message}"));
        println!("{}", self.tally);
        if self.tally.failed == 0 { Ok(()) } else { Err("ci failed".into()) }
    }
}
