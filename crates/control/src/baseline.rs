//! What mitigation has learned.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The answer to [`AttackOperation::Baseline`](crate::AttackOperation::Baseline).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BaselineListed {
    /// For how long packets were seen, seconds.
    pub seen_s: f64,
    /// Whether both directions of traffic are seen.
    pub is_two_way: bool,
    /// How fast rates rise and fall.
    pub bounds: BaselineBounds,
    /// The highest usual rate of a proven source that is answered, packets a second.
    pub source_pps: f64,
    /// Sources that are known to be real.
    pub known_sources: usize,
    /// Headers of peaceful traffic by kind.
    pub reference: BTreeMap<String, usize>,
    /// Signatures of former attacks.
    pub signatures: usize,
    /// Prefixes with a baseline, also those that are not listed.
    pub prefixes_total: usize,
    /// Prefixes, those with the most packets first.
    pub prefixes: Vec<PrefixBaseline>,
}

/// Bounds of learned rates.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BaselineBounds {
    /// A rate is at most this many times as high after an hour.
    pub hourly_factor: f64,
    /// In crowds of proven sources, this many times more.
    pub crowd_factor: f64,
    /// A rate that is not met halves in this time, seconds.
    pub halving_s: f64,
    /// For so long after the start, rates follow what they see, seconds.
    pub follows_s: f64,
}

/// The baseline of a prefix.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PrefixBaseline {
    /// The prefix.
    pub prefix: String,
    /// Whether it is under attack, so that nothing is learned.
    pub is_frozen: bool,
    /// Learned rates that are not 0, packets a second: `proven`, `vouched`, and `unproven`, `streamed` and `packets` of
    /// each class, such as `unproven.udp`.
    pub rates_pps: BTreeMap<String, f64>,
}

/// The answer to [`AttackOperation::SetBaseline`](crate::AttackOperation::SetBaseline) and
/// [`AttackOperation::ResetBaseline`](crate::AttackOperation::ResetBaseline).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BaselineChanged {
    /// What was changed.
    pub of: String,
    /// How many rates, prefixes, headers, sources and signatures.
    pub changed: usize,
}
