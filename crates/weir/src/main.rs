//! The binary: reads the command line, runs a command, turns its outcome into an exit code.
#![forbid(unsafe_code)]

use clap::Parser;
use std::process::ExitCode;
use weir::cli::{self, Cli, Command};
use weir::failure::Failure;
use weir::{bench, check, compile, ctl, diff, replay, run, signals, why};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() => {
            return cli::refusal(&error).tell(cli::format_asked_for(std::env::args_os()));
        }
        // The help or the version that was asked for; whoever closes standard output has read enough.
        Err(text) => {
            let _ = text.print();
            return ExitCode::SUCCESS;
        }
    };
    let format = cli.command.format();
    let outcome = run_command(&cli.command);
    // Threads that still compile end here, and so do their compilers.
    weir_engine::scratch::abandon();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.tell(format),
    }
}

fn run_command(command: &Command) -> Result<(), Failure> {
    if !matches!(command, Command::Run(_) | Command::Guard(_) | Command::Ctl(_)) {
        signals::clean_up_and_die()?;
    }
    match command {
        Command::Check(options) => check::run(options),
        Command::Compile(options) => compile::run(options),
        Command::Replay(options) => replay::run(options),
        Command::Why(options) => why::run(options),
        Command::Diff(options) => diff::run(options),
        Command::Run(options) => run::run(options),
        Command::Guard(options) => run::guard::process::run(options),
        Command::Ctl(options) => ctl::run(options),
        Command::Bench(options) => bench::run(options),
    }
}
