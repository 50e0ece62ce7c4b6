//! Trials and their ends: confirmation, rollback, and what happens when Weir ends meanwhile
//! (docs/decisions/0017-trials.md).

use super::{Controller, ignore_refusal, rejected};
use crate::generations::succession::Change;
use std::sync::PoisonError;
use weir_command::failure::Failure;
use weir_engine::live::Datapath;

impl<D: Datapath> Controller<D> {
    /// Rolls back: during a trial to the confirmed policy, otherwise to the previously confirmed one. If nothing was
    /// ever confirmed, Weir ends.
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

    /// The change that is due by time: the end of a trial, or of a posture that was not renewed.
    pub fn due(&self) -> Option<Change> {
        self.state().succession.due((self.clock)())
    }

    /// Makes a change that was due. Returns whether it still was. If nothing was ever confirmed before a trial that has
    /// ended, Weir ends.
    ///
    /// # Errors
    /// A worker failed.
    pub fn make_due(&self, due: Change) -> Result<bool, Failure> {
        if due == Change::Timeout && self.state().succession.give_up() {
            return Ok(false);
        }
        ignore_refusal(self.change(due))
    }

    /// Tells the guard what to do when Weir ends.
    pub(super) fn ensure_on_exit(&self) {
        let _in_order = self.ensuring.lock().unwrap_or_else(PoisonError::into_inner);
        let on_exit = self.state().on_exit();
        self.guard.apply(on_exit);
    }
}
