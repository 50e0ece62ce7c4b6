//! The workers of a running policy, as their controller sees them.

use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use crate::counters::CounterBlock;
use crate::live::datapath::{Counts, Datapath, Loaded, PortStatus};
use crate::live::device::Presence;
use crate::live::lane::{Access, Lane, PortCounters};
use crate::live::worker::{self, Deciders, Handover};
use crate::native::Sharing;
use crate::{EngineError, NativeCode, cpu};

/// How long a worker may take for the burst that it is in. On a machine with several times more to run than it has cores, one that was ready
/// to run was seen to wait for a core for six seconds.
const SWITCH_TIMEOUT: Duration = Duration::from_secs(60);

/// How long the controller sleeps before it asks again.
const SWITCH_POLL: Duration = Duration::from_micros(20);

struct Worker {
    thread: JoinHandle<Result<(), EngineError>>,
    handover: Arc<Handover>,
}

/// Threads that move packets.
pub struct Workers {
    workers: Vec<Worker>,
    ports: Vec<Vec<Arc<PortCounters>>>,
    access: Vec<Access>,
    presence: Presence,
    stop: Arc<AtomicBool>,
    activations: u64,
    /// Of the policy that decides: of each worker, by side.
    counters: Vec<[CounterBlock; 2]>,
}

impl Workers {
    /// Starts a worker for each lane, pinned to the core of its number if there are as many.
    ///
    /// # Errors
    /// A thread cannot be started, or there are too many open files.
    pub fn start(lanes: Vec<Box<dyn Lane>>, first: &Loaded<NativeCode>) -> Result<Self, EngineError> {
        let stop = Arc::new(AtomicBool::new(false));
        let ports = lanes.iter().map(|lane| lane.ports()).collect();
        let access = lanes.first().map(|lane| lane.access()).unwrap_or_default();
        let presence = Presence::open().map_err(|source| EngineError::Io { path: "a socket".into(), source })?;
        let (threads, counters) = (Vec::new(), Vec::new());
        let mut workers = Workers { workers: threads, ports, access, presence, stop, activations: 0, counters };
        let handovers: Vec<Arc<Handover>> = lanes.iter().map(|_| Arc::default()).collect();
        workers.counters = workers.give(&handovers, first);
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
        Ok(workers)
    }

    /// Leaves the policy to all workers. Returns the counters that they will count with.
    fn give(&mut self, handovers: &[Arc<Handover>], to: &Loaded<NativeCode>) -> Vec<[CounterBlock; 2]> {
        self.activations += 1;
        let sharing = if handovers.len() > 1 { Sharing::Shared } else { Sharing::Alone };
        let counters = handovers.iter().map(|handover| {
            let filters = [to.code.filter(sharing), to.code.filter(sharing)];
            let blocks = filters.each_ref().map(|filter| filter.counter_block());
            handover.give(Deciders { activation: self.activations, filters, chains: to.chains });
            blocks
        });
        counters.collect()
    }

    fn wait_until_changed(&self) -> Result<(), EngineError> {
        let start = Instant::now();
        for (number, worker) in self.workers.iter().enumerate() {
            while worker.handover.current() != self.activations {
                if worker.thread.is_finished() {
                    return Err(EngineError::WorkerEnded { number });
                }
                if start.elapsed() > SWITCH_TIMEOUT {
                    return Err(EngineError::WorkerStuck { number });
                }
                // The worker may need this core to get to its burst's end.
                std::thread::sleep(SWITCH_POLL);
            }
            worker.handover.free_done();
        }
        Ok(())
    }
}

impl Datapath for Workers {
    type Code = NativeCode;

    /// Each worker changes between two bursts. Returns when all have; fails if one has ended or hangs.
    fn activate(&mut self, policy: &Loaded<NativeCode>) -> Result<Counts, EngineError> {
        let handovers: Vec<Arc<Handover>> = self.workers.iter().map(|worker| worker.handover.clone()).collect();
        let next = self.give(&handovers, policy);
        self.wait_until_changed()?;
        let counted = self.counts();
        self.counters = next;
        Ok(counted)
    }

    fn workers(&self) -> usize {
        self.counters.len()
    }

    fn counts(&self) -> Counts {
        self.counters.iter().map(|blocks| blocks.each_ref().map(CounterBlock::read)).collect()
    }

    fn ports(&self) -> Vec<PortStatus> {
        let mut names = self.presence.names();
        let mut status = |worker: usize, port: &Arc<PortCounters>| PortStatus {
            worker,
            interface: names.of(port.index, &port.interface),
            role: port.role,
            reading: port.read().without_errors(),
            knows_missed: true,
        };
        let workers = self.ports.iter().enumerate();
        let ports = workers.flat_map(|(worker, ports)| ports.iter().map(move |port| (worker, port)));
        ports.map(|(worker, port)| status(worker, port)).collect()
    }

    fn access(&self) -> Vec<String> {
        let mut names = self.presence.names();
        self.access.iter().map(|one| format!("{}: {}", names.of(one.index, &one.interface), one.way)).collect()
    }

    fn has_failed(&self) -> bool {
        self.workers.iter().any(|worker| worker.thread.is_finished())
    }

    fn stop(&mut self) -> Result<(), EngineError> {
        self.stop.store(true, Ordering::Relaxed);
        let ended: Vec<_> = self.workers.drain(..).map(|worker| worker.thread.join()).collect();
        ended.into_iter().try_for_each(|ended| ended.unwrap_or_else(|panicked| panic::resume_unwind(panicked)))
    }
}
