//! `weir bench`: hands its words to `weir-bench`, a program of its own, so that the product carries no plotting and no peers.

use crate::cli::BenchOptions;
use crate::failure::Failure;
use std::env;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

const PROGRAM: &str = "weir-bench";

/// Runs the command. It returns only if there is no such program, or it cannot be started.
///
/// # Errors
/// Why it cannot.
pub fn run(options: &BenchOptions) -> Result<(), Failure> {
    let beside = env::current_exe().ok().map(|own| own.with_file_name(PROGRAM)).filter(|program| program.is_file());
    let program = beside.unwrap_or_else(|| PathBuf::from(PROGRAM));
    let error = Command::new(&program).args(&options.words).exec();
    Err(match error.kind() {
        ErrorKind::NotFound => Failure::Runtime(format!(
            "weir: bench is a program of its own, {PROGRAM}, which is neither beside this one nor in PATH; \
             `cargo build --release --package {PROGRAM}` builds it"
        )),
        _ => Failure::file(&program, error),
    })
}
