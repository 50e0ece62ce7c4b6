//! Upgrades of a running Weir (`ctl upgrade`).

use serde::{Deserialize, Serialize};

/// What became of upgrades.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpgradeStatus {
    /// The version of the program that answers.
    pub version: String,
    /// Its process. It stays the same.
    pub pid: u32,
    /// Upgrades since the start of the process.
    pub upgrades: u64,
    /// Whether an upgrade is in progress.
    pub in_progress: bool,
    /// Why the last upgrade was refused, if it was. Nothing has changed then.
    pub refused: Option<String>,
    /// What was carried over by the last upgrade; `None` if there was none.
    pub carried: Option<Carried>,
}

/// What an upgrade has carried over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carried {
    /// The version of the program before.
    pub from_version: String,
    /// Interfaces whose programs were replaced without a moment in between. 0 for an engine in user space.
    pub interfaces: u64,
    /// Tables of flows that were taken over as they are.
    pub flow_tables: u64,
    /// Whether flows were read from a file instead, as after a restart.
    pub flows_from_file: bool,
    /// Dynamic tables that were written and read.
    pub tables: u64,
    /// What was not carried over, in words.
    pub missing: Vec<String>,
}
