//! Sets the interfaces as `on-exit` says when Weir ends for any reason: between two sides by a process of its own, on a
//! host by the kernel alone.

mod final_state;
mod host_guard;
mod link_guard;
mod message;
pub mod process;

use crate::interfaces::claim::ClaimTarget;
use host_guard::HostGuard;
use link_guard::{HandedGuard, LinkGuard};
use serde::{Deserialize, Serialize};
use std::io;
use weir_command::failure::Failure;
use weir_engine::live::Interfaces;
use weir_engine::live::os::inherited::{Inherited, Kept};
use weir_policy::ir::OnExit;

/// A guard that is handed over.
#[derive(Debug, Serialize, Deserialize)]
pub enum Handed {
    /// Of a link between two sides.
    Link(HandedGuard),
    /// Of a host: the descriptor of its gate.
    Host(Option<i32>),
}

/// What ensures `on-exit`.
pub enum Guard {
    /// Of a link between two sides.
    Link(LinkGuard),
    /// Of a host.
    Host(HostGuard),
}

impl Guard {
    /// Starts the guard of a link. See [`LinkGuard::start`].
    ///
    /// # Errors
    /// As for [`LinkGuard::start`].
    pub fn of_link(interfaces: Interfaces, targets: Vec<ClaimTarget>, on_exit: OnExit) -> Result<Self, Failure> {
        Ok(Guard::Link(LinkGuard::start(interfaces, targets, on_exit)?))
    }

    /// Goes on with the guard of the program before this one in its process.
    ///
    /// # Errors
    /// It is another guard than the interfaces need, or a descriptor is not what it should be.
    pub fn continued(
        interfaces: Interfaces,
        targets: &[ClaimTarget],
        host: &[String],
        handed: Handed,
        inherited: &mut Inherited,
    ) -> Result<Self, Failure> {
        match (handed, host) {
            (Handed::Link(guard), []) => {
                LinkGuard::continued(interfaces, targets.to_vec(), guard, inherited).map(Guard::Link)
            }
            (Handed::Host(gate), [_, ..]) => {
                let gate = gate.map(|number| inherited.take(number)).transpose();
                let guard = gate.and_then(|gate| HostGuard::continued(host, gate));
                guard.map(Guard::Host).map_err(|error| Failure::system("gate", error))
            }
            (Handed::Link(_) | Handed::Host(_), _) => {
                Err(Failure::Runtime("weir: the guard that was handed over is for other interfaces".to_owned()))
            }
        }
    }

    /// The guard of a host with these interfaces.
    pub fn of_host(interfaces: &[String]) -> Self {
        Guard::Host(HostGuard::new(interfaces))
    }

    /// Hands the guard over to the next program in this process.
    ///
    /// # Errors
    /// It has ended, or a descriptor cannot be kept.
    pub fn hand_over(&self, kept: &mut Kept) -> io::Result<Handed> {
        match self {
            Guard::Link(guard) => guard.hand_over(kept).map(Handed::Link),
            Guard::Host(guard) => guard.hand_over(kept).map(Handed::Host),
        }
    }

    /// Why not everything can pass without Weir, if that is so.
    pub fn cannot_forward(&self) -> Option<String> {
        match self {
            Guard::Link(guard) => guard.no_bypass(),
            Guard::Host(_) => None,
        }
    }

    /// Undoes what a previous Weir has left, because the policy decides from now on.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn take_over(&self, on_exit: OnExit) -> Result<(), Failure> {
        match self {
            Guard::Link(guard) => guard.take_over(on_exit),
            Guard::Host(guard) => guard.apply(on_exit),
        }
    }

    /// Applies the `on-exit` of a newly active policy.
    pub fn apply(&self, on_exit: OnExit) {
        match self {
            Guard::Link(guard) => guard.apply(on_exit),
            Guard::Host(guard) => {
                if let Err(failure) = guard.apply(on_exit) {
                    error!("weir: on-exit cannot be ensured: {}", failure.message());
                }
            }
        }
    }

    /// Must be called before an interface is taken down. On exit it is put up. Not on a host.
    pub fn taken_down(&self, interface: &str) {
        if let Guard::Link(guard) = self {
            guard.taken_down(interface);
        }
    }

    /// Must be called after the interface was put up again.
    pub fn put_up(&self, interface: &str) {
        if let Guard::Link(guard) = self {
            guard.put_up(interface);
        }
    }

    /// Interfaces that Weir has taken down.
    pub fn down(&self) -> Vec<String> {
        match self {
            Guard::Link(guard) => guard.down(),
            Guard::Host(_) => Vec::new(),
        }
    }

    /// Starts another guard process if the current one has ended.
    pub fn renew(&self) {
        if let Guard::Link(guard) = self {
            guard.renew();
        }
    }

    /// Must be called before the engine detaches from the interfaces.
    pub fn before_stop(&self) {
        if let Guard::Host(guard) = self {
            guard.shut();
        }
    }

    /// Sets the final state while the engine ends, as soon as that is possible. See [`LinkGuard::open_early`].
    pub fn open_early(&self) {
        if let Guard::Link(guard) = self {
            guard.open_early();
        }
    }

    /// Sets the final state. The engine must have detached from the interfaces.
    ///
    /// # Errors
    /// The final state cannot be set.
    pub fn end(&self) -> Result<(), Failure> {
        match self {
            Guard::Link(guard) => guard.end(),
            // A gate shuts by itself.
            Guard::Host(_) => Ok(()),
        }
    }
}
