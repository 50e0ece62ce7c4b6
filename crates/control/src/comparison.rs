//! What two policies decide differently (`weir diff`, `ctl shadow`).

use serde::{Deserialize, Serialize};

/// The packets whose verdict differs between two policies, by rule and by source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Comparison {
    /// Packets that both policies have judged.
    pub packets: u64,
    /// Packets whose verdict differs.
    pub changed: u64,
    /// Packets that newly pass.
    pub newly_passed: u64,
    /// Packets that are newly dropped.
    pub newly_dropped: u64,
    /// Changes by rule, those with most packets first.
    pub by_rule: Vec<RuleChange>,
    /// Changes by source address, those with most packets first.
    pub by_source: Vec<SourceChange>,
    /// Number of sources that are not listed.
    pub more_sources: u64,
}

/// Packets that one rule decides in the old policy and another in the new policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleChange {
    /// Verdict and reason in the old policy.
    pub old: Decision,
    /// Verdict and reason in the new policy.
    pub new: Decision,
    /// Number of packets.
    pub packets: u64,
    /// Number of bytes.
    pub bytes: u64,
}

/// A verdict and its reason.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Decision {
    /// `accept`, `drop`, `divert` or `reply`.
    pub verdict: String,
    /// The built-in reason, or the citation of the rule.
    pub reason: String,
}

/// Changes for one source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceChange {
    /// The source; `not IP` for packets without an address.
    pub source: String,
    /// Packets that newly pass.
    pub newly_passed: u64,
    /// Packets that are newly dropped.
    pub newly_dropped: u64,
    /// Packets with any other change.
    pub other: u64,
}
