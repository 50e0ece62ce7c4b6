//! The workers of a running policy, from the controller's point of view.

use std::io;
use std::panic;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Builder, JoinHandle};
use std::time::{Duration, Instant};

use crate::counters::CounterBlock;
use crate::live::cards::{Cards, WorkerCards};
use crate::live::datapath::{Datapath, Loaded, PortStatus, Reading, Readings, Stray};
use crate::live::lane::{Access, Lane, PortCounters, Role};
use crate::live::os::device::Presence;
use crate::live::samples::WorkerSamples;
use crate::live::samples::queue::SampleQueue;
use crate::live::tap::{Taps, WorkerTaps};
use crate::live::worker::{self, Deciders, Handover, WorkerCopies};
use crate::native::Sharing;
use crate::sealed::CardPort;
use crate::{EngineError, NativeCode, cpu};

/// Maximum time that a worker may take for its current burst. On an overloaded machine a runnable worker was seen to
/// wait six seconds for a core.
const SWITCH_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum time that workers may take to change back after another worker failed to change.
const RESTORE_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum time that workers may take to end. One that hangs is left to the end of the process. On an overloaded
/// machine ten seconds were too little once. Service managers wait longer: systemd for 90 seconds.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);

/// Interval of the controller's checks during a change.
const SWITCH_POLL: Duration = Duration::from_micros(20);

/// Interval of the controller's checks during a stop.
const STOP_POLL: Duration = Duration::from_millis(1);

/// An activation and the counters of its filters: of each worker, by side.
struct Activation {
    number: u64,
    policy: Loaded<NativeCode>,
    counters: Vec<[CounterBlock; 2]>,
}

impl Activation {
    fn reading(&self) -> Reading<NativeCode> {
        let counts = self.counters.iter().map(|blocks| blocks.each_ref().map(CounterBlock::read)).collect();
        Reading { code: self.policy.code.clone(), counts }
    }
}

/// The activation that all workers use, or return to, and previous ones for which some worker still counts.
struct Activations {
    /// Number of the last activation.
    last: u64,
    active: Activation,
    others: Vec<Activation>,
}

/// A thread that was not joined yet.
struct Worker {
    number: usize,
    thread: JoinHandle<Result<(), EngineError>>,
}

/// Threads that move packets.
pub struct Workers {
    threads: Mutex<Vec<Worker>>,
    /// One for each worker.
    handovers: Vec<Arc<Handover>>,
    ports: Vec<Vec<Arc<PortCounters>>>,
    access: Vec<Access>,
    presence: Presence,
    stop: Arc<AtomicBool>,
    cards: Arc<Cards>,
    taps: Arc<Taps>,
    activations: Mutex<Activations>,
    /// Held during a change.
    changing: Mutex<()>,
    switch_timeout: Duration,
    stop_timeout: Duration,
}

impl Workers {
    /// Starts a worker for each lane and pins it to the core of its number if there are enough cores.
    ///
    /// # Errors
    /// A thread cannot be started, or there are too many open files.
    pub fn start(lanes: Vec<Box<dyn Lane>>, first: &Loaded<NativeCode>) -> Result<Self, EngineError> {
        Self::start_with(lanes, first, None, Taps::of_workers())
    }

    /// Starts workers whose samples go to a queue, instead of the divert interface, and whose packets go to taps too.
    ///
    /// # Errors
    /// The errors of [`Workers::start`].
    pub fn start_with(
        lanes: Vec<Box<dyn Lane>>,
        first: &Loaded<NativeCode>,
        samples: Option<&Arc<SampleQueue>>,
        taps: Arc<Taps>,
    ) -> Result<Self, EngineError> {
        first.code.check_answered(first.answered)?;
        let handovers: Vec<Arc<Handover>> = lanes.iter().map(|_| Arc::default()).collect();
        let workers = Workers {
            threads: Mutex::default(),
            ports: lanes.iter().map(|lane| lane.ports()).collect(),
            access: lanes.first().map(|lane| lane.access()).unwrap_or_default(),
            presence: Presence::open().map_err(|source| EngineError::Io { path: "a socket".into(), source })?,
            stop: Arc::new(AtomicBool::new(false)),
            cards: Arc::default(),
            activations: Mutex::new(Activations {
                last: 1,
                active: give(&handovers, 1, first, &taps),
                others: Vec::new(),
            }),
            handovers,
            taps,
            changing: Mutex::default(),
            switch_timeout: SWITCH_TIMEOUT,
            stop_timeout: STOP_TIMEOUT,
        };
        for (number, (mut lane, handover)) in lanes.into_iter().zip(&workers.handovers).enumerate() {
            let (stop, own) = (workers.stop.clone(), handover.clone());
            let cards = WorkerCards::new(workers.cards.clone(), &*lane);
            let samples = samples.map(|queue| WorkerSamples::new(queue.clone(), &*lane));
            let copies = WorkerCopies { samples, taps: WorkerTaps::new(workers.taps.clone()) };
            let body = move || {
                // Running unpinned is better than not running: a container may exclude that core.
                let _not_allowed = cpu::pin_to(number);
                worker::run(&mut *lane, &own, cards, copies, &stop)
            };
            let thread = Builder::new().name(format!("weir-{number}")).spawn(body);
            let thread = thread.map_err(|source| EngineError::Worker { number, source })?;
            lock(&workers.threads).push(Worker { number, thread });
        }
        Ok(workers)
    }

    /// Sets the timeouts for a worker that hangs, in a change and in a stop.
    #[must_use]
    pub fn with_timeouts(mut self, switch: Duration, stop: Duration) -> Self {
        (self.switch_timeout, self.stop_timeout) = (switch, stop);
        self
    }

    /// Hands the policy over to all workers. Returns the number of the activation.
    fn give(&self, policy: &Loaded<NativeCode>) -> u64 {
        let mut activations = lock(&self.activations);
        activations.last += 1;
        let given = give(&self.handovers, activations.last, policy, &self.taps);
        activations.others.push(given);
        activations.last
    }

    /// Records that all workers use this activation from now on, except those that hang.
    fn make_active(&self, activation: u64) {
        let Activations { active, others, .. } = &mut *lock(&self.activations);
        let given = others.iter_mut().find(|given| given.number == activation);
        std::mem::swap(active, given.expect("it was given"));
    }

    /// Waits until `changed` is true for every worker.
    fn wait_until(&self, changed: impl Fn(&Handover) -> bool, timeout: Duration) -> Result<(), EngineError> {
        let start = Instant::now();
        for (number, handover) in self.handovers.iter().enumerate() {
            while !changed(handover) {
                if self.stop.load(Ordering::Relaxed) {
                    return Err(EngineError::Stopping);
                }
                if lock(&self.threads).iter().any(|worker| worker.number == number && worker.thread.is_finished()) {
                    return Err(EngineError::WorkerEnded { number });
                }
                if start.elapsed() > timeout {
                    return Err(EngineError::WorkerStuck { number });
                }
                // The worker may need this core to finish its burst.
                thread::sleep(SWITCH_POLL);
            }
            handover.free_done();
        }
        Ok(())
    }

    /// Joins a worker's thread. Fails if it hangs, or failed before.
    fn join(worker: Worker, deadline: Instant) -> Result<(), EngineError> {
        while !worker.thread.is_finished() {
            if Instant::now() > deadline {
                return Err(EngineError::WorkerStuck { number: worker.number });
            }
            thread::sleep(STOP_POLL);
        }
        worker.thread.join().unwrap_or_else(|panicked| panic::resume_unwind(panicked))
    }
}

/// Hands a policy over to workers.
fn give(handovers: &[Arc<Handover>], activation: u64, policy: &Loaded<NativeCode>, taps: &Taps) -> Activation {
    let sharing = if handovers.len() > 1 { Sharing::Shared } else { Sharing::Alone };
    let bits = taps.policy(policy.code.reasons(), &policy.names);
    let counters = handovers.iter().enumerate().map(|(worker, handover)| {
        let filters = [policy.code.filter(sharing, worker), policy.code.filter(sharing, worker)];
        let blocks = filters.each_ref().map(|filter| filter.counter_block());
        let answered = policy.answered.map(|answered| answered.configured);
        let (chains, taps) = (policy.chains, bits.clone());
        handover.give(Deciders { activation, filters, chains, answered, taps, bursts_since: [0; 2] });
        blocks
    });
    Activation { number: activation, policy: policy.clone(), counters: counters.collect() }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Datapath for Workers {
    type Code = NativeCode;

    /// Each worker changes between two bursts. Returns when all have changed. If one has ended or hangs, the call
    /// fails, after the workers that had changed got the previous policy again. A worker that hangs takes it up as soon
    /// as it continues.
    fn activate(&self, policy: &Loaded<NativeCode>) -> Result<(), EngineError> {
        policy.code.check_answered(policy.answered)?;
        let _one_at_a_time = lock(&self.changing);
        let given = self.give(policy);
        let changed = self.wait_until(|handover| handover.current() == given, self.switch_timeout);
        if changed.is_ok() {
            self.make_active(given);
            return changed;
        }
        let before = lock(&self.activations).active.policy.clone();
        let again = self.give(&before);
        // A worker that hangs now has changed before, so it is a stray, which `strays` reports.
        let _hangs = self.wait_until(|handover| handover.current() != given, self.switch_timeout.min(RESTORE_TIMEOUT));
        self.make_active(again);
        changed
    }

    /// Each worker takes the change between two bursts.
    fn set_card(&self, interface: &str, card: Option<CardPort>) -> Result<(), EngineError> {
        let refuse = |what: &str| {
            Err(EngineError::Interface { interface: interface.to_owned(), source: io::Error::other(what.to_owned()) })
        };
        let is_lower = |port: &Arc<PortCounters>| port.role == Role::Lower && port.interface == interface;
        if !self.ports.iter().flatten().any(is_lower) {
            return refuse("it is not on the lower side");
        }
        if card.as_ref().is_some_and(|card| card.known.len() > CardPort::KNOWN_MAX) {
            return refuse("the card has too many configurations");
        }
        let _one_at_a_time = lock(&self.changing);
        let change = self.cards.set(interface, card);
        self.wait_until(|handover| handover.cards() >= change, self.switch_timeout)
    }

    fn workers(&self) -> usize {
        self.handovers.len()
    }

    fn readings(&self) -> Readings<NativeCode> {
        let activations = lock(&self.activations);
        Readings {
            active: activations.active.reading(),
            others: activations.others.iter().map(Activation::reading).collect(),
        }
    }

    fn take_final(&self) -> Vec<Reading<NativeCode>> {
        let is_final = |given: &mut Activation| !self.handovers.iter().any(|handover| handover.holds(given.number));
        lock(&self.activations).others.extract_if(.., is_final).map(|given| given.reading()).collect()
    }

    fn strays(&self) -> Vec<Stray<NativeCode>> {
        let activations = lock(&self.activations);
        let differs = |given: &&Activation| {
            let (one, other) = (&given.policy, &activations.active.policy);
            !Arc::ptr_eq(&one.code, &other.code) || one.chains != other.chains || one.answered != other.answered
        };
        let stray = |(number, handover): (usize, &Arc<Handover>)| {
            let current = handover.current();
            let given = activations.others.iter().find(|given| given.number == current).filter(differs)?;
            Some(Stray { part: format!("worker {number}"), policy: given.policy.clone() })
        };
        self.handovers.iter().enumerate().filter_map(stray).collect()
    }

    fn ports(&self) -> Vec<PortStatus> {
        let mut names = self.presence.names();
        let mut status = |worker: usize, port: &Arc<PortCounters>| PortStatus {
            worker,
            interface: names.of(port.index, &port.interface),
            role: port.role,
            nature: port.nature,
            has_link: port.has_link.load(Ordering::Relaxed),
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
        lock(&self.threads).iter().any(|worker| worker.thread.is_finished())
    }

    /// Joins the workers, except one that hangs.
    fn stop(&self) -> Result<(), EngineError> {
        self.stop.store(true, Ordering::Relaxed);
        let threads = std::mem::take(&mut *lock(&self.threads));
        let deadline = Instant::now() + self.stop_timeout;
        let ended: Vec<_> = threads.into_iter().map(|worker| Self::join(worker, deadline)).collect();
        ended.into_iter().collect()
    }
}
