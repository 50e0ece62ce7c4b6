//! The program `weir`: parses the command line, runs the command and returns its exit code.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use weir::cli::{CardCommand, Command};
use weir::config::{self, Parsed};
use weir::{bench, card_plan, card_serve, check, compile, ctl, detect, diff, import, manual, replay, top, why};
use weir_command::failure::Failure;
use weir_command::{entry, signals};

fn main() -> ExitCode {
    let parse = || config::parse(std::env::args_os().collect());
    entry::main_with(parse, |parsed: &Parsed| parsed.cli.command.format(), run_command)
}

fn run_command(parsed: &Parsed) -> Result<(), Failure> {
    let command = &parsed.cli.command;
    let is_served = matches!(command, Command::Card(options) if matches!(options.command, CardCommand::Serve(_)));
    let is_top = matches!(command, Command::Top(_));
    if !is_served
        && !is_top
        && !matches!(command, Command::Run(_) | Command::Guard(_) | Command::Sweep(_) | Command::Ctl(_))
    {
        signals::clean_up_and_die()?;
    }
    match command {
        Command::Check(options) => check::run(options),
        Command::Compile(options) => compile::run(options),
        Command::Replay(options) => replay::run(options),
        Command::Why(options) => why::run(options),
        Command::Diff(options) => diff::run(options),
        Command::Detect(options) => detect::run(options),
        Command::Import(options) => import::run(options),
        Command::Run(options) => weir_daemon::run(options, parsed.configuration.as_ref()),
        Command::Guard(options) => weir_daemon::interfaces::guard::process::run(options),
        Command::Sweep(options) => weir_daemon::parts::card::sweeper::run(options),
        Command::Config(options) => config::run(options),
        Command::Ctl(options) => ctl::run(options),
        Command::Top(options) => top::run(options),
        Command::Card(options) => match &options.command {
            CardCommand::Plan(options) => card_plan::run(options),
            CardCommand::Serve(options) => card_serve::run(options),
        },
        Command::Bench(options) => bench::run(options),
        Command::Completions(options) => manual::completions(options),
        Command::Man(options) => manual::pages(options),
    }
}
