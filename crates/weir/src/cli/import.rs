//! The command line of `weir import`.

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// `weir import`
#[derive(Debug, Args)]
pub struct ImportOptions {
    /// Where the rules come from.
    #[command(subcommand)]
    pub format: ImportFormat,
}

/// Other packet filters, and lists of theirs.
#[derive(Debug, Subcommand)]
pub enum ImportFormat {
    /// The output of `nft -j list ruleset`.
    Nft(RulesetOptions),
    /// The output of `iptables-save` and `ip6tables-save`, and of `ipset save` if rules match sets.
    Iptables(RulesetOptions),
    /// The output of `ipset save`.
    Ipset(ImportedFiles),
    /// FastNetMon's fastnetmon.conf, networks_list and networks_whitelist.
    Fastnetmon(ImportedFiles),
    /// Decisions of CrowdSec: `cscli decisions list -o json` or its CSV, or the stream of the local API.
    Crowdsec(ImportedFiles),
}

/// What is read and written.
#[derive(Debug, Args)]
pub struct ImportedFiles {
    /// The files; `-` is standard input.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Write imported.weir, lists/ and report.txt into this directory. Otherwise the policy is printed, and the report
    /// goes to standard error.
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Replace files that are in the directory.
    #[arg(long, requires = "output")]
    pub force: bool,
    /// The protected prefixes, for `inside { ... }`.
    #[arg(long, value_name = "PREFIX", value_delimiter = ',')]
    pub inside: Vec<String>,
    /// Fail with exit code 2 if something was left out or is not quite the same. The files are written nevertheless.
    #[arg(long)]
    pub strict: bool,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// What is read of a ruleset.
#[derive(Debug, Args)]
pub struct RulesetOptions {
    /// Files, output, and how to end.
    #[command(flatten)]
    pub files: ImportedFiles,
    /// Import the rules for the host itself (for `weir run --host`): `input` becomes upstream, `output` downstream.
    /// Otherwise the rules for forwarded packets are imported.
    #[arg(long)]
    pub host: bool,
    /// The outer interfaces. Rules that name interfaces then belong to a direction.
    #[arg(long, value_name = "IF", value_delimiter = ',')]
    pub outside: Vec<String>,
}

impl ImportFormat {
    /// The options that all formats have.
    pub fn files(&self) -> &ImportedFiles {
        match self {
            ImportFormat::Nft(options) | ImportFormat::Iptables(options) => &options.files,
            ImportFormat::Ipset(files) | ImportFormat::Fastnetmon(files) | ImportFormat::Crowdsec(files) => files,
        }
    }
}
