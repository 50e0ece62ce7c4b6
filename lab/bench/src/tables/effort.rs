//! How much scenarios of tables measure.

use crate::scale::Scaled;

/// How much is measured.
#[derive(Clone, Copy)]
pub struct Effort {
    /// Number of keys of each mix. 4 MB of IPv4 addresses come from memory, not from the first caches.
    pub keys: usize,
    /// Number of rounds in which every layout has a turn.
    pub rounds: usize,
    /// Number of prefixes that are inserted and removed.
    pub changes: usize,
    /// The tables, unless the options name some.
    pub tables: &'static [&'static str],
}

/// The effort at each scale.
pub const EFFORT: Scaled<Effort> = Scaled {
    full: Effort { keys: 1 << 20, rounds: 11, changes: 1000, tables: &[] },
    quick: Effort { keys: 1 << 20, rounds: 3, changes: 100, tables: &[] },
    smoke: Effort {
        keys: 1 << 10,
        rounds: 1,
        changes: 10,
        tables: &["block-178k", "country", "private", "block6-178k", "three-tables-178k"],
    },
};
