//! Upgrades in place: the process executes the new program, and keeps what decides packets
//! (docs/decisions/0072-upgrades.md).
//!
//! ```text
//!   ctl upgrade, SIGUSR2 --> trying: the new program loads the policies, in a child     changes go on
//!                            main loop: handover                                        changes are refused
//!                              descriptors stay open, /run/weir/upgrade-PID-START/
//!                            execve ---> resumed: the same process, the new program     the old BPF programs decide
//!                                          loads the policies, takes maps and claims
//!                                          replaces each program in its link            the new ones decide
//! ```
//! Until execve nothing has changed, so every refusal leaves the old program as it was.

mod format;
mod handover;
mod resumed;
mod trying;

pub use handover::{Ends, NotUpgraded, hand_over};
pub use resumed::Resumed;
pub use trying::try_policies;

use crate::door::{ChangeWatcher, Door};
use crate::generations::generation::Loader;
use crate::notify;
use crate::parts::part::{Part, Running};
use format::VERSION;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use trying::Plan;
use weir_command::failure::Failure;
use weir_control::{Carried, Reply, Request, Stats, UpgradeStatus};

/// The upgrades of this process.
pub struct Upgrades {
    /// The file of the program at the start. A package replaces it.
    program: Result<PathBuf, String>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    upgrades: u64,
    carried: Option<Carried>,
    refused: Option<String>,
    /// Whether an upgrade is in progress.
    is_busy: bool,
    /// An upgrade that was tried, for the main loop.
    plan: Option<Plan>,
}

impl Upgrades {
    /// The upgrades of a process that has begun with this program. To be called at the start, because the name of a
    /// file that is replaced is not known any more.
    pub fn begin() -> Arc<Self> {
        let program = std::env::current_exe().map_err(|error| error.to_string());
        Arc::new(Upgrades { program, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn status(&self) -> UpgradeStatus {
        let state = self.state();
        UpgradeStatus {
            version: VERSION.to_owned(),
            pid: std::process::id(),
            upgrades: state.upgrades,
            in_progress: state.is_busy,
            refused: state.refused.clone(),
            carried: state.carried.clone(),
        }
    }

    /// Notes what the upgrade to this program has carried over.
    pub fn note_carried(&self, (upgrades, carried): (u64, Carried)) {
        let mut state = self.state();
        (state.upgrades, state.carried) = (upgrades, Some(carried));
    }

    /// Upgrades of this process so far.
    pub fn count(&self) -> u64 {
        self.state().upgrades
    }

    /// An upgrade that the main loop shall make.
    pub fn take_plan(&self) -> Option<Plan> {
        self.state().plan.take()
    }

    /// Notes that an upgrade was refused, so that there may be another one.
    pub fn refuse(&self, why: &str) {
        warning!("weir: not upgraded: {why}");
        notify::status(&format!("not upgraded: {why}"));
        let mut state = self.state();
        (state.is_busy, state.refused) = (false, Some(why.to_owned()));
    }

    /// Tries the new program. If it can run what is loaded, the main loop upgrades to it.
    fn try_new<L: Loader>(&self, door: &Door<L>) -> Result<(), Failure> {
        {
            let mut state = self.state();
            if state.is_busy {
                return Err(Failure::Rejected("weir: an upgrade is in progress".to_owned()));
            }
            (state.is_busy, state.refused) = (true, None);
        }
        let tried = Failure::catch(|| trying::plan(&self.program, &door.controller));
        match tried {
            Ok(plan) => {
                self.state().plan = Some(plan);
                Ok(())
            }
            Err(failure) => {
                let why = failure.message();
                self.refuse(why.trim_end());
                Err(Failure::Rejected(format!("weir: not upgraded: {}", why.trim_end())))
            }
        }
    }
}

/// Begins upgrades that clients or SIGUSR2 ask for.
pub struct UpgradePart(pub Arc<Upgrades>);

impl<L: Loader> Part<L> for UpgradePart {
    fn start(&mut self, running: &Running<'_, L>) -> Result<(), Failure> {
        let door = Arc::downgrade(&running.door);
        running.door.join(Arc::new(UpgradeRequests { upgrades: self.0.clone(), door }));
        Ok(())
    }

    fn step(&mut self, running: &Running<'_, L>) {
        if running.flags.take_upgrade() {
            let (upgrades, door) = (self.0.clone(), running.door.clone());
            // A refusal is told by `try_new`.
            let asked = thread::Builder::new().name("weir-upgrade".to_owned()).spawn(move || upgrades.try_new(&door));
            asked.err().into_iter().for_each(|error| self.0.refuse(&error.to_string()));
        }
    }
}

/// Answers requests about upgrades.
struct UpgradeRequests<L: Loader> {
    upgrades: Arc<Upgrades>,
    door: Weak<Door<L>>,
}

impl<L: Loader> ChangeWatcher for UpgradeRequests<L> {
    fn answer(&self, request: &Request, _: &dyn Fn() -> Stats) -> Option<Result<Reply, Failure>> {
        let Request::Upgrade { begin } = request else { return None };
        let begun = match (begin, self.door.upgrade()) {
            (false, _) => Ok(()),
            (true, Some(door)) => self.upgrades.try_new(&door),
            (true, None) => Err(Failure::Runtime("weir: it is about to end".to_owned())),
        };
        Some(begun.map(|()| self.upgrades.status().into()))
    }
}
