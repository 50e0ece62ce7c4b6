//! Controls the generations of a running Weir: one is active, others are ready.
//!
//! Only a change waits for another change. Status requests are answered at once from the current state.

mod trials;

use crate::failure::Failure;
use crate::run::account::sums;
use crate::run::generation::Generation;
use crate::run::guard::Guard;
use crate::run::hybrid::{Found, HybridCard, Next, changed};
use crate::run::ledger::Ledger;
use crate::run::succession::{Change, READY_MAX, Refusal, Succession};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};
use weir_abi::Counter;
use weir_control::{Activating, Active, StateStatus, Stats, Status, UpdatesStatus};
use weir_engine::live::{Datapath, Loaded, Reading, Stray};
use weir_policy::ir::{Direction, OnExit};

/// How long the end waits for a change that is under way, before it leaves the card as it is.
const LEAVING: Duration = Duration::from_secs(2);

/// The datapath, its generations and their counts.
pub struct Controller<D: Datapath> {
    datapath: D,
    /// Applies the `on-exit` of the active policy when Weir ends.
    guard: Arc<Guard>,
    started: Instant,
    /// Held during a change. It must not be taken while `state` is held.
    changing: Mutex<()>,
    /// Held only briefly, and never while counters are read.
    state: Mutex<State<D::Code>>,
    ledger: Ledger<D::Code>,
    /// Reports how state is saved to disk, if it is.
    saved: OnceLock<ReportState>,
    /// The card that answers rules, if there is one.
    card: OnceLock<HybridCard>,
    /// Held while the guard is told what to do at the end.
    ensuring: Mutex<()>,
}

/// Reports how state is saved to disk.
type ReportState = Box<dyn Fn() -> StateStatus + Send + Sync>;

/// A shared generation.
type Shared<C> = Arc<Generation<C>>;

struct State<C> {
    succession: Succession,
    /// The ready generations of `succession`.
    ready: Vec<Shared<C>>,
    activations: u64,
    /// Start of the current change.
    changing_since: Instant,
    /// Previously active generations since the last [`Controller::take_superseded`], the oldest first. `None` if nobody
    /// reads them.
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
    /// Controls a datapath that was started with the base policy of the generation `first`. With `trial` it is on trial:
    /// unless it is confirmed in this time, [`Controller::has_given_up`].
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
        first.take_effect();
        // Debts of before the start may be those of lower rates.
        first.bound_debts();
        let generation = Arc::new(first);
        let state = State {
            succession,
            ready: vec![generation.clone()],
            activations: 1,
            changing_since: started,
            superseded: None,
        };
        let (changing, state, ledger) = (Mutex::default(), Mutex::new(state), Ledger::new(generation));
        let (saved, card, ensuring) = (OnceLock::new(), OnceLock::new(), Mutex::default());
        Ok(Controller { datapath, guard, started, changing, state, ledger, saved, card, ensuring })
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
        self.state().commit(&pending.generation);
        self.ensure_on_exit();
        next.map_or(Ok(()), |(card, next)| card.commit(next))
    }

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

    /// Asks a card that did not answer again. If it has lost its configuration, it is opened and gets that of the active
    /// policy. Nothing happens during a change.
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

    /// The same for a caller that keeps other changes out.
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

    fn begin(&self, change: Change) -> Result<PendingChange<'_, D>, Failure> {
        let mut state = self.state();
        let to = state.succession.begin(change, Instant::now()).map_err(rejected)?;
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

    /// The active generation.
    pub fn active(&self) -> Shared<D::Code> {
        self.state().active()
    }

    /// What decides packets: the number of activations so far, the generation and its posture.
    pub fn deciding(&self) -> (u64, Shared<D::Code>, Option<String>) {
        let state = self.state();
        (state.activations, state.active(), state.succession.active().posture.clone())
    }

    /// Sets the report on saved state, which is a part of the status. The first one counts.
    pub fn report_state(&self, report: impl Fn() -> StateStatus + Send + Sync + 'static) {
        let _first = self.saved.set(Box::new(report));
    }

    /// The status of all generations. Its caller adds that of updates.
    pub fn status(&self) -> Status {
        let taken_down = self.guard.down();
        let state = self.state();
        let succession = &state.succession;
        let now = Instant::now();
        let left = |ends: Instant| ends.saturating_duration_since(now).as_secs_f64();
        let activating = |to: &Active| Activating {
            generation: to.generation,
            posture: to.posture.clone(),
            since_s: now.saturating_duration_since(state.changing_since).as_secs_f64(),
        };
        let Active { generation, posture } = succession.active().clone();
        Status {
            uptime_s: self.started.elapsed().as_secs_f64(),
            workers: self.datapath.workers(),
            access: self.datapath.access(),
            generation,
            posture,
            on_exit: state.on_exit().name().to_owned(),
            taken_down,
            activations: state.activations,
            confirm_left_s: succession.trial_ends().map(left),
            rollback_to: succession.rollback_target().map(|target| target.generation),
            rollback_posture: succession.rollback_target().and_then(|target| target.posture.clone()),
            activating: succession.pending().map(activating),
            mixed: self.mixed(),
            state: self.saved.get().map(|report| report()),
            updates: UpdatesStatus::default(),
            generations: state.ready.iter().map(|generation| generation.status()).collect(),
        }
    }

    /// All counts. No lock of the controller is held while counters are read.
    pub fn stats(&self) -> Stats {
        self.ledger.stats(&self.datapath)
    }

    /// The counters of the chains `upstream` of the active policy, summed over workers; `None` if another generation
    /// decides packets.
    pub fn upstream_counters(&self, generation: &Generation<D::Code>) -> Option<Vec<Counter>> {
        let Reading { code, counts } = self.datapath.readings().active;
        generation.has_code(&code).then(|| sums(&counts, Direction::Upstream))
    }

    /// Packets since the start of which a copy went to the divert interface, besides diverted ones.
    pub fn sampled(&self) -> u64 {
        self.datapath.ports().iter().map(|port| port.reading.sampled).sum()
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

    /// Makes the generation of the pending change the active one.
    fn commit(&mut self, generation: &Shared<C>) {
        let before = self.active();
        self.succession.commit(Instant::now());
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
    }
}

fn rejected(refusal: Refusal) -> Failure {
    Failure::Rejected(format!("weir: {refusal}"))
}
