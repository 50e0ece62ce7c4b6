//! The generations of a running policy: one decides, others stand ready.
//!
//! Only a change waits for a change: questions about Weir are answered from its present state.

use crate::failure::Failure;
use crate::run::generation::Generation;
use crate::run::guard::Guard;
use crate::run::ledger::Ledger;
use crate::run::succession::{Change, READY_MAX, Refusal, Succession};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use weir_control::{Activating, Active, Stats, Status};
use weir_engine::live::{Datapath, Loaded, Stray};

/// Which generation decides, and which stand ready.
pub struct Controller<D: Datapath> {
    datapath: D,
    /// Is told what happens to the link in the end.
    guard: Arc<Guard>,
    started: Instant,
    /// Held during a change. A thread that holds `state` never takes it.
    changing: Mutex<()>,
    /// Held for moments, and never while counters are read.
    state: Mutex<State<D::Code>>,
    ledger: Ledger<D::Code>,
}

/// A generation that several hold.
type Shared<C> = Arc<Generation<C>>;

struct State<C> {
    succession: Succession,
    /// Those of `succession`.
    ready: Vec<Shared<C>>,
    activations: u64,
    /// When the change that is under way began.
    changing_since: Instant,
    /// Generations that decided since somebody looked last, the oldest first; `None` if nobody looks.
    left: Option<Vec<Shared<C>>>,
}

/// A change that has begun. Dropped, it is abandoned if it was not committed, also by a panic.
struct Begun<'a, D: Datapath> {
    controller: &'a Controller<D>,
    generation: Shared<D::Code>,
    policy: Loaded<D::Code>,
}

impl<D: Datapath> Drop for Begun<'_, D> {
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
    /// Takes over a datapath that was started with the generation and its base policy.
    pub fn new(datapath: D, mut first: Generation<D::Code>, guard: Arc<Guard>) -> Self {
        let (succession, started) = (Succession::default(), Instant::now());
        first.id = succession.active().generation;
        let generation = Arc::new(first);
        let state =
            State { succession, ready: vec![generation.clone()], activations: 1, changing_since: started, left: None };
        let (changing, state, ledger) = (Mutex::default(), Mutex::new(state), Ledger::new(generation));
        Controller { datapath, guard, started, changing, state, ledger }
    }

    /// Lets a prepared generation stand ready. Returns its number.
    pub fn add(&self, mut generation: Generation<D::Code>) -> u64 {
        let mut state = self.state();
        let (id, gone) = state.succession.add();
        generation.id = id;
        state.ready.push(Arc::new(generation));
        let gone: Vec<_> = state.ready.extract_if(.., |one| gone.contains(&one.id)).collect();
        drop(state);
        // Unloading takes longer than anybody should wait for the state.
        drop(gone);
        id
    }

    /// Unloads the oldest generation that is not in use. Returns its number; `None` if all are in use.
    pub fn remove_oldest(&self) -> Option<u64> {
        let mut state = self.state();
        let oldest = state.succession.remove_oldest()?;
        let gone: Vec<_> = state.ready.extract_if(.., |one| one.id == oldest).collect();
        drop(state);
        drop(gone);
        Some(oldest)
    }

    /// Activates a generation with its base policy; with `trial`, for so long unless [`Controller::confirm`] comes.
    ///
    /// # Errors
    /// There is no such generation, or a worker failed.
    pub fn activate(&self, generation: u64, trial: Option<Duration>) -> Result<(), Failure> {
        self.change(Change::Activate { generation, trial })
    }

    /// Activates another posture of the active generation; `None`: its base policy.
    ///
    /// # Errors
    /// There is no such posture, or a worker failed.
    pub fn posture(&self, posture: Option<&str>) -> Result<(), Failure> {
        self.change(Change::Posture(posture.map(str::to_owned)))
    }

    /// Reactivates what was confirmed last, on trial; else what was confirmed before.
    ///
    /// # Errors
    /// Nothing was, or a worker failed.
    pub fn rollback(&self) -> Result<(), Failure> {
        self.change(Change::Rollback)
    }

    /// What is on trial stays.
    ///
    /// # Errors
    /// Nothing is on trial, or something else is being activated.
    pub fn confirm(&self) -> Result<(), Failure> {
        self.state().succession.confirm().map_err(rejected)
    }

    /// Reactivates what was confirmed last if a trial's time is over. Returns whether it was.
    ///
    /// # Errors
    /// A worker failed.
    pub fn tick(&self) -> Result<bool, Failure> {
        if self.state().succession.trial_ends().is_none_or(|ends| Instant::now() < ends) {
            return Ok(false);
        }
        match self.change(Change::Timeout) {
            Ok(()) => Ok(true),
            // Confirmed at the last moment.
            Err(Failure::Rejected(_)) => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    fn change(&self, change: Change) -> Result<(), Failure> {
        let _one_at_a_time = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let begun = self.begin(change)?;
        self.datapath.activate(&begun.policy)?;
        self.state().commit(&begun.generation);
        self.guard.heed(begun.generation.program().on_exit);
        Ok(())
    }

    fn begin(&self, change: Change) -> Result<Begun<'_, D>, Failure> {
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
        Ok(Begun { controller: self, generation, policy })
    }

    fn state(&self) -> MutexGuard<'_, State<D::Code>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on, generations that decided are remembered for [`Controller::take_left`]: so many as stand ready at most.
    pub fn remember_left(&self) {
        self.state().left.get_or_insert_default();
    }

    /// The generation that decides, and those that did since the last call, the oldest first.
    pub fn take_left(&self) -> (Shared<D::Code>, Vec<Shared<D::Code>>) {
        let mut state = self.state();
        let left = state.left.as_mut().map(std::mem::take).unwrap_or_default();
        (state.active(), left)
    }

    /// The generation that decides.
    pub fn active(&self) -> Shared<D::Code> {
        self.state().active()
    }

    /// What decides, and what stands ready.
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
            on_exit: state.active().program().on_exit.name().to_owned(),
            taken_down,
            activations: state.activations,
            confirm_left_s: succession.trial_ends().map(left),
            rollback_to: succession.way_back().map(|back| back.generation),
            rollback_posture: succession.way_back().and_then(|back| back.posture.clone()),
            activating: succession.pending().map(activating),
            mixed: self.mixed(),
            generations: state.ready.iter().map(|generation| generation.status()).collect(),
        }
    }

    /// What was counted. No lock of the controller is held while counters are read.
    pub fn stats(&self) -> Stats {
        self.ledger.stats(&self.datapath)
    }

    /// Parts of the datapath that decide by another policy than the active one, with that policy.
    fn mixed(&self) -> Vec<String> {
        let describe = |stray: &Stray<D::Code>| {
            // A generation that is not in the ledger any more has ended since.
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

    /// Stops the datapath; nothing can be changed afterwards, and a change that is under way fails.
    ///
    /// # Errors
    /// Why it failed before, or does not stop.
    pub fn stop(&self) -> Result<(), Failure> {
        Ok(self.datapath.stop()?)
    }
}

impl<C> State<C> {
    fn active(&self) -> Shared<C> {
        self.ready(self.succession.active().generation)
    }

    fn ready(&self, id: u64) -> Shared<C> {
        self.ready.iter().find(|one| one.id == id).expect("what is in use stands ready").clone()
    }

    /// What had begun decides.
    fn commit(&mut self, generation: &Shared<C>) {
        let before = self.active();
        self.succession.commit(Instant::now());
        self.activations += 1;
        // Another posture counts on for the same limits.
        let is_known = |left: &[Arc<_>]| left.iter().any(|known| Arc::ptr_eq(known, &before));
        if let Some(left) = self.left.as_mut().filter(|left| !is_known(left) && !Arc::ptr_eq(&before, generation)) {
            left.push(before);
            if left.len() > READY_MAX {
                left.remove(0);
            }
        }
    }
}

fn rejected(refusal: Refusal) -> Failure {
    Failure::Rejected(format!("weir: {refusal}"))
}
