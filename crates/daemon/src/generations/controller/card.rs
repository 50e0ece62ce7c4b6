//! The controller's part in what a card that answers rules does: its use begins and ends, and what is active is
//! activated again with other answers of it.

use super::Controller;
use crate::generations::generation::Generation;
use crate::parts::hybrid::{Found, HybridCard, Next, changed};
use std::sync::{PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};
use weir_command::failure::Failure;
use weir_engine::live::Datapath;

/// How long the end waits for a change that is under way, before it leaves the card as it is.
const LEAVING: Duration = Duration::from_secs(2);

impl<D: Datapath> Controller<D> {
    /// Uses a card from now on: it gets the active policy, and the datapath reads its answers.
    ///
    /// # Errors
    /// The card or the datapath refuses.
    pub fn join_card(&self, card: HybridCard) -> Result<(), Failure> {
        card.announce(&self.datapath)?;
        assert!(self.card.set(card.clone()).is_ok(), "compiler bug: there is one card");
        self.activate_again(|generation, posture| card.prepare(&self.datapath, generation, posture).map(Some))?;
        card.seal(&self.datapath)
    }

    /// Asks a card that did not answer again. If it has lost its configuration, it is opened and gets the configuration
    /// of the active policy. Nothing happens during a change.
    ///
    /// # Errors
    /// The card has lost its configuration and cannot be opened, or the datapath refuses.
    pub fn reopen_card(&self) -> Result<(), Failure> {
        let Some(card) = self.card.get() else { return Ok(()) };
        let _one_at_a_time = match self.changing.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(()),
        };
        if card.find(&self.datapath)? == Found::Open {
            self.activate_again_now(|generation, posture| card.prepare(&self.datapath, generation, posture).map(Some))?;
            card.seal(&self.datapath)?;
            card.note_reopened();
        }
        Ok(())
    }

    /// Ends the use of the card: it passes everything, and the datapath decides alone.
    ///
    /// # Errors
    /// The card does not answer, or a worker hangs in a change that is under way: the end does not wait for that.
    pub fn leave_card(&self) -> Result<(), Failure> {
        let Some(card) = self.card.get() else { return Ok(()) };
        let deadline = Instant::now() + LEAVING;
        let _one_at_a_time = loop {
            match self.changing.try_lock() {
                Ok(guard) => break guard,
                Err(TryLockError::Poisoned(poisoned)) => break poisoned.into_inner(),
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => thread::sleep(Duration::from_millis(5)),
                Err(TryLockError::WouldBlock) => {
                    return Err(Failure::Runtime(
                        "weir: a change is still under way, and the card was not told".into(),
                    ));
                }
            }
        };
        card.end(&self.datapath)
    }

    /// The card that answers rules.
    pub fn card(&self) -> Option<&HybridCard> {
        self.card.get()
    }

    /// Stops to use answers about a table of the active generation, because the table changes.
    ///
    /// # Errors
    /// A worker failed.
    pub fn decide_without(&self, table: &str) -> Result<(), Failure> {
        let Some(card) = self.card.get() else { return Ok(()) };
        if !card.has_table(&self.active(), table) {
            return Ok(());
        }
        self.activate_again(|_, _| Ok(None))?;
        card.note_alone(changed(table));
        Ok(())
    }

    /// Activates what is active once more, with other answers of the card. `prepare` says which.
    fn activate_again(
        &self,
        prepare: impl FnOnce(&Generation<D::Code>, Option<&str>) -> Result<Option<Next>, Failure>,
    ) -> Result<(), Failure> {
        let _one_at_a_time = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        self.activate_again_now(prepare)
    }

    /// Like `activate_again`, for a caller that holds the lock of changes.
    fn activate_again_now(
        &self,
        prepare: impl FnOnce(&Generation<D::Code>, Option<&str>) -> Result<Option<Next>, Failure>,
    ) -> Result<(), Failure> {
        let (_, generation, posture) = self.deciding();
        let next = prepare(&generation, posture.as_deref())?;
        let mut policy = generation.loaded(posture.as_deref())?;
        policy.answered = next.as_ref().and_then(|next| next.answered);
        self.ledger.open(&generation);
        let activated = self.datapath.activate(&policy);
        let ready = self.state().ready.clone();
        self.ledger.close(&self.datapath, &ready);
        activated?;
        match (next, self.card.get()) {
            (Some(next), Some(card)) => card.commit(next),
            _ => Ok(()),
        }
    }
}
