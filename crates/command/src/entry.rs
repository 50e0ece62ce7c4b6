//! The main function that `weir` and `weir-bench` share: from the command line to the exit code.

use crate::failure::Failure;
use crate::options;
use crate::report::Format;
use crate::signals;
use clap::Parser;
use std::process::ExitCode;
use weir_engine::scratch;

/// Parses the command line and calls `run`. `format` selects the output format of a failure.
pub fn main<C: Parser>(format: impl FnOnce(&C) -> Format, run: impl FnOnce(&C) -> Result<(), Failure>) -> ExitCode {
    let command = match C::try_parse() {
        Ok(command) => command,
        Err(error) if error.use_stderr() => {
            return options::refusal(&error).tell(options::format_asked_for(std::env::args_os()));
        }
        // The help or the version. An error on standard output is ignored: its reader has closed it.
        Err(text) => {
            let _ = text.print();
            return ExitCode::SUCCESS;
        }
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
