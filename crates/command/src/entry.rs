//! The main function that `weir` and `weir-bench` share: from the command line to the exit code.

use crate::failure::Failure;
use crate::options;
use crate::report::Format;
use crate::signals;
use clap::Parser;
use std::process::ExitCode;
use weir_engine::scratch;

/// Why a command line cannot be run.
pub enum Refused {
    /// It cannot be parsed, or it asks for help.
    Words(clap::Error),
    /// What it names cannot be used.
    Named(Failure),
}

/// Parses the command line and calls `run`. `format` selects the output format of a failure.
pub fn main<C: Parser>(format: impl FnOnce(&C) -> Format, run: impl FnOnce(&C) -> Result<(), Failure>) -> ExitCode {
    main_with(|| C::try_parse().map_err(Refused::Words), format, run)
}

/// Like [`main`], with another way to parse the command line.
pub fn main_with<C>(
    parse: impl FnOnce() -> Result<C, Refused>,
    format: impl FnOnce(&C) -> Format,
    run: impl FnOnce(&C) -> Result<(), Failure>,
) -> ExitCode {
    let asked_for = || options::format_asked_for(std::env::args_os());
    let command = match parse() {
        Ok(command) => command,
        Err(Refused::Words(error)) if error.use_stderr() => return options::refusal(&error).tell(asked_for()),
        // The help or the version. An error on standard output is ignored: its reader has closed it.
        Err(Refused::Words(text)) => {
            let _ = text.print();
            return ExitCode::SUCCESS;
        }
        Err(Refused::Named(failure)) => return failure.tell(asked_for()),
    };
    let outcome = run(&command);
    signals::wait_if_ending();
    // Ends compilers that other threads still run.
    scratch::abandon();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.tell(format(&command)),
    }
}
