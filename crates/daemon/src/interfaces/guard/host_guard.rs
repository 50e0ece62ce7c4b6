//! Sets the interfaces of a host as `on-exit` says when Weir ends for any reason.
//!
//! No process is needed. The kernel removes the programs of Weir with its process, and everything passes: `forward`.
//! For `block`, each interface has a gate. It lets all packets pass only as long as Weir runs
//! (crates/engine/src/live/programs/gate.rs).

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use weir_command::failure::Failure;
use weir_engine::live::os::inherited::Kept;
use weir_engine::live::programs::gate::{self, Gate};
use weir_policy::ir::OnExit;

/// The gate of a host, if `on-exit` is `block`.
pub struct HostGuard {
    interfaces: Vec<String>,
    gate: Mutex<Option<Gate>>,
}

impl HostGuard {
    /// A guard of the interfaces. Until [`HostGuard::apply`] gates of a previous Weir stay as they are.
    pub fn new(interfaces: &[String]) -> Self {
        HostGuard { interfaces: interfaces.to_vec(), gate: Mutex::default() }
    }

    /// A guard with the gate of the program before this one in its process.
    ///
    /// # Errors
    /// It is no gate.
    pub fn continued(interfaces: &[String], gate: Option<OwnedFd>) -> io::Result<Self> {
        let gate = gate.map(Gate::handed).transpose()?;
        Ok(HostGuard { interfaces: interfaces.to_vec(), gate: Mutex::new(gate) })
    }

    /// Hands the gate over to the next program in this process.
    ///
    /// # Errors
    /// Its descriptor cannot be kept.
    pub fn hand_over(&self, kept: &mut Kept) -> io::Result<Option<i32>> {
        self.gate().as_ref().map(|gate| kept.keep(gate.descriptor())).transpose()
    }

    /// Applies the `on-exit` of a newly active policy.
    ///
    /// # Errors
    /// A gate cannot be attached or removed.
    pub fn apply(&self, on_exit: OnExit) -> Result<(), Failure> {
        let mut gate = self.gate();
        match on_exit {
            OnExit::Block if gate.is_none() => *gate = Some(Gate::install(&self.interfaces)?),
            OnExit::Block => {}
            OnExit::Forward => {
                gate::remove(&self.interfaces)?;
                *gate = None;
            }
        }
        Ok(())
    }

    /// Shuts the gate, if there is one. From now on nothing passes.
    pub fn shut(&self) {
        if let Some(gate) = &*self.gate() {
            gate.shut();
        }
    }

    fn gate(&self) -> MutexGuard<'_, Option<Gate>> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
