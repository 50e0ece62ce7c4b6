//! Controls the generations of a running Weir: one is active, others are ready.
//!
//! Only a change waits for another change. Status requests are answered at once from the current state.

mod card;
mod handover;
mod trials;

use crate::generations::account::{Stopped, sums};
use crate::generations::automatic::{Ended, Holder, Why};
use crate::generations::generation::Generation;
use crate::generations::ledger::Ledger;
use crate::generations::succession::{Change, READY_MAX, Refusal, Succession};
use crate::interfaces::guard::Guard;
use crate::parts::hybrid::HybridCard;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};
use weir_abi::Counter;
use weir_command::failure::Failure;
use weir_control::{Activating, Active, AutomaticPosture, Stats, Status, UpdatesStatus};
use weir_engine::live::{Datapath, Loaded, PortStatus, Reading, Stray};
use weir_policy::ir::{Direction, OnExit};

/// The datapath, its generations and their counts.
pub struct Controller<D: Datapath> {
    datapath: D,
    /// The time of trials and leases.
    clock: Box<dyn Fn() -> Instant + Send + Sync>,
    /// Applies the `on-exit` of the active policy when Weir ends.
    guard: Arc<Guard>,
    started: Instant,
    /// Held during a change. It must not be taken while `state` is held.
    changing: Mutex<()>,
    /// Held only briefly, and never while counters are read.
    state: Mutex<State<D::Code>>,
    ledger: Ledger<D::Code>,
    /// What other parts say in the status.
    reports: RwLock<Vec<Report>>,
    /// The card that answers rules, if there is one.
    card: OnceLock<HybridCard>,
    /// Held while the guard is told what to do at the end.
    ensuring: Mutex<()>,
}

/// Adds what a part knows to the status.
type Report = Box<dyn Fn(&mut Status) + Send + Sync>;

/// A shared generation.
type Shared<C> = Arc<Generation<C>>;

struct State<C> {
    succession: Succession,
    /// The ready generations of `succession`.
    ready: Vec<Shared<C>>,
    activations: u64,
    /// Start of the current change.
    changing_since: Instant,
    /// Previously active generations since the last [`Controller::take_superseded`], the oldest first. `None` if they
    /// are not read.
    superseded: Option<Vec<Shared<C>>>,
}

/// A change that has begun. If it is dropped before it is committed, also by a panic, it is abandoned.
struct PendingChange<'a, D: Datapath> {
    controller: &'a Controller<D>,
    generation: Shared<D::Code>,
    posture: Option<String>,
    policy: Loaded<D::Code>,
}

impl<D: Datapath> Drop for PendingChange<'_, D> {
    fn drop(&mut self) {
        let ready = {
            let mut state = self.controller.state();
            state.succession.abandon();
            state.ready.clone()
        };
        self.controller.ledger.close(&self.controller.datapath, &ready);
    }
}

impl<D: Datapath> Controller<D> {
    /// Controls a datapath that was started with the base policy of the generation `first`. With `trial` it is on
    /// trial: unless it is confirmed in this time, [`Controller::has_given_up`].
    ///
    /// # Errors
    /// The trial is too long.
    pub fn new(
        datapath: D,
        mut first: Generation<D::Code>,
        guard: Arc<Guard>,
        trial: Option<Duration>,
    ) -> Result<Self, Failure> {
        let started = Instant::now();
        let succession = match trial {
            Some(time) => Succession::on_trial(time, started).map_err(rejected)?,
            None => Succession::default(),
        };
        first.id = succession.active().generation;
        Ok(Self::with(datapath, vec![first], succession, guard))
    }

    /// Controls a datapath that decides by the policy that `succession` has decided for. `ready` are its generations.
    pub fn with(datapath: D, ready: Vec<Generation<D::Code>>, succession: Succession, guard: Arc<Guard>) -> Self {
        let started = Instant::now();
        let ready: Vec<_> = ready.into_iter().map(Arc::new).collect();
        let active = succession.active().generation;
        let generation = ready.iter().find(|one| one.id == active).expect("the active generation is ready").clone();
        generation.take_effect();
        // Debts from before the start may belong to lower rates.
        generation.bound_debts();
        let state = State { succession, ready, activations: 1, changing_since: started, superseded: None };
        let (changing, state, ledger) = (Mutex::default(), Mutex::new(state), Ledger::new(generation));
        Controller {
            datapath,
            clock: Box::new(Instant::now),
            guard,
            started,
            changing,
            state,
            ledger,
            reports: RwLock::default(),
            card: OnceLock::new(),
            ensuring: Mutex::default(),
        }
    }

    /// Adds a ready generation. Returns its number.
    pub fn add(&self, mut generation: Generation<D::Code>) -> u64 {
        let mut state = self.state();
        let (id, removed) = state.succession.add();
        generation.id = id;
        state.ready.push(Arc::new(generation));
        let removed: Vec<_> = state.ready.extract_if(.., |one| removed.contains(&one.id)).collect();
        drop(state);
        // Unloading is slow, so the state is not locked meanwhile.
        drop(removed);
        id
    }

    /// Unloads the oldest generation that is not in use. Returns its number, or `None` if all are in use.
    pub fn remove_oldest(&self) -> Option<u64> {
        let mut state = self.state();
        let oldest = state.succession.remove_oldest()?;
        let removed: Vec<_> = state.ready.extract_if(.., |one| one.id == oldest).collect();
        drop(state);
        drop(removed);
        Some(oldest)
    }

    /// Unloads a generation, unless it is in use.
    pub fn remove(&self, generation: u64) {
        let mut state = self.state();
        let is_removed = state.succession.remove(generation);
        let removed: Vec<_> = state.ready.extract_if(.., |one| is_removed && one.id == generation).collect();
        drop(state);
        drop(removed);
    }

    /// Activates the base policy of a generation. With `trial` it is rolled back after that time, unless
    /// [`Controller::confirm`] is called.
    ///
    /// # Errors
    /// There is no such generation, or a worker failed.
    pub fn activate(&self, generation: u64, trial: Option<Duration>) -> Result<(), Failure> {
        self.change(Change::Activate { generation, trial })
    }

    /// Activates a generation of the same configuration in the operator's posture, if it has that posture.
    ///
    /// # Errors
    /// A policy is on trial, there is no such generation, or a worker failed.
    pub fn reconfigure(&self, generation: u64, trial: Option<Duration>) -> Result<(), Failure> {
        self.change(Change::Reconfigure { generation, trial })
    }

    /// The posture that the operator has decided for; `None` for the base policy.
    pub fn decided_posture(&self) -> Option<String> {
        self.state().succession.decided().posture.clone()
    }

    /// Whether a policy is on trial.
    pub fn is_on_trial(&self) -> bool {
        self.state().succession.trial_ends().is_some()
    }

    /// Checks that a generation with other lists may replace the generation `of`.
    ///
    /// # Errors
    /// `of` is not active, or a policy is on trial.
    pub fn may_succeed(&self, of: u64) -> Result<(), Failure> {
        self.state().succession.may_succeed(of).map_err(rejected)
    }

    /// Replaces the active generation `of` by the same policy with other lists, in the same posture. The rollback
    /// target stays.
    ///
    /// # Errors
    /// `of` is not active, a policy is on trial, or a worker failed.
    pub fn succeed(&self, of: u64, generation: u64) -> Result<(), Failure> {
        self.change(Change::Succeed { of, generation })
    }

    /// Activates another posture of the active generation. `None` is its base policy.
    ///
    /// # Errors
    /// There is no such posture, or a worker failed.
    pub fn posture(&self, posture: Option<&str>) -> Result<(), Failure> {
        self.change(Change::Posture(posture.map(str::to_owned)))
    }

    /// Activates a posture of the active generation in front of the operator's, until it is released or ends otherwise
    /// (docs/guide/mitigation.md). It must be renewed.
    ///
    /// # Errors
    /// There is no such posture, it is active already, or a worker failed.
    pub fn take(&self, holder: Holder, posture: &str) -> Result<(), Failure> {
        self.change(Change::Take { holder, posture: posture.to_owned() })
    }

    /// Extends the lease of an automatic posture. Returns the generation that has it.
    ///
    /// # Errors
    /// It has ended: why, if that is known.
    pub fn renew(&self, holder: Holder) -> Result<u64, Option<Why>> {
        self.state().succession.renew(holder, (self.clock)())
    }

    /// Ends an automatic posture. One that has ended already is none any more.
    ///
    /// # Errors
    /// A worker failed.
    pub fn release(&self, holder: Holder) -> Result<(), Failure> {
        ignore_refusal(self.change(Change::Release(holder))).map(drop)
    }

    fn change(&self, change: Change) -> Result<(), Failure> {
        let _one_at_a_time = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut pending = self.begin(change)?;
        let next = match self.card.get() {
            Some(card) => {
                let next = card.prepare(&self.datapath, &pending.generation, pending.posture.as_deref())?;
                pending.policy.answered = next.answered;
                Some((card, next))
            }
            None => None,
        };
        self.datapath.activate(&pending.policy)?;
        // From here on the previous generation charges no bucket.
        pending.generation.bound_debts();
        pending.generation.take_effect();
        let ended = self.state().commit(&pending.generation, (self.clock)());
        if let Some(ended) = ended {
            notice!("weir: {ended}; {} decides", self.state().succession.active());
        }
        self.ensure_on_exit();
        next.map_or(Ok(()), |(card, next)| card.commit(next))
    }

    fn begin(&self, change: Change) -> Result<PendingChange<'_, D>, Failure> {
        let mut state = self.state();
        let State { succession, ready, .. } = &mut *state;
        let has_posture = |generation: u64, posture: &str| {
            ready.iter().any(|one| one.id == generation && one.loaded(Some(posture)).is_ok())
        };
        let to = succession.begin(change, (self.clock)(), has_posture).map_err(rejected)?;
        let generation = state.ready(to.generation);
        let policy = match generation.loaded(to.posture.as_deref()) {
            Ok(policy) => policy,
            Err(failure) => {
                state.succession.abandon();
                return Err(failure);
            }
        };
        state.changing_since = Instant::now();
        drop(state);
        self.ledger.open(&generation);
        Ok(PendingChange { controller: self, generation, posture: to.posture, policy })
    }

    fn state(&self) -> MutexGuard<'_, State<D::Code>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts to record superseded generations for [`Controller::take_superseded`], at most [`READY_MAX`].
    pub fn record_superseded(&self) {
        self.state().superseded.get_or_insert_default();
    }

    /// The active generation, and those that were active since the last call, the oldest first.
    pub fn take_superseded(&self) -> (Shared<D::Code>, Vec<Shared<D::Code>>) {
        let mut state = self.state();
        let superseded = state.superseded.as_mut().map(std::mem::take).unwrap_or_default();
        (state.active(), superseded)
    }

    /// The generation that was confirmed last, if any was.
    pub fn confirmed(&self) -> Option<Shared<D::Code>> {
        let state = self.state();
        state.succession.confirmed().map(|confirmed| state.ready(confirmed.generation))
    }

    /// The active generation.
    pub fn active(&self) -> Shared<D::Code> {
        self.state().active()
    }

    /// What decides packets: the number of activations so far, the generation and its posture.
    pub fn deciding(&self) -> (u64, Shared<D::Code>, Option<String>) {
        let state = self.state();
        (state.activations, state.active(), state.succession.active().posture)
    }

    /// Unloads a generation for the operator.
    ///
    /// # Errors
    /// There is no such generation, or it is in use.
    pub fn unload(&self, generation: u64) -> Result<(), Failure> {
        let checked = self.state().succession.may_remove(generation);
        checked.map_err(|refusal| Failure::Rejected(format!("weir: {refusal}")))?;
        self.remove(generation);
        Ok(())
    }

    /// Lets a part add what it knows to each status.
    pub fn report(&self, report: impl Fn(&mut Status) + Send + Sync + 'static) {
        self.reports.write().unwrap_or_else(PoisonError::into_inner).push(Box::new(report));
    }

    /// The status of all generations. The caller adds the status of updates.
    pub fn status(&self) -> Status {
        let taken_down = self.guard.down();
        let state = self.state();
        let succession = &state.succession;
        let now = (self.clock)();
        let left = |ends: Instant| ends.saturating_duration_since(now).as_secs_f64();
        let activating = |to: &Active| Activating {
            generation: to.generation,
            posture: to.posture.clone(),
            since_s: Instant::now().saturating_duration_since(state.changing_since).as_secs_f64(),
        };
        let Active { generation, posture } = succession.active();
        let automatic = succession.automatic().posture().map(|posture| AutomaticPosture {
            posture: posture.to_owned(),
            in_place_of: succession.decided().posture.clone(),
        });
        let mut status = Status {
            uptime_s: self.started.elapsed().as_secs_f64(),
            engine: None,
            workers: self.datapath.workers(),
            access: self.datapath.access(),
            generation,
            posture,
            automatic,
            on_exit: state.on_exit().name().to_owned(),
            interfaces: Vec::new(),
            taken_down,
            activations: state.activations,
            confirm_left_s: succession.trial_ends().map(left),
            rollback_to: succession.rollback_target().map(|target| target.generation),
            rollback_posture: succession.rollback_target().and_then(|target| target.posture.clone()),
            activating: succession.pending().map(activating),
            mixed: self.mixed(),
            state: None,
            kept: None,
            flows: None,
            export: None,
            updates: UpdatesStatus::default(),
            generations: state.ready.iter().map(|generation| generation.status()).collect(),
        };
        drop(state);
        let reports = self.reports.read().unwrap_or_else(PoisonError::into_inner);
        reports.iter().for_each(|report| report(&mut status));
        status
    }

    /// All counts. No lock of the controller is held while counters are read.
    pub fn stats(&self) -> Stats {
        self.ledger.stats(&self.datapath)
    }

    /// The ports of the datapath.
    pub fn ports(&self) -> Vec<PortStatus> {
        self.ledger.ports(&self.datapath)
    }

    /// Packets from the lower side since the start that did not get past the datapath.
    pub fn stopped(&self) -> Stopped {
        self.ledger.stopped(&self.datapath)
    }

    /// The counters of the chains `upstream` of the active policy, summed over workers; `None` if another generation
    /// decides packets.
    pub fn upstream_counters(&self, generation: &Generation<D::Code>) -> Option<Vec<Counter>> {
        let Reading { code, counts } = self.datapath.readings().active;
        generation.has_code(&code).then(|| sums(&counts, Direction::Upstream))
    }

    /// Packets since the start that were sampled: a copy went to the divert interface. Diverted packets do not count.
    pub fn sampled(&self) -> u64 {
        self.ports().iter().map(|port| port.reading.sampled).sum()
    }

    /// Describes parts of the datapath that use another policy than the active one.
    fn mixed(&self) -> Vec<String> {
        let describe = |stray: &Stray<D::Code>| {
            // A generation that is not in the ledger has ended meanwhile.
            let generation = self.ledger.generation(&stray.policy.code)?;
            let posture = generation.posture_of(stray.policy.chains).map(str::to_owned);
            Some(format!("{} decides by {}", stray.part, Active { generation: generation.id, posture }))
        };
        self.datapath.strays().iter().filter_map(describe).collect()
    }

    /// Whether the datapath has failed.
    pub fn has_failed(&self) -> bool {
        self.datapath.has_failed()
    }

    /// Stops the datapath. A change in progress fails, and later changes fail too.
    ///
    /// # Errors
    /// The datapath had failed before, or does not stop.
    pub fn stop(&self) -> Result<(), Failure> {
        Ok(self.datapath.stop()?)
    }
}

impl<C> State<C> {
    fn active(&self) -> Shared<C> {
        self.ready(self.succession.active().generation)
    }

    /// What happens when Weir ends: what the policy says that was confirmed last. Without one everything passes, as
    /// before Weir.
    fn on_exit(&self) -> OnExit {
        let confirmed = self.succession.confirmed();
        confirmed.map_or(OnExit::Forward, |confirmed| self.ready(confirmed.generation).program().on_exit)
    }

    fn ready(&self, id: u64) -> Shared<C> {
        self.ready.iter().find(|one| one.id == id).expect("a generation in use is ready").clone()
    }

    /// Makes the generation of the pending change the active one. Returns the automatic posture that has ended by it.
    fn commit(&mut self, generation: &Shared<C>, now: Instant) -> Option<Ended> {
        let before = self.active();
        let ended = self.succession.commit(now);
        self.activations += 1;
        // A posture of the same generation continues its counts.
        let is_known = |superseded: &[Arc<_>]| superseded.iter().any(|known| Arc::ptr_eq(known, &before));
        let superseded = self.superseded.as_mut();
        if let Some(superseded) = superseded.filter(|all| !is_known(all) && !Arc::ptr_eq(&before, generation)) {
            superseded.push(before);
            if superseded.len() > READY_MAX {
                superseded.remove(0);
            }
        }
        ended
    }
}

/// Whether a change was made. One that is refused was not needed any more.
fn ignore_refusal(changed: Result<(), Failure>) -> Result<bool, Failure> {
    match changed {
        Ok(()) => Ok(true),
        Err(Failure::Rejected(_)) => Ok(false),
        Err(failure) => Err(failure),
    }
}

fn rejected(refusal: Refusal) -> Failure {
    Failure::Rejected(format!("weir: {refusal}"))
}

#[cfg(test)]
impl<D: Datapath> Controller<D> {
    /// Replaces the clock of trials and leases.
    pub fn with_clock(self, clock: impl Fn() -> Instant + Send + Sync + 'static) -> Self {
        Controller { clock: Box::new(clock), ..self }
    }
}
