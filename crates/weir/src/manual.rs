//! Manual pages and completions of shells, made from the definition of the command line. `weir completions` prints the
//! completions of a shell, and `weir man` writes the manual pages.

use crate::cli::{Cli, CompletionsOptions, ManOptions};
use clap::CommandFactory;
use std::fs;
use weir_command::failure::Failure;
use weir_command::report;

/// Prints the completions of a shell.
///
/// # Errors
/// Standard output cannot be written.
pub fn completions(options: &CompletionsOptions) -> Result<(), Failure> {
    let mut text = Vec::new();
    clap_complete::generate(options.shell, &mut Cli::command(), "weir", &mut text);
    report::print(&String::from_utf8(text).expect("completions are text"))
}

/// Writes a manual page for the program and for each command: `weir.1`, `weir-run.1`, `weir-ctl-table.1`.
///
/// # Errors
/// The folder cannot be made, or a page cannot be written.
pub fn pages(options: &ManOptions) -> Result<(), Failure> {
    let folder = &options.folder;
    fs::create_dir_all(folder).map_err(|error| Failure::file(folder, error))?;
    clap_mangen::generate_to(Cli::command(), folder).map_err(|error| Failure::file(folder, error))
}
