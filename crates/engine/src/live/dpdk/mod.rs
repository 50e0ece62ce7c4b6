//! DPDK: workers poll packets from the ports' queues, without the kernel, and send them on without copies.
//!
//! A lane has a queue pair of every port, and its own memory pool for packets. Rust carries out verdicts; the C code in
//! `datapath/dpdk` moves bursts. Workers are Weir's own threads. They are registered with DPDK, so that pools
//! cache packets for them.
//!
//! Workers are not woken up. A worker polls continuously, yielding its core to other threads, until [`POLL`] after the
//! last packet. From then on it sleeps for [`NAP`] between polls.

mod eal;
mod flow;
pub mod owned_burst;
mod port;
mod queue;
mod shim;
mod sockets;
pub mod wire;

use std::ops::Range;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::set_current_timer_slack;
use weir_abi::{Action, BURST_MAX, Frame, Link, Rewrite, Verdict, WINDOW_BYTES};

pub use eal::Eal;
pub use flow::FlowTable;

use crate::live::lane::{Access, Interfaces, Lane, PortCounters, Role, Rounds, Side, Sides, add, cut_frames};
use crate::{EngineError, FrameBurst};
use port::{Found, Pool, Ports, ROOMS};
use queue::{Outgoing, Queue, finish_checksums, rewrite};
use shim::Mbuf;

/// How long after its last packet a worker polls without sleeping.
pub const POLL: Duration = Duration::from_micros(50);
/// How long it then sleeps between polls. A queue must have room for the packets that arrive meanwhile.
pub const NAP: Duration = Duration::from_micros(20);
/// Maximum extension of a sleep by the kernel, in nanoseconds. The default is 50 µs.
const NAP_SLACK_NS: u64 = 1000;

/// The packets received last.
struct Received {
    from: (Side, usize),
    frames: [Frame; BURST_MAX],
    packets: [*mut Mbuf; BURST_MAX],
    count: usize,
}

impl Received {
    const NONE: Received = Received {
        from: (Side::Lower, 0),
        frames: [Frame { data: std::ptr::null(), cap: 0, len: 0 }; BURST_MAX],
        packets: [std::ptr::null_mut(); BURST_MAX],
        count: 0,
    };
}

/// Whether the lane's thread is registered with DPDK.
#[derive(PartialEq, Eq)]
enum Thread {
    Unknown,
    Entered,
}

/// Queue pairs of all ports, which one worker drives.
pub struct DpdkLane {
    worker: usize,
    sides: Sides<Queue>,
    divert: Option<Queue>,
    received: Received,
    windows: Box<[[u8; WINDOW_BYTES]]>,
    passed: Outgoing,
    replies: Outgoing,
    diverted: Outgoing,
    dropped: Outgoing,
    thread: Thread,
    rounds: Rounds,
    /// Since when no packet has arrived; `None` while packets arrive.
    idle_since: Option<Instant>,
    ports: Arc<Ports>,
}

// SAFETY: the packets and queues belong to this lane alone. Ports and pools may be used by all threads.
unsafe impl Send for DpdkLane {}

impl DpdkLane {
    /// Opens a lane for each of `workers`. One thread must drive and drop a lane. Interfaces are names of DPDK ports.
    /// Queue `q` of each port goes to worker `q` modulo their number. If the driver supports it, flows are spread over
    /// the queues, both directions of a flow to the same one.
    ///
    /// # Errors
    /// There is no such port, it has fewer queues than there are workers, or memory is short.
    pub fn open(eal: &Eal, interfaces: &Interfaces, workers: usize) -> Result<Vec<Self>, EngineError> {
        let names = interfaces.lower.iter().chain(&interfaces.upper).chain(&interfaces.divert);
        let found: Vec<Found> = names.map(|name| Found::find(eal, name, workers)).collect::<Result<_, _>>()?;
        let ports = Arc::new(Ports::open(&found, workers, &ROOMS)?);
        flow::opened(&ports);
        let upper = interfaces.lower.len();
        let divert = upper + interfaces.upper.len();
        let lanes = (0..workers).map(|worker| {
            let own = |ports: Range<usize>, role| queues(&found, ports, role, worker, workers);
            let sides = Sides::new([own(0..upper, Role::Lower), own(upper..divert, Role::Upper)]);
            let divert = own(divert..found.len(), Role::Divert).into_iter().flatten().map(|(_, queue)| queue).next();
            Self::new(worker, sides, divert, ports.clone())
        });
        Ok(lanes.collect())
    }

    fn new(worker: usize, sides: Sides<Queue>, divert: Option<Queue>, ports: Arc<Ports>) -> Self {
        DpdkLane {
            worker,
            sides,
            divert,
            received: Received::NONE,
            windows: shim::windows(),
            passed: Outgoing::NONE,
            replies: Outgoing::NONE,
            diverted: Outgoing::NONE,
            dropped: Outgoing::NONE,
            thread: Thread::Unknown,
            rounds: Rounds::new(),
            idle_since: None,
            ports,
        }
    }

    /// Registers the thread with DPDK.
    fn enter(&mut self) -> Result<(), EngineError> {
        // SAFETY: DPDK runs, because the ports own it. drop() unregisters.
        let error = unsafe { shim::dpdk_enter() };
        if error < 0 {
            let problem = format!("worker {} cannot enter: {}", self.worker, shim::error_text(error));
            return Err(EngineError::Dpdk { problem });
        }
        self.thread = Thread::Entered;
        // Longer sleeps do no harm unless a queue is short.
        let _default = set_current_timer_slack(std::num::NonZeroU64::new(NAP_SLACK_NS));
        Ok(())
    }

    /// Diverts a packet or a copy of it, by its verdict. Returns whether the packet itself was taken.
    fn take(
        divert: Option<&Queue>,
        diverted: &mut Outgoing,
        from: &Queue,
        verdict: Verdict,
        (packet, length): (*mut Mbuf, u32),
        pool: &Pool,
    ) -> bool {
        let whole = verdict.action() == Some(Action::Divert);
        match divert {
            Some(_) if whole => diverted.put(packet, length, 1),
            Some(divert) => {
                add(&from.counters.sampled, 1);
                // SAFETY: the packet was neither sent nor freed yet, and the pool belongs to this worker.
                let copy = unsafe { shim::dpdk_copy(packet, pool.0) };
                match copy.is_null() {
                    true => add(&divert.counters.tx_full, 1),
                    false => diverted.put(copy, length, 1),
                }
            }
            None => add(&from.counters.no_divert, u64::from(whole)),
        }
        whole && divert.is_some()
    }

    /// Checks the ports' links, and counts packets that they had no room for.
    fn make_round(&mut self) {
        self.sides.iter_mut().chain(&mut self.divert).for_each(|queue| queue.look(&self.ports));
    }
}

/// A worker's queues of a range of ports, port by port.
fn queues(found: &[Found], ports: Range<usize>, role: Role, worker: usize, workers: usize) -> Vec<Vec<(u32, Queue)>> {
    let port = |port: usize| {
        let queue = |queue: usize| Queue {
            port,
            id: (found[port].id, queue as u16),
            counters: PortCounters::of(&found[port].name, 0, role, found[port].nature()),
            unfinished: found[port].is_virtual,
            missed: 0,
            unsent: 0,
        };
        (worker..found[port].queues).step_by(workers).map(|number| (number as u32, queue(number))).collect()
    };
    ports.map(port).collect()
}

impl Lane for DpdkLane {
    fn receive(&mut self, from: Side) -> Result<FrameBurst<'_>, EngineError> {
        if self.thread == Thread::Unknown {
            self.enter()?;
        }
        let Received { frames, packets, .. } = &mut self.received;
        let windows = self.windows.as_mut_ptr();
        let found = self.sides.receive(from, |queue| {
            let (port, number) = queue.id;
            let (packets, taken) = (packets.as_mut_ptr(), frames.as_mut_ptr());
            // SAFETY: the port is open, the queue belongs to this worker, and there is room for a burst of packets,
            // frames and windows.
            let count = unsafe { shim::dpdk_receive(port, number, packets, taken, windows) as usize };
            add(&queue.counters.rx_packets, count as u64);
            add(&queue.counters.rx_bytes, frames[..count].iter().map(|frame| u64::from(frame.len)).sum());
            count
        });
        let (index, count) = found.unwrap_or_default();
        (self.received.from, self.received.count) = ((from, index), count);
        // SAFETY: this lane owns the packets until dispatch(), which cannot be called while the burst is borrowed.
        // Their first pieces have `cap` bytes.
        Ok(unsafe { FrameBurst::from_raw(&self.received.frames[..count], Link::Ethernet, 0) }.at_port(index))
    }

    fn cut(&mut self, bytes: &[u8]) {
        let Received { frames, packets, count, .. } = &mut self.received;
        cut_frames(frames, bytes);
        let count = bytes.len().min(*count);
        // SAFETY: the packets belong to this lane, and each has a frame.
        unsafe { shim::dpdk_cut(packets.as_mut_ptr(), frames.as_ptr(), count as u32) };
    }

    fn dispatch(&mut self, verdicts: &[Verdict], rewrites: &[Rewrite]) -> Result<(), EngineError> {
        let DpdkLane { sides, divert, received, passed, replies, diverted, dropped, .. } = self;
        assert_eq!(verdicts.len(), received.count, "a verdict for each packet");
        let (from, index) = received.from;
        let (queue, out) = sides.facing(from, index);
        if queue.unfinished {
            // SAFETY: the packets were received and belong to this lane until they are sent or freed.
            unsafe { finish_checksums(&received.packets[..received.count], &received.frames[..received.count]) };
        }
        for (at, ((verdict, frame), &packet)) in
            verdicts.iter().zip(&received.frames).zip(&received.packets).enumerate()
        {
            let action = verdict.action();
            if action == Some(Action::Divert) || verdict.sampled() {
                let pool = &self.ports.pools[self.worker];
                if Self::take(divert.as_ref(), diverted, queue, *verdict, (packet, frame.len), pool) {
                    continue;
                }
            }
            if verdict.rewritten() {
                let (to, list) =
                    if action == Some(Action::Reply) { (&*queue, &mut *replies) } else { (&*out, &mut *passed) };
                let leaves = &rewrites[at];
                // SAFETY: the packet belongs to this lane, and the frame was received with it.
                if unsafe { rewrite(packet, frame, leaves) } {
                    list.put(packet, leaves.len, 1);
                } else {
                    add(&to.counters.tx_too_long, 1);
                    dropped.put(packet, frame.len, 1);
                }
                continue;
            }
            // The packet is written to both lists, and one of them counts it, because the branch would be
            // unpredictable.
            let accepted = action == Some(Action::Accept);
            passed.put(packet, frame.len, usize::from(accepted));
            dropped.put(packet, frame.len, usize::from(!accepted));
        }
        received.count = 0;
        passed.send(out, &self.ports);
        replies.send(queue, &self.ports);
        if let Some(divert) = divert {
            diverted.send(divert, &self.ports);
        }
        dropped.free();
        self.idle_since = None;
        if self.rounds.due_after_burst() {
            self.make_round();
        }
        Ok(())
    }

    fn wait(&mut self, timeout: Duration) -> Result<(), EngineError> {
        if self.rounds.due_when_idle() {
            self.make_round();
        }
        if self.idle_since.get_or_insert_with(Instant::now).elapsed() < POLL {
            thread::yield_now();
        } else {
            thread::sleep(NAP.min(timeout));
        }
        Ok(())
    }

    fn ports(&self) -> Vec<Arc<PortCounters>> {
        self.sides.iter().chain(&self.divert).map(|queue| queue.counters.clone()).collect()
    }

    fn access(&self) -> Vec<Access> {
        self.ports.access.clone()
    }
}

impl Drop for DpdkLane {
    fn drop(&mut self) {
        let undecided = &mut self.received.packets[..self.received.count];
        // SAFETY: these packets got no verdict and still belong to this lane. The thread that drops a lane is the one
        // that registered.
        unsafe {
            shim::dpdk_free(undecided.as_mut_ptr(), undecided.len() as u32);
            if self.thread == Thread::Entered {
                shim::dpdk_leave();
            }
        }
    }
}
