//! The binary: reads the command line, runs a command, turns its outcome into an exit code.
#![forbid(unsafe_code)]

use clap::Parser;
use std::process::ExitCode;
use weir::cli::{Cli, Command};
use weir::{bench, check, compile, ctl, diff, replay, run, why};

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Check(options) => check::run(&options),
        Command::Compile(options) => compile::run(&options),
        Command::Replay(options) => replay::run(&options),
        Command::Why(options) => why::run(&options),
        Command::Diff(options) => diff::run(&options),
        Command::Run(options) => run::run(&options),
        Command::Guard(options) => run::guard::process::run(&options),
        Command::Ctl(options) => ctl::run(&options),
        Command::Bench(options) => bench::run(&options),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            failure.exit_code()
        }
    }
}
