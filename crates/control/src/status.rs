//! The state of a running Weir (`ctl status`).

use crate::{ExportStatus, UpdatesStatus};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

/// The state of a running Weir.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Seconds since the start.
    pub uptime_s: f64,
    /// The engine, such as `xdp`. `None` from a Weir that does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// Number of worker threads.
    pub workers: usize,
    /// The processor time of the thread of each worker, ms. Engines in the kernel have no such threads.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub workers_cpu_ms: BTreeMap<usize, u64>,
    /// How the packets of each interface reach the workers, as text. It is empty if there is only one way.
    pub access: Vec<String>,
    /// The active generation.
    pub generation: u64,
    /// Its posture; `None` for the base policy.
    pub posture: Option<String>,
    /// The posture, if mitigation has activated it in place of the operator's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub automatic: Option<AutomaticPosture>,
    /// The state of the link after Weir ends: `forward` or `block`.
    pub on_exit: String,
    /// The interfaces, by side.
    #[serde(default)]
    pub interfaces: Vec<InterfaceStatus>,
    /// Interfaces that are down because the opposite interface has no link.
    pub taken_down: Vec<String>,
    /// Number of activations of generations or postures.
    pub activations: u64,
    /// Seconds left to confirm the active generation, during a trial.
    pub confirm_left_s: Option<f64>,
    /// The generation that `rollback` or the end of a trial activates. `None` during the trial of the first policy,
    /// after which Weir ends.
    pub rollback_to: Option<u64>,
    /// Its posture; `None` for the base policy.
    pub rollback_posture: Option<String>,
    /// The activation in progress.
    pub activating: Option<Activating>,
    /// Workers or interfaces that do not use the active policy, during an activation or after a failed one.
    pub mixed: Vec<String>,
    /// How state is saved to disk, with `--state`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<StateStatus>,
    /// The last confirmed policy, with `--keep-confirmed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<KeptStatus>,
    /// The room in the table of flows, if the active policy tracks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flows: Option<FlowsStatus>,
    /// What is exported to collectors, with `--sflow` or `--ipfix`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub export: Option<ExportStatus>,
    /// Captures that copy packets to clients (`ctl capture`).
    #[serde(default)]
    pub captures: usize,
    /// The policy that judges packets beside the active one (`ctl shadow`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shadow: Option<ShadowStatus>,
    /// Updates of tables and limits from list files.
    #[serde(default)]
    pub updates: UpdatesStatus,
    /// All loaded generations.
    pub generations: Vec<GenerationStatus>,
}

/// A policy that judges packets beside the active one, in short.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShadowStatus {
    /// Its file.
    pub policy: String,
    /// Its posture; `None` for its base policy.
    pub posture: Option<String>,
    /// It judges one packet in so many.
    pub every: u32,
    /// Why it judges no more packets, if it has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

/// The state of an interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceStatus {
    /// Its current name.
    pub interface: String,
    /// `lower`, `upper` or `divert`.
    pub side: String,
    /// Whether it can carry packets.
    pub state: LinkState,
    /// Maximum number of bytes of a packet after the link header; `None` for a port that the kernel does not know.
    pub mtu: Option<u32>,
    /// Number of bytes of the longest frame that the engine receives, link header included. `None` if it has no limit
    /// of its own.
    pub longest_frame: Option<u32>,
    /// Packets since the start that were lost because they were longer than the engine receives, or than the interface
    /// sends.
    pub too_long: u64,
    /// Which packets its MTU loses, and what helps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Whether an interface can carry packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkState {
    /// It has a link.
    Up,
    /// It is administratively up, but its other end is missing or down.
    NoLink,
    /// It is administratively down.
    Down,
    /// There is no such interface any more.
    Gone,
}

/// A posture that mitigation has activated by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AutomaticPosture {
    /// The posture.
    pub posture: String,
    /// The operator's posture, which decides again after it; `None` for the base policy.
    pub in_place_of: Option<String>,
}

/// The room in the table of flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowsStatus {
    /// Number of flows that the table holds.
    pub size: u64,
    /// Number of flows that do not close.
    pub used: u64,
    /// Number of connections that close, which make room for others.
    pub closing: u64,
    /// Whether less than a fifth of the table is left.
    pub is_short: bool,
    /// Packets since the start that found no room (`state-full`).
    pub refused: u64,
}

/// State on disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateStatus {
    /// The folder.
    pub folder: String,
    /// Why it is not saved for now.
    pub error: Option<String>,
    /// Names of files in the folder that could not be read or used at a start, and are kept.
    #[serde(default)]
    pub unread: Vec<String>,
    /// How often each kind of state was looked through since the start.
    #[serde(default)]
    pub turns: SavingTurns,
}

/// The last confirmed policy, which decides after a start with a policy that does not load.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptStatus {
    /// The folder.
    pub folder: String,
    /// Path of the policy that is kept; `None` if none is.
    pub policy: Option<String>,
    /// When it was kept (RFC 3339).
    pub kept: Option<String>,
    /// Its generation in this run; `None` if it is from a previous one.
    pub generation: Option<u64>,
    /// Why the confirmed policy of this run is not kept.
    pub error: Option<String>,
    /// Why the policy of the start did not load, while the kept one decides in its place.
    pub in_place_of: Option<String>,
}

/// Turns of the threads that save state. Eight turns after a change, the change is on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavingTurns {
    /// Tables.
    pub tables: u64,
    /// Debts of limits.
    pub debts: u64,
    /// Flows.
    pub flows: u64,
}

/// An activation in progress.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Activating {
    /// The generation.
    pub generation: u64,
    /// Its posture; `None` for the base policy.
    pub posture: Option<String>,
    /// Seconds since its start.
    pub since_s: f64,
}

/// A loaded generation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GenerationStatus {
    /// Its number.
    pub id: u64,
    /// Path of its policy.
    pub policy: String,
    /// Its postures except the base policy.
    pub postures: Vec<String>,
    /// Number of its rules.
    pub rules: usize,
}

/// A generation and one of its postures.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Active {
    /// The number of the generation.
    pub generation: u64,
    /// The posture; `None` for the base policy.
    pub posture: Option<String>,
}

impl Display for Active {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "generation {}", self.generation)?;
        self.posture.as_ref().map_or(Ok(()), |posture| write!(f, ", posture {posture}"))
    }
}
