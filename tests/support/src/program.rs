//! Programs that tests start under another name, and scripts in place of programs.
//!
//! Linux refuses to execute a file that any process has open for writing ("Text file busy"). If a test wrote the file
//! itself, a child process that another thread starts meanwhile would inherit the open file for a moment. So another
//! process writes it here.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

/// Copies a program, or makes a program of a file. Every user may run it.
///
/// # Errors
/// `install` of coreutils fails; it says why on standard error.
pub fn install(from: &Path, to: &Path) -> io::Result<()> {
    let status = Command::new("install").args(["-m", "755"]).args([from, to]).status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("install: {status}"))) }
}

/// Makes a script with this text, which begins with `#!`.
///
/// # Errors
/// The folder cannot be written to.
pub fn install_script(text: &str, to: &Path) -> io::Result<()> {
    let written = to.with_extension("text");
    fs::write(&written, text)?;
    install(&written, to)?;
    fs::remove_file(written)
}
