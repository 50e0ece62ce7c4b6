//! What a worker drives: the interface between the loop that all engines share and what each engine does its own way.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use weir_abi::Verdict;

use crate::{EngineError, FrameBurst};

/// Where packets come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Side {
    /// The network: its packets go upstream.
    Lower,
    /// What is protected: its packets go downstream.
    Upper,
}

impl Side {
    /// Both.
    pub const BOTH: [Side; 2] = [Side::Lower, Side::Upper];

    /// Where accepted packets from this side go.
    pub const fn other(self) -> Side {
        match self {
            Side::Lower => Side::Upper,
            Side::Upper => Side::Lower,
        }
    }
}

/// Which interfaces a policy stands between.
#[derive(Clone, Debug, Default)]
pub struct Interfaces {
    /// Towards the network.
    pub lower: Vec<String>,
    /// Towards what is protected.
    pub upper: Vec<String>,
    /// Where diverted packets and samples go.
    pub divert: Option<String>,
}

/// A lane's queues on both sides.
pub(crate) struct Sides<P> {
    ports: [Vec<P>; 2],
    /// The port that is asked next, by side.
    turn: [usize; 2],
}

impl<P> Sides<P> {
    /// Lower, upper; each has a port.
    pub fn new(ports: [Vec<P>; 2]) -> Self {
        Sides { ports, turn: [0; 2] }
    }

    /// All ports.
    pub fn iter(&self) -> impl Iterator<Item = &P> {
        self.ports.iter().flatten()
    }

    /// All ports.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut P> {
        self.ports.iter_mut().flatten()
    }

    /// Asks each port of a side in turn for packets, until one has some: its number, and how many.
    pub fn receive(&mut self, from: Side, mut ask: impl FnMut(&mut P) -> usize) -> Option<(usize, usize)> {
        let side = from as usize;
        let ports = &mut self.ports[side];
        for _ in 0..ports.len() {
            let index = self.turn[side];
            self.turn[side] = (index + 1) % ports.len();
            match ask(&mut ports[index]) {
                0 => {}
                count => return Some((index, count)),
            }
        }
        None
    }

    /// The port `index` of a side, and the one opposite that its packets go out of.
    pub fn facing(&mut self, from: Side, index: usize) -> (&mut P, &mut P) {
        let [lower, upper] = &mut self.ports;
        let (ins, outs) = match from {
            Side::Lower => (lower, upper),
            Side::Upper => (upper, lower),
        };
        let out = index % outs.len();
        (&mut ins[index], &mut outs[out])
    }
}

/// A queue pair of each interface, owned by one worker.
pub trait Lane: Send {
    /// Takes up to [`weir_abi::BURST_MAX`] packets that came from a side; empty if none wait. The packets stay where they are until
    /// [`Lane::dispatch`], which must come before the next call.
    fn receive(&mut self, from: Side) -> Result<FrameBurst<'_>, EngineError>;

    /// Acts on the verdicts of the burst received last, one a packet: sends accepted packets out on the other side, lets go of the others. A
    /// packet that cannot be sent is dropped and counted with its reason.
    ///
    /// # Panics
    /// If there are not as many verdicts as packets.
    fn dispatch(&mut self, verdicts: &[Verdict]) -> Result<(), EngineError>;

    /// Waits for packets, at most so long.
    fn wait(&mut self, timeout: Duration) -> Result<(), EngineError>;

    /// Counters of each interface that the lane has a queue of.
    fn ports(&self) -> Vec<Arc<PortCounters>>;
}

macro_rules! port_counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What became of packets at a queue of an interface. The lane's worker counts, anyone reads. No other worker's counters are in the
        /// same cache lines.
        #[derive(Debug)]
        #[repr(align(128))]
        pub struct PortCounters {
            /// The interface.
            pub interface: String,
            /// Where it is.
            pub side: Side,
            $($(#[$doc])* pub $name: AtomicU64,)*
        }

        /// [`PortCounters`] at one moment.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct PortReading {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl PortCounters {
            /// Counters at 0.
            pub fn new(interface: &str, side: Side) -> Arc<Self> {
                Arc::new(PortCounters { interface: interface.to_owned(), side, $($name: AtomicU64::new(0),)* })
            }

            /// What was counted until now.
            pub fn read(&self) -> PortReading {
                PortReading { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }

        impl PortReading {
            /// Both together.
            pub fn plus(self, other: PortReading) -> PortReading {
                PortReading { $($name: self.$name + other.$name,)* }
            }
        }
    };
}

port_counters! {
    /// Packets received.
    rx_packets,
    /// Their bytes, link header included.
    rx_bytes,
    /// Packets sent.
    tx_packets,
    /// Their bytes.
    tx_bytes,
    /// Packets that came while the receive queue was full; nobody decided about them.
    rx_missed,
    /// Accepted packets dropped because the transmit queue was full: reason `tx-full`.
    tx_full,
    /// Accepted packets dropped because the interface was down or gone: reason `link-down`.
    tx_link_down,
    /// Accepted packets dropped because the interface takes none so long: reason `tx-too-long`.
    tx_too_long,
    /// Packets to be diverted, dropped because there is nowhere to divert them to: reason `no-divert`.
    no_divert,
}

/// Waits until one of the sockets has packets or an error, at most so long. Returns what each has, in their order; nothing if interrupted.
pub(crate) fn poll_sockets<'a>(
    sockets: impl Iterator<Item = BorrowedFd<'a>>,
    timeout: Duration,
) -> Result<Vec<PollFlags>, EngineError> {
    let mut polled: Vec<PollFd<'_>> = sockets.map(|socket| PollFd::from_borrowed_fd(socket, PollFlags::IN)).collect();
    let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() };
    match poll(&mut polled, Some(&timeout)) {
        Ok(_) | Err(Errno::INTR) => Ok(polled.iter().map(PollFd::revents).collect()),
        Err(errno) => Err(EngineError::Interface { interface: "poll".to_owned(), source: errno.into() }),
    }
}

/// Adds to a counter that only this thread writes.
pub(crate) fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Ordering::Relaxed) + more, Ordering::Relaxed);
}
