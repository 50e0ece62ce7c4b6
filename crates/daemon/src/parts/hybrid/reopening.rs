//! A card that has lost its configuration, by a reset, is opened again.
//!
//! ```text
//!   silence --> unsealed frames are dropped as before, but answers of a card without a configuration are let in
//!     it answers with its own seal --> as before
//!     it has no configuration      --> a new session, as at the start: plain configuration, commit, policy, commit
//! ```
//! Frames without a seal are dropped all the time. Only the answer to the first commit, which has the new token in its
//! seal, makes the session believe that it is a card.

use super::{Active, Failure, HybridCard, State, WithoutSeal};
use weir_card::receive::Configured;
use weir_engine::live::Datapath;

/// What became of a card that did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The card does not answer.
    Silence,
    /// The card answers, with the configuration that it had.
    AsBefore,
    /// The card is open, passes frames as they are, and needs a configuration.
    Open,
}

impl HybridCard {
    /// Asks a card that did not answer again, and opens it if it has no configuration. No change may be under way.
    ///
    /// # Errors
    /// The card has no configuration and cannot be opened, or the datapath refuses.
    pub fn find<D: Datapath>(&self, datapath: &D) -> Result<Found, Failure> {
        let mut state = self.0.state();
        if self.has_ended() {
            return Ok(Found::Silence);
        }
        if state.without_seal == WithoutSeal::Drop {
            self.listen(datapath, &mut state, WithoutSeal::DropOpening)?;
        }
        state.look();
        if state.problem.is_none() && state.is_bare {
            return Ok(Found::Open);
        }
        if state.problem.is_none() {
            self.listen(datapath, &mut state, WithoutSeal::Drop)?;
            return Ok(Found::AsBefore);
        }
        if !state.link.is_unconfigured() {
            return Ok(Found::Silence);
        }
        self.open_again(datapath, &mut state)?;
        Ok(Found::Open)
    }

    /// Notes that a card that was opened again has its configuration.
    pub fn note_reopened(&self) {
        let mut state = self.0.state();
        (state.is_bare, state.problem) = (false, None);
        state.reopened += 1;
        warning!("weir: card: it had lost its configuration and was opened again, epoch {}", state.link.active().epoch);
    }

    /// Says what happens to frames without a seal.
    fn listen<D: Datapath>(&self, datapath: &D, state: &mut State, without_seal: WithoutSeal) -> Result<(), Failure> {
        state.without_seal = without_seal;
        let known = state.known.clone();
        self.0.set_known(datapath, state, known)
    }

    /// Begins a session. If it fails, the earlier one continues: the message that the card was reset may be forged.
    fn open_again<D: Datapath>(&self, datapath: &D, state: &mut State) -> Result<(), Failure> {
        let known = state.known.clone();
        let session = state.link.begin_anew(&self.0.profile)?;
        if let Err(failure) = self.open_plain(datapath, state) {
            state.link.resume(session);
            self.0.set_known(datapath, state, known)?;
            return Err(failure);
        }
        // What it had dropped since it was asked last is lost with its counters.
        let why = "the card is being opened again".to_owned();
        state.active = Active { counted: vec![], alone: Some(why) };
        (state.in_doubt, state.read, state.is_bare) = (None, vec![], true);
        state.earlier.clear();
        state.accounts.begin();
        Ok(())
    }

    /// Makes the card pass frames as they are. The datapath knows the new token before the answer to the commit has it.
    fn open_plain<D: Datapath>(&self, datapath: &D, state: &mut State) -> Result<(), Failure> {
        let plain: Configured = state.link.write_plain()?;
        self.0.set_known(datapath, state, vec![plain])?;
        state.link.commit().map(drop)
    }
}
