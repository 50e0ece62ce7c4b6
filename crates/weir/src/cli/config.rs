//! The command line of `weir config`.

use clap::{Args, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;

/// `weir config`
#[derive(Debug, Args)]
pub struct ConfigOptions {
    /// Print one JSON object.
    #[arg(long, global = true)]
    pub json: bool,
    /// What to do.
    #[command(subcommand)]
    pub command: ConfigCommand,
}

/// The commands of `weir config`.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Check a configuration and its policy. Nothing is compiled or started.
    Check(ConfigWords),
    /// Show each option with its value, and where the value comes from.
    Show(ConfigWords),
}

/// The file and a command line.
#[derive(Debug, Args)]
pub struct ConfigWords {
    /// The configuration; by default /etc/weir/weir.toml.
    pub file: Option<PathBuf>,
    /// Options of `weir run` that win over the file.
    #[arg(last = true, value_name = "OPTIONS")]
    pub words: Vec<OsString>,
}
