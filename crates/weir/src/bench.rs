//! `weir bench` runs the separate program `weir-bench` with the same arguments. Plotting and peers are thus not part of
//! the product.

use crate::cli::BenchOptions;
use std::env;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use weir_command::failure::Failure;

const PROGRAM: &str = "weir-bench";
/// The option of cargo that puts it beside this program.
const PROFILE: &str = if cfg!(debug_assertions) { "" } else { "--release " };

/// Replaces this process by `weir-bench`. Returns only if that fails.
///
/// # Errors
/// The program does not exist or cannot be started.
pub fn run(options: &BenchOptions) -> Result<(), Failure> {
    let installed = env::current_exe().ok().map(|own| own.with_file_name(PROGRAM)).filter(|program| program.is_file());
    let program = installed.unwrap_or_else(|| PathBuf::from(PROGRAM));
    let error = Command::new(&program).args(&options.arguments).exec();
    Err(match error.kind() {
        ErrorKind::NotFound => Failure::Runtime(format!(
            "weir: bench needs the program {PROGRAM}, which is neither in the directory of this program nor in PATH; \
             in Weir's repository, `cargo build {PROFILE}--package {PROGRAM}` builds it"
        )),
        _ => Failure::file(&program, error),
    })
}
