//! From a command line to an exit code: what `weir` and `weir-bench` have in common.

use crate::cli;
use crate::failure::Failure;
use crate::report::Format;
use clap::Parser;
use std::process::ExitCode;
use weir_engine::scratch;

/// Reads the command line and runs what it says. `format` says how a failure is to be reported.
pub fn main<C: Parser>(format: impl FnOnce(&C) -> Format, run: impl FnOnce(&C) -> Result<(), Failure>) -> ExitCode {
    let command = match C::try_parse() {
        Ok(command) => command,
        Err(error) if error.use_stderr() => {
            return cli::refusal(&error).tell(cli::format_asked_for(std::env::args_os()));
        }
        // The help or the version that was asked for; whoever closes standard output has read enough.
        Err(text) => {
            let _ = text.print();
            return ExitCode::SUCCESS;
        }
    };
    let outcome = run(&command);
    // Threads that still compile end here, and so do their compilers.
    scratch::abandon();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.tell(format(&command)),
    }
}
