//! Which generation and posture are active, trials, rollback, and postures that act automatically. It is a state
//! machine without input or output; its caller passes the time (docs/decisions/0017-trials.md).
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
//! The first policy may be on trial, too. Nothing was confirmed before it, so rollback and timeout give up: Weir ends.
//!
//! A change takes time and may fail. [`Succession::begin`] returns what to activate. [`Succession::commit`] makes it
//! active, and [`Succession::abandon`] leaves everything as it was.
//!
//! What the operator decides and what acts by itself are two records (`automatic.rs`). An automatic posture stands in
//! front of the operator's, on whatever generation the operator decides for. It is never confirmed, never a rollback
//! target, and ends at every rollback.

mod change;

use crate::generations::automatic::{Automatic, Ended, Holder, Why};
pub use change::{Change, Refusal, TRIAL_MAX};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use weir_control::Active;

/// Most ready generations. The oldest that are not in use are removed first.
pub const READY_MAX: usize = 8;

/// A trial.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Trial {
    active: Active,
    ends: Instant,
}

/// A change that has begun.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pending {
    /// What the operator will have decided.
    decided: Active,
    /// What will decide packets.
    to: Active,
    /// Why the automatic posture will have ended, if there is one and it does.
    ends: Option<Why>,
    change: Change,
}

/// The active, ready and previous generations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Succession {
    /// Numbers of the ready generations, the oldest first.
    ready: Vec<u64>,
    next: u64,
    /// The confirmed policy. It is active unless there is a trial. `None` during the trial of the first policy.
    confirmed: Option<Active>,
    /// The previously confirmed policy, which differs from `confirmed`.
    previous: Option<Active>,
    trial: Option<Trial>,
    automatic: Automatic,
    pending: Option<Pending>,
    /// Whether the first policy was not confirmed, so that Weir ends.
    is_given_up: bool,
}

/// What an upgrade hands over of a succession.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandedSuccession {
    /// The number of the next generation.
    pub next: u64,
    /// The confirmed policy.
    pub confirmed: Option<Active>,
    /// The previously confirmed policy.
    pub previous: Option<Active>,
    /// The policy on trial, and when the trial ends, by the monotonic clock in nanoseconds.
    pub trial: Option<(Active, u64)>,
    /// The holder of the automatic posture, the posture, and when its lease ends, by the same clock.
    pub automatic: Option<(Holder, String, u64)>,
}

impl HandedSuccession {
    /// What the operator has decided for, if it is whole.
    pub fn decided(&self) -> Option<&Active> {
        self.trial.as_ref().map(|(active, _)| active).or(self.confirmed.as_ref())
    }

    /// The generations in use, in order.
    pub fn generations(&self) -> Vec<u64> {
        let trial = self.trial.as_ref().map(|(active, _)| active);
        let all = [self.confirmed.as_ref(), self.previous.as_ref(), trial].into_iter().flatten();
        let numbers: BTreeSet<u64> = all.map(|active| active.generation).collect();
        numbers.into_iter().collect()
    }
}

impl Default for Succession {
    /// The base policy of generation 1 is active.
    fn default() -> Self {
        let first = Active { generation: 1, posture: None };
        let (confirmed, previous, trial, pending) = (Some(first), None, None, None);
        let (ready, automatic) = (vec![1], Automatic::default());
        Succession { ready, next: 2, confirmed, previous, trial, automatic, pending, is_given_up: false }
    }
}

impl Succession {
    /// The base policy of generation 1 is active and on trial. Nothing is confirmed.
    ///
    /// # Errors
    /// The length of the trial is out of bounds.
    pub fn on_trial(time: Duration, now: Instant) -> Result<Self, Refusal> {
        check_length(time)?;
        let confirmed = Succession::default();
        let trial = Trial { active: confirmed.decided().clone(), ends: now + time };
        Ok(Succession { confirmed: None, trial: Some(trial), ..confirmed })
    }

    /// What the next program in this process continues with.
    pub fn hand_over(&self, now: Instant, now_ns: u64) -> HandedSuccession {
        let at_ns = |ends: Instant| now_ns.saturating_add(ends.saturating_duration_since(now).as_nanos() as u64);
        let trial = self.trial.as_ref().map(|trial| (trial.active.clone(), at_ns(trial.ends)));
        let automatic = self.automatic.lease().map(|(holder, posture, ends)| (holder, posture.to_owned(), at_ns(ends)));
        let (confirmed, previous) = (self.confirmed.clone(), self.previous.clone());
        HandedSuccession { next: self.next, confirmed, previous, trial, automatic }
    }

    /// Continues what was handed over. Only generations in use are ready.
    pub fn continued(handed: HandedSuccession, now: Instant, now_ns: u64) -> Self {
        let ready = handed.generations();
        let HandedSuccession { next, confirmed, previous, trial, automatic } = handed;
        let ends = |ends_ns: u64| now + Duration::from_nanos(ends_ns.saturating_sub(now_ns));
        let trial = trial.map(|(active, ends_ns)| Trial { active, ends: ends(ends_ns) });
        let automatic = automatic.map(|(holder, posture, at_ns)| Automatic::continued(holder, posture, ends(at_ns)));
        let automatic = automatic.unwrap_or_default();
        Succession { ready, next, confirmed, previous, trial, automatic, ..Succession::default() }
    }

    /// The generation and posture that decide packets.
    pub fn active(&self) -> Active {
        self.automatic.in_front_of(self.decided())
    }

    /// The generation and posture that the operator has decided for.
    pub fn decided(&self) -> &Active {
        let decided = self.trial.as_ref().map(|trial| &trial.active).or(self.confirmed.as_ref());
        decided.expect("a policy is confirmed or on trial")
    }

    /// The policy that was confirmed last. `None` during the trial of the first policy.
    pub fn confirmed(&self) -> Option<&Active> {
        self.confirmed.as_ref()
    }

    /// The automatic posture.
    pub fn automatic(&self) -> &Automatic {
        &self.automatic
    }

    /// Extends the lease of an automatic posture. Returns the generation that has it.
    ///
    /// # Errors
    /// It has ended: why, if that is known.
    pub fn renew(&mut self, holder: Holder, now: Instant) -> Result<u64, Option<Why>> {
        let generation = self.decided().generation;
        self.automatic.renew(holder, now).map(|()| generation)
    }

    /// The change that is due by time.
    pub fn due(&self, now: Instant) -> Option<Change> {
        match self.trial_ends() {
            Some(ends) if now >= ends => Some(Change::Timeout),
            _ => self.automatic.has_lapsed(now).then_some(Change::Lapse),
        }
    }

    /// The rollback target: during a trial the confirmed policy, otherwise the previously confirmed one.
    pub fn rollback_target(&self) -> Option<&Active> {
        if self.trial.is_some() { self.confirmed.as_ref() } else { self.previous.as_ref() }
    }

    /// Ends the trial of the first policy for good, if nothing was ever confirmed. Nothing can be changed or confirmed
    /// any more. Returns whether it did.
    pub fn give_up(&mut self) -> bool {
        self.is_given_up |= self.confirmed.is_none();
        self.is_given_up
    }

    /// Whether the first policy was not confirmed, so that Weir ends.
    pub fn is_given_up(&self) -> bool {
        self.is_given_up
    }

    /// When the trial ends, if there is one.
    pub fn trial_ends(&self) -> Option<Instant> {
        self.trial.as_ref().map(|trial| trial.ends)
    }

    /// The target of the pending change.
    pub fn pending(&self) -> Option<&Active> {
        self.pending.as_ref().map(|pending| &pending.to)
    }

    /// Whether a generation is active, about to be active, or a rollback target.
    pub fn is_in_use(&self, generation: u64) -> bool {
        let trial = self.trial.as_ref().map(|trial| &trial.active);
        let pending = self.pending.as_ref().map(|pending| &pending.to);
        [self.confirmed.as_ref(), self.previous.as_ref(), trial, pending]
            .into_iter()
            .flatten()
            .any(|one| one.generation == generation)
    }

    /// Adds a ready generation. Returns its number and the numbers of the removed generations.
    pub fn add(&mut self) -> (u64, Vec<u64>) {
        let added = self.next;
        self.next += 1;
        self.ready.push(added);
        let mut removed = Vec::new();
        while self.ready.len() > READY_MAX {
            removed.push(self.remove_oldest().expect("fewer generations are in use than ready"));
        }
        (added, removed)
    }

    /// Removes the oldest generation that is not in use. Returns its number, or `None` if all are in use.
    pub fn remove_oldest(&mut self) -> Option<u64> {
        let oldest = self.ready.iter().position(|&one| !self.is_in_use(one))?;
        Some(self.ready.remove(oldest))
    }

    /// Checks that a generation may be removed.
    ///
    /// # Errors
    /// There is no such generation, or it is in use.
    pub fn may_remove(&self, generation: u64) -> Result<(), Refusal> {
        if !self.ready.contains(&generation) {
            return Err(Refusal::Unknown { generation, ready: self.ready.clone() });
        }
        let is = |of: Option<&Active>| of.is_some_and(|of| of.generation == generation);
        let used = match () {
            () if self.active().generation == generation && self.trial.is_some() => "it is active, on trial",
            () if self.active().generation == generation => "it is active",
            () if is(self.pending()) => "it is being activated",
            () if is(self.rollback_target()) => "`weir ctl rollback` would activate it",
            () if self.is_in_use(generation) => "it is the rollback target once the trial is over",
            () => return Ok(()),
        };
        Err(Refusal::InUse { generation, used })
    }

    /// Removes a generation, unless it is in use. Returns whether it did.
    pub fn remove(&mut self, generation: u64) -> bool {
        let found = self.ready.iter().position(|&one| one == generation && !self.is_in_use(one));
        found.map(|at| self.ready.remove(at)).is_some()
    }

    /// Checks that a generation with other lists may succeed this one.
    ///
    /// # Errors
    /// It is not active, or a policy is on trial.
    pub fn may_succeed(&self, of: u64) -> Result<(), Refusal> {
        match (&self.trial, self.decided().generation == of) {
            (Some(_), _) => Err(Refusal::OnTrial),
            (None, true) => Ok(()),
            (None, false) => Err(Refusal::NotActive(of)),
        }
    }

    /// Begins a change. Returns what to activate. `has_posture` says whether a ready generation has a posture.
    ///
    /// # Errors
    /// The change is refused. Nothing has changed.
    pub fn begin(
        &mut self,
        change: Change,
        now: Instant,
        has_posture: impl Fn(u64, &str) -> bool,
    ) -> Result<Active, Refusal> {
        self.check_free()?;
        let decided = self.target(&change, now, &has_posture)?;
        let ends = self.automatic.posture().and_then(|posture| match &change {
            Change::Activate { .. } | Change::Reconfigure { .. } | Change::Succeed { .. } => {
                (!has_posture(decided.generation, posture)).then_some(Why::NoPosture(decided.generation))
            }
            Change::Posture(_) => Some(Why::ByHand),
            Change::Rollback => Some(Why::Rollback),
            Change::Timeout => Some(Why::TrialEnded),
            Change::Release(_) => Some(Why::Released),
            Change::Lapse => Some(Why::Lapsed),
            Change::Take { .. } => None,
        });
        let to = match &change {
            Change::Take { posture, .. } => Active { posture: Some(posture.clone()), ..decided.clone() },
            _ if ends.is_some() => decided.clone(),
            _ => self.automatic.in_front_of(&decided),
        };
        self.pending = Some(Pending { decided, to: to.clone(), ends, change });
        Ok(to)
    }

    fn check_ready(&self, generation: u64) -> Result<(), Refusal> {
        match self.ready.contains(&generation) {
            true => Ok(()),
            false => Err(Refusal::Unknown { generation, ready: self.ready.clone() }),
        }
    }

    /// What the operator has decided for when a change is done.
    fn target(
        &self,
        change: &Change,
        now: Instant,
        has_posture: &impl Fn(u64, &str) -> bool,
    ) -> Result<Active, Refusal> {
        Ok(match change {
            Change::Activate { generation, trial } => {
                self.check_ready(*generation)?;
                trial.map_or(Ok(()), check_length)?;
                Active { generation: *generation, posture: None }
            }
            Change::Reconfigure { generation, trial } => {
                if self.trial.is_some() {
                    return Err(Refusal::OnTrial);
                }
                self.check_ready(*generation)?;
                trial.map_or(Ok(()), check_length)?;
                let posture = self.decided().posture.clone().filter(|posture| has_posture(*generation, posture));
                Active { generation: *generation, posture }
            }
            Change::Succeed { of, generation } => {
                self.may_succeed(*of)?;
                self.check_ready(*generation)?;
                Active { generation: *generation, posture: self.decided().posture.clone() }
            }
            Change::Posture(posture) => Active { generation: self.decided().generation, posture: posture.clone() },
            Change::Take { posture, .. } if self.active().posture.as_ref() == Some(posture) => {
                return Err(Refusal::IsActive(posture.clone()));
            }
            Change::Release(holder) if !self.automatic.is_held_by(*holder) => return Err(Refusal::NothingAutomatic),
            Change::Lapse if !self.automatic.has_lapsed(now) => return Err(Refusal::NotDue),
            Change::Take { .. } | Change::Release(_) | Change::Lapse => self.decided().clone(),
            Change::Rollback => self.rollback_target().ok_or(Refusal::NothingBefore)?.clone(),
            Change::Timeout => {
                let trial = self.trial.as_ref().ok_or(Refusal::NothingOnTrial)?;
                if now < trial.ends {
                    return Err(Refusal::NotDue);
                }
                self.confirmed.clone().ok_or(Refusal::NothingBefore)?
            }
        })
    }

    /// Completes the pending change. The time of a trial, or of a lease, starts now. Returns the automatic posture that
    /// has ended by the change.
    pub fn commit(&mut self, now: Instant) -> Option<Ended> {
        let Pending { decided: to, change, ends, .. } = self.pending.take()?;
        let ended = ends.and_then(|why| self.automatic.end(why));
        match (change, &mut self.trial) {
            (Change::Take { holder, posture }, _) => self.automatic.take(holder, posture, now),
            (Change::Release(_) | Change::Lapse, _) => {}
            (Change::Rollback | Change::Timeout, Some(_)) => self.trial = None,
            (Change::Activate { trial: Some(time), .. } | Change::Reconfigure { trial: Some(time), .. }, _) => {
                self.trial = Some(Trial { active: to, ends: now + time });
            }
            (Change::Succeed { of, generation }, None) => {
                self.confirmed = Some(to);
                // A rollback to another posture of the old generation leads to that posture with the new lists.
                let previous = self.previous.take();
                let same = |active: Active| match active.generation == of {
                    true => Active { generation, ..active },
                    false => active,
                };
                self.previous = previous.map(same);
            }
            // The trial continues until its original end.
            (_, Some(trial)) => trial.active = to,
            (_, None) => self.make_confirmed(to),
        }
        ended
    }

    /// Abandons the pending change.
    pub fn abandon(&mut self) {
        self.pending = None;
    }

    /// Confirms what the operator has decided for. An automatic posture stays automatic.
    ///
    /// # Errors
    /// There is no trial, or a change is in progress.
    pub fn confirm(&mut self) -> Result<(), Refusal> {
        self.check_free()?;
        let trial = self.trial.take().ok_or(Refusal::NothingOnTrial)?;
        self.make_confirmed(trial.active);
        Ok(())
    }

    /// Confirming the same policy again does not change the rollback target.
    fn make_confirmed(&mut self, active: Active) {
        if self.confirmed.as_ref() != Some(&active) {
            self.previous = self.confirmed.replace(active);
        }
    }

    /// Checks that a change or a confirmation may begin.
    fn check_free(&self) -> Result<(), Refusal> {
        match &self.pending {
            _ if self.is_given_up => Err(Refusal::GivenUp),
            Some(pending) => Err(Refusal::Busy(pending.to.clone())),
            None => Ok(()),
        }
    }
}

/// Checks the length of a trial.
///
/// # Errors
/// It is out of bounds.
pub fn check_length(time: Duration) -> Result<(), Refusal> {
    if time.is_zero() || time > TRIAL_MAX { Err(Refusal::TrialLength) } else { Ok(()) }
}

#[cfg(test)]
#[path = "succession/tests.rs"]
mod tests;
