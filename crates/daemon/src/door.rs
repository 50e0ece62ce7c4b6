//! The one entrance of the daemon. Every change passes here, whether from a client, mitigation, a list file, a timer or
//! a card that follows traffic. The same watchers see each change.
//!
//! ```text
//!   clients, SIGHUP ---------- request --------------+
//!   mitigation (hands.rs) ---- request, take, ... ---+--> Door::guarded: before of each watcher --> the change
//!   list files (feeds) ------- update ---------------+                   after of each watcher <--'
//!   timers (trials) ---------- make_due -------------+
//!   rules=follow (hybrid) ---- choose ---------------+
//! ```
//! Cards watch changes, and mitigation answers requests of its own. A watcher may refuse a change before it is made,
//! and follows it after it was made, so a card never drops by what has changed. What changes nothing is not guarded.
//!
//! What the state does by itself within what was decided is no change of a decision: entries and rules expire, and
//! rules add entries (`table_ticks.rs`).

use crate::generations::automatic::{Holder, Why};
use crate::generations::controller::Controller;
use crate::generations::generation::{Generation, Loader, LoaderCode};
use crate::generations::preparation;
use crate::generations::succession::{Change, Refusal};
use crate::notify::Reloading;
use crate::parts::feeds::{Cause, Force, NotUpdated, Updater, Updates};
use crate::requests;
use crate::requests::occupancy::{self, Occupancy};
use crate::requests::slots;
use crate::requests::slots::Renewal;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};
use weir_command::failure::Failure;
use weir_configuration::Configuration;
use weir_control::{Changes, ListName, Reconfigured, Reloaded, Reply, Request, Stats};
use weir_loading::regular_file;
use weir_policy::ir::RuleId;

/// Longest wait for changes that are being made, before changes are refused.
const SHUT_PATIENCE: Duration = Duration::from_secs(5);
const SHUT_PAUSE: Duration = Duration::from_millis(1);

/// Watches over the changes of all origins, and answers requests of its own.
pub trait ChangeWatcher: Send + Sync {
    /// Prepares for a change.
    ///
    /// # Errors
    /// The change is refused.
    fn before(&self, _changes: Changes<'_>) -> Result<(), Failure> {
        Ok(())
    }

    /// Follows a change that was made, or has failed.
    fn after(&self, _changes: Changes<'_>) {}

    /// Packets that it has dropped in front of the software, by source, since the last call.
    fn take_dropped(&self) -> Vec<(IpAddr, u64)> {
        Vec::new()
    }

    /// Adds what it counts to the counters of the software.
    fn add_to(&self, stats: Stats) -> Stats {
        stats
    }

    /// Answers a request of its own; `None` if it is not its own. `software` are the counters of the software.
    fn answer(&self, _request: &Request, _software: &dyn Fn() -> Stats) -> Option<Result<Reply, Failure>> {
        None
    }
}

/// The entrance.
pub struct Door<L: Loader> {
    /// The generations.
    pub controller: Arc<Controller<L::Datapath>>,
    /// Loads policies, and has the state that they share.
    pub loader: L,
    /// Updates of lists.
    pub updates: Arc<Updates>,
    watchers: RwLock<Vec<Arc<dyn ChangeWatcher>>>,
    /// Whether changes are refused. Changes hold it for reading.
    shut: RwLock<bool>,
    /// The configuration that Weir was started with, if there is a file.
    configuration: Option<Arc<Configuration>>,
    /// Held while the configuration is read again and applied.
    reconfiguring: Mutex<()>,
}

impl<L: Loader> Door<L> {
    /// An entrance without watchers.
    pub fn new(controller: Arc<Controller<L::Datapath>>, loader: L, updates: Arc<Updates>) -> Self {
        let (watchers, configuration, reconfiguring) = (RwLock::default(), None, Mutex::default());
        let shut = RwLock::default();
        Door { controller, loader, updates, watchers, configuration, reconfiguring, shut }
    }

    /// This entrance for a Weir that was started with a configuration.
    #[must_use]
    pub fn configured(self, configuration: Option<Arc<Configuration>>) -> Self {
        Door { configuration, ..self }
    }

    /// Whether Weir was started with a configuration.
    pub fn is_configured(&self) -> bool {
        self.configuration.is_some()
    }

    /// Lets a watcher take part from now on.
    pub fn join(&self, watcher: Arc<dyn ChangeWatcher>) {
        self.watchers.write().unwrap_or_else(PoisonError::into_inner).push(watcher);
    }

    /// Refuses changes from now on. Waits a little for those that are being made. Returns whether it does; otherwise
    /// changes go on.
    pub fn shut(&self) -> bool {
        let begun = Instant::now();
        loop {
            // This never waits for the lock, because later changes would then wait too.
            match self.shut.try_write() {
                Ok(mut shut) => {
                    *shut = true;
                    return true;
                }
                Err(_) if begun.elapsed() > SHUT_PATIENCE => return false,
                Err(_) => thread::sleep(SHUT_PAUSE),
            }
        }
    }

    /// Lets changes pass again.
    pub fn reopen(&self) {
        *self.shut.write().unwrap_or_else(PoisonError::into_inner) = false;
    }

    fn watchers(&self) -> Vec<Arc<dyn ChangeWatcher>> {
        self.watchers.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Packets that were dropped in front of the software, by source, since the last call.
    pub fn take_dropped(&self) -> Vec<(IpAddr, u64)> {
        self.watchers().iter().flat_map(|watcher| watcher.take_dropped()).collect()
    }

    /// Makes a change that all watchers see.
    fn guarded<T, E: From<Failure>>(&self, changes: Changes<'_>, make: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        if changes == Changes::Nothing {
            return make();
        }
        let shut = self.shut.read().unwrap_or_else(PoisonError::into_inner);
        if *shut {
            return Err(Failure::Rejected("weir: it is being upgraded; try again".to_owned()).into());
        }
        let watchers = self.watchers();
        watchers.iter().try_for_each(|watcher| watcher.before(changes))?;
        let made = make();
        watchers.iter().for_each(|watcher| watcher.after(changes));
        made
    }

    /// Executes a request. Its answer comes when all watchers have followed.
    ///
    /// # Errors
    /// The request is refused and nothing has changed, or it has failed.
    pub fn request(&self, request: Request) -> Result<Reply, Failure> {
        if let (Request::Reconfigure { confirm_s }, Some(configuration)) = (&request, &self.configuration) {
            return Ok(self.reconfigure(configuration, *confirm_s)?.into());
        }
        let software = || requests::stats(&self.controller, &self.loader);
        let watchers = self.watchers();
        if let Some(answer) = watchers.iter().find_map(|watcher| watcher.answer(&request, &software)) {
            return answer;
        }
        if request == Request::Stats {
            return Ok(watchers.iter().fold(software(), |stats, watcher| watcher.add_to(stats)).into());
        }
        self.guarded(request.clone().changes(), || {
            requests::perform(request, &self.controller, &self.loader, &self.updates)
        })
    }

    /// Reads the configuration again, loads its policy, and activates it in the operator's posture. Nothing changes
    /// before the policy is loaded.
    fn reconfigure(&self, started: &Configuration, confirm_s: Option<f64>) -> Result<Reconfigured, Failure> {
        let _one_at_a_time = self.reconfiguring.lock().unwrap_or_else(PoisonError::into_inner);
        let _reloading = Reloading::begin();
        let trial = requests::trial(confirm_s)?;
        // Checked before the slow part, and again when it is activated.
        if self.controller.is_on_trial() {
            return Err(Failure::Rejected(format!("weir: {}", Refusal::OnTrial)));
        }
        let read = started.read_again()?;
        let policy = read.policy().to_owned();
        regular_file::check(&policy).map_err(|error| Failure::file(&policy, error))?;
        let prepare = || Generation::prepare(&policy, &self.loader);
        let generation = self.controller.add(preparation::prepare(&self.controller, prepare)?);
        let wanted = self.controller.decided_posture();
        let activated = self.guarded(Changes::Policy, || self.controller.reconfigure(generation, trial));
        if let Err(failure) = activated {
            self.controller.remove(generation);
            return Err(failure);
        }
        let posture = self.controller.decided_posture();
        let posture_lost = wanted.filter(|wanted| posture.as_ref() != Some(wanted));
        let (policy, restart) = (policy.display().to_string(), started.differing(&read));
        Ok(Reconfigured { generation, policy, posture, posture_lost, restart })
    }

    /// How full the state of the active generation is.
    pub fn occupancy(&self) -> Occupancy {
        occupancy::of(&self.controller.active(), self.loader.shared())
    }

    /// Activates a posture in front of the operator's. Its holder must renew it.
    ///
    /// # Errors
    /// There is no such posture, it is active already, or a worker failed.
    pub fn take_posture(&self, holder: Holder, posture: &str) -> Result<(), Failure> {
        self.guarded(Changes::Policy, || self.controller.take(holder, posture))
    }

    /// Extends the lease of an automatic posture, which decides nothing anew. Returns the generation that has it.
    ///
    /// # Errors
    /// It has ended: why, if that is known.
    pub fn renew_posture(&self, holder: Holder) -> Result<u64, Option<Why>> {
        self.controller.renew(holder)
    }

    /// Ends an automatic posture.
    ///
    /// # Errors
    /// A worker failed.
    pub fn release_posture(&self, holder: Holder) -> Result<(), Failure> {
        self.guarded(Changes::Policy, || self.controller.release(holder))
    }

    /// Makes a rule of a slot expire later, which decides nothing anew.
    pub fn renew_rule(&self, slot: &str, number: u32, expires_ns: u64) -> Renewal {
        slots::renew(self.controller.active().slots(), slot, number, expires_ns)
    }

    /// Reads the files of the wanted lists again, and applies what has changed.
    ///
    /// # Errors
    /// The errors of [`Updater::update`].
    pub fn update(
        &self,
        wanted: impl Fn(&ListName) -> bool,
        force: Force,
        cause: Cause,
    ) -> Result<Reloaded, NotUpdated> {
        self.guarded(Changes::Lists, || self.updater().update(wanted, force, cause))
    }

    /// Whether a list has the contents of its files.
    ///
    /// # Errors
    /// The errors of [`Updater::is_as_in_files`].
    pub fn is_as_in_files(&self, list: &ListName) -> Result<bool, Failure> {
        self.updater().is_as_in_files(list)
    }

    /// Activates a generation with another choice of rules that a card has. Returns its number.
    ///
    /// # Errors
    /// The errors of [`Updater::choose`].
    pub fn choose(&self, active: &Arc<Generation<LoaderCode<L>>>, choice: &BTreeSet<RuleId>) -> Result<u64, Failure> {
        self.guarded(Changes::Policy, || self.updater().choose(active, choice))
    }

    /// Makes a change that was due by time. Returns whether it still was.
    ///
    /// # Errors
    /// A worker failed.
    pub fn make_due(&self, due: Change) -> Result<bool, Failure> {
        self.guarded(Changes::Policy, || self.controller.make_due(due))
    }

    fn updater(&self) -> Updater<'_, L> {
        Updater { controller: &self.controller, loader: &self.loader, updates: &self.updates }
    }
}

#[cfg(test)]
#[path = "door/tests.rs"]
mod tests;
