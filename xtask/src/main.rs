//! Project tasks: `cargo xtask ci` is what CI runs and what `make test` runs, step by step the same.
//!
//! It starts other programs and counts what they say; it decides nothing about the code itself. The rules that the
//! code is held to are tests (`tests/house.rs`), so that `cargo test` alone finds them broken.
#![forbid(unsafe_code)]

mod ci;
mod compile_once;
mod fuzz;
mod shell;
mod tally;
mod times;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Weir's project tasks.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Everything that CI checks: formatting, lints, tests, a bounded run of every fuzz target.
    Ci {
        /// Seconds for each fuzz target.
        #[arg(long, default_value_t = fuzz::CI_SECONDS)]
        fuzz_seconds: u32,
    },
    /// Fuzz one target, or all of them in turn. What crashes joins fuzz/corpus/<target>.
    Fuzz {
        /// Seconds for each target.
        #[arg(long, default_value_t = 60)]
        seconds: u32,
        /// One of the targets; all if not given.
        target: Option<String>,
    },
    /// Accept what the snapshot tests produce now. Review it with `git diff`: it is code.
    Bless,
}

fn main() -> ExitCode {
    if let Some(code) = compile_once::called_as_compiler() {
        return code;
    }
    shell::enter_root();
    let result = match Cli::parse().task {
        Task::Ci { fuzz_seconds } => ci::run(fuzz_seconds),
        Task::Fuzz { seconds, target } => fuzz::run(target.as_deref(), seconds).map(|_| ()),
        Task::Bless => ci::bless(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}
