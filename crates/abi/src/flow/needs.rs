//! What a policy needs of a table of flows.

use super::Timeouts;

/// What a policy needs of a table of flows.
#[derive(Clone, Copy, Debug)]
pub struct FlowNeeds {
    /// Number of flows that the table holds.
    pub size: u32,
    /// After which times flows have expired.
    pub timeouts: Timeouts,
    /// Whether the policy translates packets of proxied flows.
    pub proxied: bool,
}
