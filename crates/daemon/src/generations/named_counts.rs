//! Counts by name, which have a meaning without their policy.

use serde::{Deserialize, Serialize};
use weir_control::{Outcome, Tally};

/// The counts of one policy, or the sums of several.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct NamedCounts {
    /// Indexed by direction.
    pub tallies: [Tally; 2],
    /// Indexed by worker and direction.
    pub workers: Vec<[Outcome; 2]>,
}
