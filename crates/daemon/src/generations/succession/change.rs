//! Changes that are asked of a succession, and why it refuses one.

use crate::generations::automatic::Holder;
use std::fmt::{self, Display, Formatter};
use std::time::Duration;
use weir_control::Active;

/// The longest trial.
pub const TRIAL_MAX: Duration = Duration::from_secs(30 * 24 * 3600);

/// A requested change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Activates the base policy of a generation, on trial if `trial` is set.
    Activate {
        /// The generation.
        generation: u64,
        /// Length of the trial.
        trial: Option<Duration>,
    },
    /// Activates a generation of the same configuration, in the same posture if it has one of this name, else its base
    /// policy. Refused during a trial, so that what it activates lasts.
    Reconfigure {
        /// The generation.
        generation: u64,
        /// Length of the trial.
        trial: Option<Duration>,
    },
    /// Activates a generation that is the active one with other lists, in the same posture. The rollback target stays.
    Succeed {
        /// The generation that has other lists now. It must be active.
        of: u64,
        /// The new generation.
        generation: u64,
    },
    /// Activates another posture of the active generation, by the operator's hand.
    Posture(Option<String>),
    /// Activates an automatic posture of the active generation, until it is released or its lease ends.
    Take {
        /// Its holder.
        holder: Holder,
        /// The posture.
        posture: String,
    },
    /// Ends the automatic posture of a holder that no longer needs it.
    Release(Holder),
    /// Ends the automatic posture, because its lease has ended.
    Lapse,
    /// Activates the rollback target.
    Rollback,
    /// Activates the rollback target, because the trial has ended.
    Timeout,
}

/// Why a change is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is no such generation.
    Unknown {
        /// The requested generation.
        generation: u64,
        /// The ready generations.
        ready: Vec<u64>,
    },
    /// The generation cannot be removed.
    InUse {
        /// The generation.
        generation: u64,
        /// What it is used for.
        used: &'static str,
    },
    /// There is no rollback target.
    NothingBefore,
    /// There is no trial.
    NothingOnTrial,
    /// The trial, or the lease of the automatic posture, has not ended.
    NotDue,
    /// Nothing was ever confirmed, so Weir ends.
    GivenUp,
    /// The length of a trial is out of bounds.
    TrialLength,
    /// Lists changed in a new generation, but a policy is on trial.
    OnTrial,
    /// Lists changed in a new generation, but another one is active now.
    NotActive(u64),
    /// Another change, to this generation and posture, is in progress.
    Busy(Active),
    /// The posture is active already.
    IsActive(String),
    /// The holder has no automatic posture.
    NothingAutomatic,
}

impl Display for Refusal {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Unknown { generation, ready } => {
                let ready: Vec<String> = ready.iter().map(u64::to_string).collect();
                write!(f, "there is no generation {generation}; ready generations: {}", ready.join(", "))
            }
            Refusal::InUse { generation, used } => write!(f, "generation {generation} stays loaded: {used}"),
            Refusal::NothingBefore => f.write_str("there is no previous policy to roll back to"),
            Refusal::IsActive(posture) => write!(f, "posture {posture} is active already"),
            Refusal::NothingAutomatic => f.write_str("no posture is automatic"),
            Refusal::NothingOnTrial => f.write_str("no policy is on trial"),
            Refusal::NotDue => f.write_str("its time has not ended"),
            Refusal::GivenUp => f.write_str("the first policy was not confirmed, so weir ends"),
            Refusal::TrialLength => {
                write!(f, "--confirm: a time above 0 and up to {} days", TRIAL_MAX.as_secs() / (24 * 3600))
            }
            Refusal::OnTrial => f.write_str("a policy is on trial: confirm it or roll back first"),
            Refusal::NotActive(generation) => write!(f, "generation {generation} is not active any more; try again"),
            Refusal::Busy(to) => {
                write!(f, "{to} is being activated; try again when `weir ctl status` shows that this is done")
            }
        }
    }
}
