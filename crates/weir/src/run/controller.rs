//! The generations of a running policy: one decides, others stand ready.

use crate::failure::Failure;
use crate::run::account::Account;
use crate::run::generation::Generation;
use crate::run::guard::Guard;
use crate::run::stats::{Stats, Status};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_engine::live::Datapath;

/// Generations kept beside the active one and the one before it; the oldest go first.
const READY_MAX: usize = 8;

/// A generation and one of its postures.
struct Office<C> {
    generation: Arc<Generation<C>>,
    posture: Option<String>,
}

impl<C> Clone for Office<C> {
    fn clone(&self) -> Self {
        Office { generation: self.generation.clone(), posture: self.posture.clone() }
    }
}

/// A change that goes back by itself unless it is confirmed.
struct Trial {
    ends: Instant,
}

/// Who decides, who stands ready, and what was counted.
pub struct Controller<D: Datapath> {
    datapath: D,
    /// Is told what happens to the link in the end.
    guard: Arc<Guard>,
    started: Instant,
    next_id: u64,
    activations: u64,
    ready: Vec<Arc<Generation<D::Code>>>,
    active: Office<D::Code>,
    /// Who decided before: what `rollback` goes back to.
    before: Option<Office<D::Code>>,
    trial: Option<Trial>,
    account: Account,
    /// Who left office since somebody looked last, the oldest first; `None` if nobody looks.
    left: Option<Vec<Arc<Generation<D::Code>>>>,
}

impl<D: Datapath> Controller<D> {
    /// Takes over a datapath that was started with the generation and its base policy.
    pub fn new(datapath: D, mut first: Generation<D::Code>, guard: Arc<Guard>) -> Self {
        first.id = 1;
        let generation = Arc::new(first);
        Controller {
            datapath,
            guard,
            started: Instant::now(),
            next_id: 2,
            activations: 1,
            ready: vec![generation.clone()],
            active: Office { generation, posture: None },
            before: None,
            trial: None,
            account: Account::default(),
            left: None,
        }
    }

    /// Lets a prepared generation stand ready. Returns its number.
    pub fn add(&mut self, mut generation: Generation<D::Code>) -> u64 {
        generation.id = self.next_id;
        self.next_id += 1;
        let id = generation.id;
        self.ready.push(Arc::new(generation));
        let in_use = [Some(self.active.generation.id), self.before.as_ref().map(|before| before.generation.id)];
        while self.ready.len() > READY_MAX {
            let oldest = self.ready.iter().position(|one| !in_use.contains(&Some(one.id)));
            self.ready.remove(oldest.expect("more stand ready than are in use"));
        }
        id
    }

    /// Lets a generation decide, with its base policy. With `confirm`, only for so long unless [`Controller::confirm`] comes.
    ///
    /// # Errors
    /// There is no such generation, or a worker failed.
    pub fn activate(&mut self, id: u64, confirm: Option<Duration>) -> Result<(), Failure> {
        let Some(generation) = self.ready.iter().find(|one| one.id == id).cloned() else {
            let known: Vec<String> = self.ready.iter().map(|one| one.id.to_string()).collect();
            return Err(Failure::Rejected(format!("weir: no generation {id}; ready are {}", known.join(", "))));
        };
        self.change(Office { generation, posture: None })?;
        self.trial = confirm.map(|time| Trial { ends: Instant::now() + time });
        Ok(())
    }

    /// Lets another posture of the active generation decide; `None`: its base policy.
    ///
    /// # Errors
    /// There is no such posture, or a worker failed.
    pub fn posture(&mut self, posture: Option<&str>) -> Result<(), Failure> {
        let office = Office { generation: self.active.generation.clone(), posture: posture.map(str::to_owned) };
        self.change(office)
    }

    /// Goes back to who decided before.
    ///
    /// # Errors
    /// Nobody did, or a worker failed.
    pub fn rollback(&mut self) -> Result<(), Failure> {
        match self.before.clone() {
            Some(before) => self.change(before),
            None => Err(Failure::Rejected("weir: there is nothing to go back to".to_owned())),
        }
    }

    /// The last change stays.
    ///
    /// # Errors
    /// It needs no confirmation.
    pub fn confirm(&mut self) -> Result<(), Failure> {
        match self.trial.take() {
            Some(_) => Ok(()),
            None => Err(Failure::Rejected("weir: nothing waits to be confirmed".to_owned())),
        }
    }

    /// Does what is due: goes back if a change was not confirmed in time. Returns whether it did.
    ///
    /// # Errors
    /// A worker failed.
    pub fn tick(&mut self) -> Result<bool, Failure> {
        if self.trial.as_ref().is_none_or(|trial| Instant::now() < trial.ends) {
            return Ok(false);
        }
        self.rollback()?;
        Ok(true)
    }

    fn change(&mut self, office: Office<D::Code>) -> Result<(), Failure> {
        let counted = self.datapath.activate(&office.generation.loaded(office.posture.as_deref())?)?;
        self.account.close(self.active.generation.program(), &counted, &self.datapath.ports());
        self.activations += 1;
        let before = std::mem::replace(&mut self.active, office);
        self.leave(before);
        self.guard.heed(self.active.generation.program().on_exit);
        self.trial = None;
        let in_use = [Some(&self.active.generation), self.before.as_ref().map(|before| &before.generation)];
        let standing = self.ready.iter().chain(in_use.into_iter().flatten());
        self.account.forget(standing.map(|generation| generation.program()));
        Ok(())
    }

    /// Somebody left office.
    fn leave(&mut self, office: Office<D::Code>) {
        let known = |left: &&mut Vec<Arc<_>>| !left.iter().any(|known| Arc::ptr_eq(known, &office.generation));
        if let Some(left) = self.left.as_mut().filter(known) {
            left.push(office.generation.clone());
            if left.len() > READY_MAX {
                left.remove(0);
            }
        }
        self.before = Some(office);
    }

    /// From now on, who leaves office is remembered for [`Controller::take_left`]: so many as stand ready at most.
    pub fn remember_left(&mut self) {
        self.left.get_or_insert_default();
    }

    /// Who left office since the last call, the oldest first.
    pub fn take_left(&mut self) -> Vec<Arc<Generation<D::Code>>> {
        self.left.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Who decides.
    pub fn active(&self) -> Arc<Generation<D::Code>> {
        self.active.generation.clone()
    }

    /// Who decides, and who stands ready.
    pub fn status(&self) -> Status {
        let left = |trial: &Trial| trial.ends.saturating_duration_since(Instant::now()).as_secs_f64();
        Status {
            uptime_s: self.started.elapsed().as_secs_f64(),
            workers: self.datapath.workers(),
            access: self.datapath.access(),
            generation: self.active.generation.id,
            posture: self.active.posture.clone(),
            on_exit: self.active.generation.program().on_exit.name().to_owned(),
            taken_down: self.guard.down(),
            activations: self.activations,
            confirm_left_s: self.trial.as_ref().map(left),
            rollback_to: self.before.as_ref().map(|before| before.generation.id),
            generations: self.ready.iter().map(|generation| generation.status()).collect(),
        }
    }

    /// What was counted.
    pub fn stats(&self) -> Stats {
        self.account.stats(self.active.generation.program(), &self.datapath.counts(), &self.datapath.ports())
    }

    /// Whether the datapath has failed.
    pub fn has_failed(&self) -> bool {
        self.datapath.has_failed()
    }

    /// Stops the datapath; nothing can be changed afterwards.
    ///
    /// # Errors
    /// Why it failed before.
    pub fn stop(&mut self) -> Result<(), Failure> {
        Ok(self.datapath.stop()?)
    }
}
