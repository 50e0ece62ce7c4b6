//! From the rules of other packet filters to a policy: text in, text out, with a finding for everything that is not in
//! the policy as it was in the source.
//!
//! ```text
//!   nft, iptables --read--> Ruleset --flatten--> lines of each direction --write--> policy, lists
//!   ipset, fastnetmon, crowdsec ------------------------------------------write--> policy, lists
//! ```
//! The crate opens no file. A rule whose conditions cannot all be written is never written with some of them: it becomes
//! a comment at its place and a finding (`docs/decisions/0068-import.md`). The compiler checks every policy that comes
//! out.
#![forbid(unsafe_code)]

pub mod condition;
mod crowdsec;
mod fastnetmon;
pub mod finding;
mod flatten;
mod interfaces;
mod ipset;
mod iptables;
mod nft;
mod policy_text;
pub mod ruleset;
mod sets;
mod trial;

use finding::Findings;

pub use crowdsec::crowdsec;
pub use fastnetmon::fastnetmon;
pub use ipset::ipset;
pub use iptables::iptables;
pub use nft::nft;

/// A file of the source.
#[derive(Clone, Debug)]
pub struct Source {
    /// Its name in reports.
    pub name: String,
    /// Its text.
    pub text: String,
}

/// How to read a ruleset.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The rules for the host itself (`input`, `output`), not those for packets that it forwards.
    pub host: bool,
    /// Names of the outer interfaces.
    pub outside: Vec<String>,
    /// Protected prefixes, for `inside`.
    pub inside: Vec<String>,
    /// Whether large sets become list files. Otherwise the policy contains all entries.
    pub list_files: bool,
}

/// A policy, its lists, and what is missing.
#[derive(Clone, Debug)]
pub struct Import {
    /// The text of the policy.
    pub policy: String,
    /// List files: path relative to the policy, and text.
    pub lists: Vec<(String, String)>,
    /// Everything that is not in the policy as it was in the source.
    pub findings: Findings,
}

/// Why nothing can be imported: the source is not what it should be, or is too large.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused(pub String);

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}
