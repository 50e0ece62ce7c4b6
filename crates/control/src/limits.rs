//! What was counted for limits: `ctl limits`.

use serde::{Deserialize, Serialize};

/// The most limits that an answer or a report lists.
pub const TOP_MAX: usize = 100_000;

/// `ctl limits`: counts of limits, each since its bucket was assigned to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitsStatus {
    /// The generation that decides.
    pub generation: u64,
    /// Those that were exceeded most first.
    pub limits: Vec<CountedLimit>,
    /// All of them.
    pub total: LimitsTotal,
}

/// How many limits with counts there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitsTotal {
    /// Limits.
    pub limits: u64,
    /// Those that were exceeded.
    pub exceeded: u64,
}

/// One limit with what was counted for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountedLimit {
    /// The list.
    pub list: String,
    /// `upstream`, `downstream`
    pub direction: String,
    /// Where the first rule that charges it stands: `edge.weir:12`.
    pub at: String,
    /// What is limited; nothing if it is all packets of a rule.
    #[serde(flatten)]
    pub what: Option<Limited>,
    /// `10mbit burst 64kbytes`
    pub rate: String,
    /// Packets that were charged to it; `None` if they are not counted.
    pub passed: Option<u64>,
    /// Packets that it had no room for.
    pub exceeded: u64,
}

/// What a limit of a list limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limited {
    /// The addresses of a prefix.
    Prefix(String),
    /// The addresses that a table has this label for.
    Label(String),
    /// All addresses of a family, `ipv4` or `ipv6`, that are in no prefix of the list.
    Default(String),
}
