//! Which generation and posture decide, and the way back. A state machine without input or output; its caller passes the clock
//! (docs/decisions/0017-trials.md).
//!
//! ```text
//!                  activate --confirm
//!   confirmed ------------------------------> on trial --+  activate, posture: still on trial
//!    |    ^  ^                                 |   |   ^--+
//!    +----+  +--- confirm: what decides -------+   |
//!  activate, |                                     |
//!  posture,  +--- rollback, timeout: what was confirmed last
//!  rollback
//! ```
//! A change takes time, and may fail: [`Succession::begin`] says what is to decide, [`Succession::commit`] that it does, and
//! [`Succession::abandon`] that everything is as before.

use std::fmt::{self, Display, Formatter};
use std::time::{Duration, Instant};
use weir_control::Active;

/// Generations kept beside those in use; the oldest go first.
pub const READY_MAX: usize = 8;
/// The longest trial.
pub const TRIAL_MAX: Duration = Duration::from_secs(30 * 24 * 3600);

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A generation's base policy; with a time, on trial.
    Activate {
        /// The generation.
        generation: u64,
        /// How long the trial is.
        trial: Option<Duration>,
    },
    /// Another posture of the generation that decides.
    Posture(Option<String>),
    /// The way back.
    Rollback,
    /// The way back, because the trial's time is over.
    Timeout,
}

/// Why a change cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is no such generation.
    Unknown {
        /// What was asked for.
        generation: u64,
        /// What there is.
        ready: Vec<u64>,
    },
    /// There is no way back.
    NothingBefore,
    /// There is no trial.
    NothingOnTrial,
    /// The trial is not over.
    NotDue,
    /// A trial cannot be so long.
    TrialLength,
    /// Another change has begun, to this.
    Busy(Active),
}

impl Display for Refusal {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Unknown { generation, ready } => {
                let ready: Vec<String> = ready.iter().map(u64::to_string).collect();
                write!(f, "no generation {generation}; ready are {}", ready.join(", "))
            }
            Refusal::NothingBefore => f.write_str("there is nothing to go back to"),
            Refusal::NothingOnTrial => f.write_str("nothing waits to be confirmed"),
            Refusal::NotDue => f.write_str("the trial is not over"),
            Refusal::TrialLength => {
                write!(f, "--confirm: a time above 0 and up to {} days", TRIAL_MAX.as_secs() / (24 * 3600))
            }
            Refusal::Busy(to) => write!(f, "{to} is being activated; try again when `weir ctl status` says it is done"),
        }
    }
}

/// What decides for some time only.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Trial {
    active: Active,
    ends: Instant,
}

/// A change that has begun.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pending {
    to: Active,
    change: Change,
}

/// What decides, what stands ready, and the way back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Succession {
    /// Numbers of the generations that stand ready, the oldest first.
    ready: Vec<u64>,
    next: u64,
    /// What was confirmed last. Outside of a trial it decides.
    confirmed: Active,
    /// What was confirmed before that, and is something else.
    previous: Option<Active>,
    trial: Option<Trial>,
    pending: Option<Pending>,
}

impl Default for Succession {
    /// Generation 1 decides, with its base policy.
    fn default() -> Self {
        let first = Active { generation: 1, posture: None };
        Succession { ready: vec![1], next: 2, confirmed: first, previous: None, trial: None, pending: None }
    }
}

impl Succession {
    /// What decides.
    pub fn active(&self) -> &Active {
        self.trial.as_ref().map_or(&self.confirmed, |trial| &trial.active)
    }

    /// Where a rollback leads: on trial to what was confirmed last, else to what was confirmed before.
    pub fn way_back(&self) -> Option<&Active> {
        if self.trial.is_some() { Some(&self.confirmed) } else { self.previous.as_ref() }
    }

    /// When the trial ends, if there is one.
    pub fn trial_ends(&self) -> Option<Instant> {
        self.trial.as_ref().map(|trial| trial.ends)
    }

    /// What a change that has begun leads to.
    pub fn pending(&self) -> Option<&Active> {
        self.pending.as_ref().map(|pending| &pending.to)
    }

    /// Whether a generation decides, is about to, or may come back.
    pub fn is_in_use(&self, generation: u64) -> bool {
        let trial = self.trial.as_ref().map(|trial| &trial.active);
        let pending = self.pending.as_ref().map(|pending| &pending.to);
        [Some(&self.confirmed), self.previous.as_ref(), trial, pending]
            .into_iter()
            .flatten()
            .any(|one| one.generation == generation)
    }

    /// Lets another generation stand ready. Returns its number, and those that go to make room for it.
    pub fn add(&mut self) -> (u64, Vec<u64>) {
        let added = self.next;
        self.next += 1;
        self.ready.push(added);
        let mut gone = Vec::new();
        while self.ready.len() > READY_MAX {
            gone.push(self.remove_oldest().expect("fewer are in use than stand ready"));
        }
        (added, gone)
    }

    /// Removes the oldest generation that is not in use. Returns its number; `None` if all are in use.
    pub fn remove_oldest(&mut self) -> Option<u64> {
        let oldest = self.ready.iter().position(|&one| !self.is_in_use(one))?;
        Some(self.ready.remove(oldest))
    }

    /// Begins a change. Returns what is to decide.
    ///
    /// # Errors
    /// Why it cannot be; nothing has changed.
    pub fn begin(&mut self, change: Change, now: Instant) -> Result<Active, Refusal> {
        if let Some(pending) = &self.pending {
            return Err(Refusal::Busy(pending.to.clone()));
        }
        let to = match &change {
            Change::Activate { generation, trial } => {
                if !self.ready.contains(generation) {
                    return Err(Refusal::Unknown { generation: *generation, ready: self.ready.clone() });
                }
                if trial.is_some_and(|time| time.is_zero() || time > TRIAL_MAX) {
                    return Err(Refusal::TrialLength);
                }
                Active { generation: *generation, posture: None }
            }
            Change::Posture(posture) => Active { generation: self.active().generation, posture: posture.clone() },
            Change::Rollback => self.way_back().ok_or(Refusal::NothingBefore)?.clone(),
            Change::Timeout => {
                let trial = self.trial.as_ref().ok_or(Refusal::NothingOnTrial)?;
                if now < trial.ends {
                    return Err(Refusal::NotDue);
                }
                self.confirmed.clone()
            }
        };
        self.pending = Some(Pending { to: to.clone(), change });
        Ok(to)
    }

    /// What had begun decides. A trial's time counts from now.
    pub fn commit(&mut self, now: Instant) {
        let Some(Pending { to, change }) = self.pending.take() else { return };
        match (change, &mut self.trial) {
            (Change::Rollback | Change::Timeout, Some(_)) => self.trial = None,
            (Change::Activate { trial: Some(time), .. }, _) => {
                self.trial = Some(Trial { active: to, ends: now + time });
            }
            // The trial goes on, and its time.
            (_, Some(trial)) => trial.active = to,
            (_, None) => self.make_confirmed(to),
        }
    }

    /// What had begun does not decide.
    pub fn abandon(&mut self) {
        self.pending = None;
    }

    /// What decides stays.
    ///
    /// # Errors
    /// It needs no confirmation, or is about to be replaced.
    pub fn confirm(&mut self) -> Result<(), Refusal> {
        if let Some(pending) = &self.pending {
            return Err(Refusal::Busy(pending.to.clone()));
        }
        let trial = self.trial.take().ok_or(Refusal::NothingOnTrial)?;
        self.make_confirmed(trial.active);
        Ok(())
    }

    /// What decides already leaves the way back as it is.
    fn make_confirmed(&mut self, active: Active) {
        if active != self.confirmed {
            self.previous = Some(std::mem::replace(&mut self.confirmed, active));
        }
    }
}

#[cfg(test)]
#[path = "succession/tests.rs"]
mod tests;
