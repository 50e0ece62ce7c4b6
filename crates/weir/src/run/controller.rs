//! The generations of a running policy: one decides, others stand ready.

use crate::cli::EngineName;
use crate::failure::Failure;
use crate::policy::Policy;
use crate::run::tally::Tally;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_abi::Counter;
use weir_engine::NativeCode;
use weir_engine::cpu::Cpu;
use weir_engine::live::{Activation, Loaded, PortReading, Role, Workers};
use weir_policy::ir::Direction;

/// Generations kept beside the active one and the one before it; the oldest go first.
const READY_MAX: usize = 8;

/// A policy that was compiled and loaded, and can be activated at once.
pub struct Generation {
    /// Its number, from 1.
    pub id: u64,
    path: PathBuf,
    policy: Policy,
    code: Arc<NativeCode>,
}

impl Generation {
    /// Reads, checks, compiles and loads a policy. What runs is not touched.
    ///
    /// # Errors
    /// The policy is wrong, or cannot be compiled or loaded.
    pub fn prepare(path: &Path) -> Result<Self, Failure> {
        let policy = Policy::load(path)?;
        policy.print_warnings();
        policy.refuse_unsupported(EngineName::Native.name())?;
        let object = policy.native_object(Cpu::Native)?.object;
        let code = policy.load_code(&object)?;
        Ok(Generation { id: 0, path: path.to_owned(), policy, code })
    }

    /// The code and the chains of a posture.
    ///
    /// # Errors
    /// There is no such posture.
    pub fn loaded(&self, posture: Option<&str>) -> Result<Loaded, Failure> {
        let program = &self.policy.program;
        let chain = |direction| {
            program.chain(posture, direction).ok_or_else(|| {
                let posture = posture.unwrap_or_default();
                Failure::Rejected(format!("weir: {} has no posture {posture}", self.path.display()))
            })
        };
        Ok(Loaded { code: self.code.clone(), chains: [chain(Direction::Upstream)?, chain(Direction::Downstream)?] })
    }

    fn postures(&self) -> Vec<String> {
        self.policy.program.chains.iter().step_by(2).filter_map(|chain| chain.posture.clone()).collect()
    }
}

/// A generation and one of its postures.
#[derive(Clone)]
struct Office {
    generation: Arc<Generation>,
    posture: Option<String>,
}

/// A change that goes back by itself unless it is confirmed.
struct Trial {
    ends: Instant,
}

/// Who decides, who stands ready, and what was counted.
pub struct Controller {
    workers: Workers,
    started: Instant,
    next_id: u64,
    ready: Vec<Arc<Generation>>,
    active: Office,
    /// Who decided before: what `rollback` goes back to.
    before: Option<Office>,
    trial: Option<Trial>,
    activation: Activation,
    /// What was counted by those who are out of office.
    past: [Tally; 2],
}

/// `ctl status`
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    /// Seconds since the start.
    pub uptime_s: f64,
    /// Threads that move packets.
    pub workers: usize,
    /// The generation that decides.
    pub generation: u64,
    /// Its posture; the base policy's if none.
    pub posture: Option<String>,
    /// How often who decides was changed.
    pub activations: u64,
    /// Seconds left to confirm the last change in.
    pub confirm_left_s: Option<f64>,
    /// What `rollback` goes back to.
    pub rollback_to: Option<u64>,
    /// All generations that stand ready.
    pub generations: Vec<GenerationStatus>,
}

/// A generation that stands ready.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GenerationStatus {
    /// Its number.
    pub id: u64,
    /// The policy's file.
    pub policy: String,
    /// Its postures besides the base policy.
    pub postures: Vec<String>,
    /// Rules.
    pub rules: usize,
}

/// `ctl stats`
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Stats {
    /// Packets from the lower side.
    pub upstream: DirectionStats,
    /// Packets from the upper side.
    pub downstream: DirectionStats,
    /// Interfaces, over all workers.
    pub interfaces: Vec<InterfaceStats>,
}

/// One direction since the last activation, and in total.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DirectionStats {
    /// Since the last activation.
    #[serde(flatten)]
    pub current: Tally,
    /// Since the start.
    pub total: Tally,
}

/// What became of packets at an interface.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct InterfaceStats {
    /// Its name.
    pub interface: String,
    /// `lower`, `upper`, `divert`.
    pub side: String,
    /// Packets received.
    pub rx_packets: u64,
    /// Their bytes.
    pub rx_bytes: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Their bytes.
    pub tx_bytes: u64,
    /// Packets that nobody decided about, because the receive queue was full.
    pub rx_missed: u64,
    /// Packets received of which a copy was handed to the divert interface. Those that are diverted themselves are none.
    pub sampled: u64,
    /// Accepted packets that could not be sent, by reason.
    pub tx_dropped: TxDropped,
}

/// Accepted packets that could not be sent, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct TxDropped {
    /// The transmit queue was full.
    pub tx_full: u64,
    /// The interface was down or gone.
    pub link_down: u64,
    /// The interface takes none so long.
    pub tx_too_long: u64,
    /// There is no interface to divert to.
    pub no_divert: u64,
}

impl Controller {
    /// Takes over workers that were started with the generation and its base policy.
    pub fn new(workers: Workers, activation: Activation, mut first: Generation) -> Self {
        first.id = 1;
        let generation = Arc::new(first);
        Controller {
            workers,
            started: Instant::now(),
            next_id: 2,
            ready: vec![generation.clone()],
            active: Office { generation, posture: None },
            before: None,
            trial: None,
            activation,
            past: Default::default(),
        }
    }

    /// Lets a prepared generation stand ready. Returns its number.
    pub fn add(&mut self, mut generation: Generation) -> u64 {
        generation.id = self.next_id;
        self.next_id += 1;
        let id = generation.id;
        self.ready.push(Arc::new(generation));
        let kept = |generation: &Arc<Generation>, active: &Office, before: &Option<Office>| {
            generation.id == active.generation.id
                || before.as_ref().is_some_and(|before| before.generation.id == generation.id)
        };
        while self.ready.len() > READY_MAX {
            let oldest = self.ready.iter().position(|one| !kept(one, &self.active, &self.before));
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

    fn change(&mut self, office: Office) -> Result<(), Failure> {
        let loaded = office.generation.loaded(office.posture.as_deref())?;
        let next = self.workers.switch(&loaded)?;
        let out = std::mem::replace(&mut self.activation, next);
        for direction in Direction::BOTH {
            self.past[direction as usize].add(&tally(&self.active, &out, direction));
        }
        self.before = Some(std::mem::replace(&mut self.active, office));
        self.trial = None;
        Ok(())
    }

    /// Who decides, and who stands ready.
    pub fn status(&self) -> Status {
        let status = |generation: &Arc<Generation>| GenerationStatus {
            id: generation.id,
            policy: generation.path.display().to_string(),
            postures: generation.postures(),
            rules: generation.policy.program.rules.len(),
        };
        Status {
            uptime_s: self.started.elapsed().as_secs_f64(),
            workers: self.workers.ports().len(),
            generation: self.active.generation.id,
            posture: self.active.posture.clone(),
            activations: self.activation.number,
            confirm_left_s: self
                .trial
                .as_ref()
                .map(|trial| trial.ends.saturating_duration_since(Instant::now()).as_secs_f64()),
            rollback_to: self.before.as_ref().map(|before| before.generation.id),
            generations: self.ready.iter().map(status).collect(),
        }
    }

    /// What was counted.
    pub fn stats(&self) -> Stats {
        let direction = |direction: Direction| {
            let current = tally(&self.active, &self.activation, direction);
            let mut total = self.past[direction as usize].clone();
            total.add(&current);
            DirectionStats { current, total }
        };
        // An interface has a port for each of its queues.
        let mut sums: Vec<(&str, Role, PortReading)> = Vec::new();
        for port in self.workers.ports().iter().flatten() {
            let known = sums.iter_mut().find(|(name, role, _)| *name == port.interface && *role == port.role);
            match known {
                Some((_, _, sum)) => *sum = sum.plus(port.read()),
                None => sums.push((&port.interface, port.role, port.read())),
            }
        }
        let mut interfaces: Vec<InterfaceStats> = Vec::new();
        for (name, role, sum) in sums {
            interfaces.push(InterfaceStats {
                interface: name.to_owned(),
                side: role.name().to_owned(),
                rx_packets: sum.rx_packets,
                rx_bytes: sum.rx_bytes,
                tx_packets: sum.tx_packets,
                tx_bytes: sum.tx_bytes,
                rx_missed: sum.rx_missed,
                sampled: sum.sampled,
                tx_dropped: TxDropped {
                    tx_full: sum.tx_full,
                    link_down: sum.tx_link_down,
                    tx_too_long: sum.tx_too_long,
                    no_divert: sum.no_divert,
                },
            });
        }
        Stats { upstream: direction(Direction::Upstream), downstream: direction(Direction::Downstream), interfaces }
    }

    /// Whether a worker ended.
    pub fn has_failed(&self) -> bool {
        self.workers.has_failed()
    }

    /// Stops the workers; nothing can be changed afterwards.
    ///
    /// # Errors
    /// Why one failed.
    pub fn stop(&mut self) -> Result<(), Failure> {
        Ok(self.workers.stop()?)
    }
}

fn tally(office: &Office, activation: &Activation, direction: Direction) -> Tally {
    let blocks = activation.counters.iter().map(|blocks| blocks[direction as usize].read());
    let sum = blocks.reduce(|mut sum, block| {
        for (sum, counter) in sum.iter_mut().zip(block) {
            *sum = Counter { packets: sum.packets + counter.packets, bytes: sum.bytes + counter.bytes };
        }
        sum
    });
    Tally::of(&office.generation.policy.program, &sum.unwrap_or_default())
}
