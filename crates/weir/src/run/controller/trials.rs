//! Trials and their ends: confirmation, rollback, and what happens when Weir ends meanwhile
//! (docs/decisions/0017-trials.md).

use super::{Controller, rejected};
use crate::failure::Failure;
use crate::run::succession::Change;
use std::sync::PoisonError;
use std::time::Instant;
use weir_engine::live::Datapath;

impl<D: Datapath> Controller<D> {
    /// Rolls back: during a trial to the confirmed policy, otherwise to the previously confirmed one. If nothing was ever
    /// confirmed, Weir ends.
    ///
    /// # Errors
    /// There is no rollback target, or a worker failed.
    pub fn rollback(&self) -> Result<(), Failure> {
        if self.state().succession.give_up() {
            return Ok(());
        }
        self.change(Change::Rollback)
    }

    /// Whether the first policy was not confirmed, so that Weir ends.
    pub fn has_given_up(&self) -> bool {
        self.state().succession.is_given_up()
    }

    /// Fails if the first policy was not confirmed, so that Weir ended.
    ///
    /// # Errors
    /// Says so.
    pub fn check_confirmed(&self) -> Result<(), Failure> {
        let text = "the first policy was not confirmed: weir has ended and everything passes";
        if self.has_given_up() { Err(Failure::Runtime(text.to_owned())) } else { Ok(()) }
    }

    /// Confirms the policy that is on trial.
    ///
    /// # Errors
    /// There is no trial, or a change is in progress.
    pub fn confirm(&self) -> Result<(), Failure> {
        self.state().succession.confirm().map_err(rejected)?;
        self.ensure_on_exit();
        Ok(())
    }

    /// Rolls back to the confirmed policy if the trial has ended. Returns whether it did. If there is none, Weir ends.
    ///
    /// # Errors
    /// A worker failed.
    pub fn tick(&self) -> Result<bool, Failure> {
        let mut state = self.state();
        if state.succession.trial_ends().is_none_or(|ends| Instant::now() < ends) || state.succession.give_up() {
            return Ok(false);
        }
        drop(state);
        match self.change(Change::Timeout) {
            Ok(()) => Ok(true),
            // The trial was confirmed meanwhile.
            Err(Failure::Rejected(_)) => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    /// Tells the guard what to do when Weir ends.
    pub(super) fn ensure_on_exit(&self) {
        let _in_order = self.ensuring.lock().unwrap_or_else(PoisonError::into_inner);
        let on_exit = self.state().on_exit();
        self.guard.apply(on_exit);
    }
}
