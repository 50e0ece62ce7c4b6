//! What a part of the daemon is.
//!
//! | stage | when | what a part does then |
//! | --- | --- | --- |
//! | made | interfaces are claimed | takes its options, opens a file |
//! | `restore` | before the first policy is loaded | gives state what it was before |
//! | `check` | the first policy is loaded | refuses a policy that it cannot work with |
//! | `open` | nothing of Weir's is attached yet | takes devices of its own |
//! | `engine_opened` | the engine has its interfaces; a bypass of a previous Weir may still pass packets | takes what belongs to the engine's ports |
//! | `start` | the policy decides packets | starts threads, joins the door |
//! | `step` | every tick of the main loop | does what is due |
//! | `end` | in reverse order, while changes can still be made | undoes what it has done |
//! | `finish` | no packet is moving any more | writes the last counts |
//!
//! If a stage of a part fails, Weir ends. Parts that have started end before that, so that none keeps the datapath.

use crate::door::Door;
use crate::generations::generation::{Generation, Loader, LoaderCode};
use crate::interfaces::claim::ClaimTarget;
use crate::interfaces::guard::Guard;
use crate::signals::Flags;
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_command::failure::Failure;
use weir_engine::live::Interfaces;
use weir_engine::live::tap::Taps;

/// What parts find when packets are moving.
pub struct Running<'a, L: Loader> {
    /// The entrance for every change.
    pub door: Arc<Door<L>>,
    /// What ensures `on-exit`.
    pub guard: Arc<Guard>,
    /// The interfaces of the datapath.
    pub interfaces: &'a Interfaces,
    /// Copies of decided packets, for parts that look at them.
    pub taps: Arc<Taps>,
    /// What signals ask for.
    pub flags: &'a Flags,
}

/// A part of the daemon. Stages come in the order of the table above.
pub trait Part<L: Loader> {
    /// Gives the state that policies will share what it was before.
    ///
    /// # Errors
    /// What was saved must not be used.
    fn restore(&mut self, _loader: &L) -> Result<(), Failure> {
        Ok(())
    }

    /// Refuses a first policy that it cannot work with.
    ///
    /// # Errors
    /// The reason.
    fn check(&self, _first: &Generation<LoaderCode<L>>) -> Result<(), Failure> {
        Ok(())
    }

    /// Takes devices of its own, beside the claimed interfaces `own`.
    ///
    /// # Errors
    /// They cannot be used.
    fn open(&mut self, _own: &[ClaimTarget], _loader: &L) -> Result<(), Failure> {
        Ok(())
    }

    /// Takes what belongs to the ports that the engine has opened.
    ///
    /// # Errors
    /// It cannot be used.
    fn engine_opened(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    /// Its name among what parts hand over to the next program in this process.
    fn name(&self) -> &'static str {
        ""
    }

    /// Stops to change anything, and returns what the same part of the next program continues with. If that never
    /// begins, [`Part::go_on`] follows.
    fn hand_over(&mut self) -> Option<Vec<u8>> {
        None
    }

    /// There is no next program, so it goes on.
    fn go_on(&mut self) {}

    /// Takes what the same part of the program before this one has handed over, before it starts.
    fn continue_with(&mut self, _handed: Vec<u8>) {}

    /// Begins its work.
    ///
    /// # Errors
    /// It cannot begin.
    fn start(&mut self, _running: &Running<'_, L>) -> Result<(), Failure> {
        Ok(())
    }

    /// Does what is due. It must not wait.
    fn step(&mut self, _running: &Running<'_, L>) {}

    /// Undoes what it has done, and releases its claims.
    fn end(&mut self, _running: &Running<'_, L>) {}

    /// Writes what is counted until the end.
    fn finish(&mut self) {}
}

/// The parts of one Weir, in the order in which they start.
pub struct Parts<'o, L: Loader> {
    all: Vec<Box<dyn Part<L> + 'o>>,
    started: usize,
}

impl<'o, L: Loader> Parts<'o, L> {
    /// Parts that have not started.
    pub fn of(all: Vec<Box<dyn Part<L> + 'o>>) -> Self {
        Parts { all, started: 0 }
    }

    /// Gives the state that policies will share what it was before.
    ///
    /// # Errors
    /// The error of the first part that fails, as in all other stages.
    pub fn restore(&mut self, loader: &L) -> Result<(), Failure> {
        self.all.iter_mut().try_for_each(|part| part.restore(loader))
    }

    /// Lets each part refuse the first policy.
    ///
    /// # Errors
    /// As for [`Parts::restore`].
    pub fn check(&self, first: &Generation<LoaderCode<L>>) -> Result<(), Failure> {
        self.all.iter().try_for_each(|part| part.check(first))
    }

    /// Takes the devices of all parts.
    ///
    /// # Errors
    /// As for [`Parts::restore`].
    pub fn open(&mut self, own: &[ClaimTarget], loader: &L) -> Result<(), Failure> {
        self.all.iter_mut().try_for_each(|part| part.open(own, loader))
    }

    /// Takes what belongs to the ports of the engine.
    ///
    /// # Errors
    /// As for [`Parts::restore`].
    pub fn engine_opened(&mut self) -> Result<(), Failure> {
        self.all.iter_mut().try_for_each(|part| part.engine_opened())
    }

    /// Stops all changes, and returns what parts hand over, with their names.
    pub fn hand_over(&mut self) -> Vec<(String, Vec<u8>)> {
        let handed = self.all.iter_mut().map(|part| (part.name().to_owned(), part.hand_over()));
        handed.filter_map(|(name, handed)| Some((name, handed?))).collect()
    }

    /// Lets all parts go on after an upgrade that has failed.
    pub fn go_on(&mut self) {
        self.all.iter_mut().for_each(|part| part.go_on());
    }

    /// Gives each part what it has handed over.
    pub fn continue_with(&mut self, mut handed: BTreeMap<String, Vec<u8>>) {
        for part in &mut self.all {
            handed.remove(part.name()).into_iter().for_each(|bytes| part.continue_with(bytes));
        }
    }

    /// Starts the parts up to the first that fails.
    ///
    /// # Errors
    /// As for [`Parts::restore`].
    pub fn start(&mut self, running: &Running<'_, L>) -> Result<(), Failure> {
        for part in &mut self.all {
            part.start(running)?;
            self.started += 1;
        }
        Ok(())
    }

    /// Does what is due.
    pub fn step(&mut self, running: &Running<'_, L>) {
        self.all.iter_mut().for_each(|part| part.step(running));
    }

    /// Ends the parts that have started, the last one first.
    pub fn end(&mut self, running: &Running<'_, L>) {
        self.all[..self.started].iter_mut().rev().for_each(|part| part.end(running));
    }

    /// Lets parts write what is counted until the end.
    pub fn finish(mut self) {
        self.all.iter_mut().for_each(|part| part.finish());
    }
}
