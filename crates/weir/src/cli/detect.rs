//! The command line of `weir detect`.

use clap::Args;
use std::path::PathBuf;
use weir_command::inside::Inside;

/// `weir detect`
#[derive(Debug, Args)]
pub struct DetectOptions {
    /// The captures, parts of one recording in order; `-` is standard input.
    #[arg(required = true, value_name = "CAPTURE")]
    pub captures: Vec<PathBuf>,
    /// Measure only what this policy, or bundle, does not drop.
    #[arg(long, value_name = "POLICY")]
    pub policy: Option<PathBuf>,
    /// Protect these prefixes: packets from them are answers. Without them, every destination is protected.
    #[arg(long, value_name = "PREFIX", value_delimiter = ',')]
    pub inside: Vec<Inside>,
    /// Export each attack into this folder: a capture, a policy, and the counts that `weir replay --expect` compares.
    #[arg(long, value_name = "DIR")]
    pub export: Option<PathBuf>,
    /// Compare with labels: a line `N,0` or `N,1` a packet, N from 1 over all captures, 1 for attack.
    #[arg(long, value_name = "CSV")]
    pub labels: Option<PathBuf>,
    /// As if no posture with `tcp synproxy` were prepared.
    #[arg(long)]
    pub no_synproxy: bool,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}
