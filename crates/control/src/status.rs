//! What a running Weir does: `ctl status`.

use serde::{Deserialize, Serialize};
use std::fmt::{self, Display, Formatter};

/// `ctl status`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Seconds since the start.
    pub uptime_s: f64,
    /// Threads that move packets.
    pub workers: usize,
    /// How packets of each interface reach them, in words; nothing where there is only one way.
    pub access: Vec<String>,
    /// The generation that decides.
    pub generation: u64,
    /// Its posture; the base policy's if none.
    pub posture: Option<String>,
    /// What the link does when Weir ends: `forward`, `block`.
    pub on_exit: String,
    /// Interfaces that are down because there is no link opposite.
    pub taken_down: Vec<String>,
    /// How often another generation or posture was activated.
    pub activations: u64,
    /// Seconds left to confirm what decides, if it is on trial.
    pub confirm_left_s: Option<f64>,
    /// The generation that `rollback` and the end of a trial activate.
    pub rollback_to: Option<u64>,
    /// Its posture then; the base policy's if none.
    pub rollback_posture: Option<String>,
    /// The activation that is under way.
    pub activating: Option<Activating>,
    /// Workers or interfaces that decide by another policy than the active one: while an activation is under way, or after one failed.
    pub mixed: Vec<String>,
    /// All generations that stand ready.
    pub generations: Vec<GenerationStatus>,
}

/// An activation that is under way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Activating {
    /// The generation.
    pub generation: u64,
    /// Its posture; the base policy's if none.
    pub posture: Option<String>,
    /// Seconds since it began.
    pub since_s: f64,
}

/// A generation that stands ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GenerationStatus {
    /// Its number.
    pub id: u64,
    /// The policy's file.
    pub policy: String,
    /// Its postures besides the base policy.
    pub postures: Vec<String>,
    /// Rules.
    pub rules: usize,
}

/// A generation, by its number, and one of its postures; the base policy's if none.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Active {
    /// The generation.
    pub generation: u64,
    /// The posture.
    pub posture: Option<String>,
}

impl Display for Active {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "generation {}", self.generation)?;
        self.posture.as_ref().map_or(Ok(()), |posture| write!(f, ", posture {posture}"))
    }
}
