//! The program `weir`: parses the command line, runs the command and returns its exit code.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use weir::cli::{CardCommand, Cli, Command};
use weir::{bench, card_plan, card_serve, check, compile, ctl, detect, diff, manual, replay, why};
use weir_command::failure::Failure;
use weir_command::{entry, signals};

fn main() -> ExitCode {
    entry::main(|cli: &Cli| cli.command.format(), |cli| run_command(&cli.command))
}

fn run_command(command: &Command) -> Result<(), Failure> {
    let is_served = matches!(command, Command::Card(options) if matches!(options.command, CardCommand::Serve(_)));
    if !is_served && !matches!(command, Command::Run(_) | Command::Guard(_) | Command::Sweep(_) | Command::Ctl(_)) {
        signals::clean_up_and_die()?;
    }
    match command {
        Command::Check(options) => check::run(options),
        Command::Compile(options) => compile::run(options),
        Command::Replay(options) => replay::run(options),
        Command::Why(options) => why::run(options),
        Command::Diff(options) => diff::run(options),
        Command::Detect(options) => detect::run(options),
        Command::Run(options) => weir_daemon::run(options),
        Command::Guard(options) => weir_daemon::interfaces::guard::process::run(options),
        Command::Sweep(options) => weir_daemon::parts::card::sweeper::run(options),
        Command::Ctl(options) => ctl::run(options),
        Command::Card(options) => match &options.command {
            CardCommand::Plan(options) => card_plan::run(options),
            CardCommand::Serve(options) => card_serve::run(options),
        },
        Command::Bench(options) => bench::run(options),
        Command::Completions(options) => manual::completions(options),
        Command::Man(options) => manual::pages(options),
    }
}
