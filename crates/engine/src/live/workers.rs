//! The workers of a running policy, as their controller sees them.

use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use crate::counters::CounterBlock;
use crate::live::lane::{Lane, PortCounters};
use crate::live::worker::{self, Deciders, Handover};
use crate::{EngineError, NativeCode, cpu};

/// How long a worker may take for the burst that it is in.
const SWITCH_TIMEOUT: Duration = Duration::from_secs(5);

/// A policy that workers can change to: code, and the chain for packets from each side, lower first.
#[derive(Clone)]
pub struct Loaded {
    /// The code, with its tables.
    pub code: Arc<NativeCode>,
    /// Upstream, downstream.
    pub chains: [usize; 2],
}

/// The counters of one stay in office: those of each worker, by the side that packets came from.
#[derive(Clone, Debug)]
pub struct Activation {
    /// Its number, from 1.
    pub number: u64,
    /// Upstream and downstream of each worker.
    pub counters: Vec<[CounterBlock; 2]>,
}

const SWITCH_POLL: Duration = Duration::from_micros(20);

struct Worker {
    thread: JoinHandle<Result<(), EngineError>>,
    handover: Arc<Handover>,
}

/// Threads that move packets.
pub struct Workers {
    workers: Vec<Worker>,
    ports: Vec<Vec<Arc<PortCounters>>>,
    stop: Arc<AtomicBool>,
    activations: u64,
}

impl Workers {
    /// Starts a worker for each lane, pinned to the core of its number if there are as many.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn start(lanes: Vec<Box<dyn Lane>>, first: &Loaded) -> Result<(Self, Activation), EngineError> {
        let stop = Arc::new(AtomicBool::new(false));
        let ports = lanes.iter().map(|lane| lane.ports()).collect();
        let mut workers = Workers { workers: Vec::new(), ports, stop, activations: 0 };
        let handovers: Vec<Arc<Handover>> = lanes.iter().map(|_| Arc::default()).collect();
        let activation = workers.give(&handovers, first);
        for (number, (mut lane, handover)) in lanes.into_iter().zip(handovers).enumerate() {
            let (stop, own) = (workers.stop.clone(), handover.clone());
            let body = move || {
                // Better unpinned than not at all: a container may not be allowed that core.
                let _not_allowed = cpu::pin_to(number);
                worker::run(&mut *lane, &own, &stop)
            };
            let thread = Builder::new().name(format!("weir-{number}")).spawn(body);
            let thread = thread.map_err(|source| EngineError::Worker { number, source })?;
            workers.workers.push(Worker { thread, handover });
        }
        Ok((workers, activation))
    }

    /// Changes all workers to another policy, each between two bursts. Returns when all have changed.
    ///
    /// # Errors
    /// A worker has ended; [`Workers::stop`] says why. Or it hangs.
    pub fn switch(&mut self, to: &Loaded) -> Result<Activation, EngineError> {
        let handovers: Vec<Arc<Handover>> = self.workers.iter().map(|worker| worker.handover.clone()).collect();
        let activation = self.give(&handovers, to);
        let start = Instant::now();
        for (number, worker) in self.workers.iter().enumerate() {
            while worker.handover.current() != activation.number {
                if worker.thread.is_finished() || start.elapsed() > SWITCH_TIMEOUT {
                    return Err(EngineError::WorkerStuck { number });
                }
                // The worker may need this core to get to its burst's end.
                std::thread::sleep(SWITCH_POLL);
            }
            worker.handover.free_done();
        }
        Ok(activation)
    }

    fn give(&mut self, handovers: &[Arc<Handover>], to: &Loaded) -> Activation {
        self.activations += 1;
        let number = self.activations;
        let counters = handovers.iter().map(|handover| {
            let filters = [to.code.filter(), to.code.filter()];
            let blocks = filters.each_ref().map(|filter| filter.counter_block());
            handover.give(Deciders { activation: number, filters, chains: to.chains });
            blocks
        });
        Activation { number, counters: counters.collect() }
    }

    /// Counters of each worker's interfaces.
    pub fn ports(&self) -> &[Vec<Arc<PortCounters>>] {
        &self.ports
    }

    /// Whether a worker has ended, which only a failure makes it do before [`Workers::stop`].
    pub fn has_failed(&self) -> bool {
        self.workers.iter().any(|worker| worker.thread.is_finished())
    }

    /// Stops all workers and lets go of their lanes.
    ///
    /// # Errors
    /// Why the first that failed did.
    pub fn stop(&mut self) -> Result<(), EngineError> {
        self.stop.store(true, Ordering::Relaxed);
        let ended: Vec<_> = self.workers.drain(..).map(|worker| worker.thread.join()).collect();
        ended.into_iter().try_for_each(|ended| ended.unwrap_or_else(|panicked| panic::resume_unwind(panicked)))
    }
}
