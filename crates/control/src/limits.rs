//! The counters of limits (`ctl limits`).

use serde::{Deserialize, Serialize};

/// Maximum number of limits in an answer or report.
pub const TOP_MAX: usize = 100_000;

/// The counters of limits (`ctl limits`). Each counts since its bucket was assigned to the limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitsStatus {
    /// The active generation.
    pub generation: u64,
    /// The limits, most exceeded first.
    pub limits: Vec<CountedLimit>,
    /// Numbers for all limits.
    pub total: LimitsTotal,
}

/// Numbers of limits with counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitsTotal {
    /// Number of limits with counts.
    pub limits: u64,
    /// Number of limits that were exceeded.
    pub exceeded: u64,
}

/// A limit and its counters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountedLimit {
    /// The list; `each` for `limit each`.
    pub list: String,
    /// `upstream` or `downstream`.
    pub direction: String,
    /// Position of the first rule that charges it: `edge.weir:12`.
    pub at: String,
    /// The addresses that are limited; `None` for all packets of a rule.
    #[serde(flatten)]
    pub what: Option<Limited>,
    /// The rate: `10mbit burst 64kbytes`.
    pub rate: String,
    /// Packets within the limit; `None` if they are not counted.
    pub passed: Option<u64>,
    /// Packets over the limit.
    pub exceeded: u64,
}

/// The addresses of a limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limited {
    /// The addresses of a prefix.
    Prefix(String),
    /// A single address.
    Address(String),
    /// The addresses with this label in a table.
    Label(String),
    /// All addresses of a family, `ipv4` or `ipv6`, outside the prefixes of the list.
    Default(String),
}
