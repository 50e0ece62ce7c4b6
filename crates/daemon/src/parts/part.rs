//! What a part of the daemon is.
//!
//! | stage | when | what a part does then |
//! | --- | --- | --- |
//! | made | first, by the options | refuses options, and opens its own files |
//! | `restore` | before the first policy is loaded | gives state what it was before |
//! | `check` | the first policy is loaded | refuses a policy that it cannot work with |
//! | `open` | nothing of Weir's is attached yet | takes devices of its own |
//! | `start` | packets are moving | starts threads, joins the door |
//! | `step` | every tick of the main loop | looks after something |
//! | `end` | in reverse order, while changes can still be made | undoes what it has done |
//! | `finish` | no packet is moving any more | writes the last counts |

use crate::door::Door;
use crate::generations::generation::{Generation, Loader, LoaderCode};
use crate::interfaces::claim::ClaimTarget;
use crate::interfaces::guard::Guard;
use crate::signals::Flags;
use std::sync::Arc;
use weir_command::failure::Failure;
use weir_engine::live::Interfaces;

/// What parts find when packets are moving.
pub struct Running<'a, L: Loader> {
    /// The entrance for every change.
    pub door: Arc<Door<L>>,
    /// What ensures `on-exit`.
    pub guard: Arc<Guard>,
    /// The interfaces of the datapath.
    pub interfaces: &'a Interfaces,
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
