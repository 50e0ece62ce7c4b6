//! The interface between the loop of workers, which all engines share, and an engine's own input and output.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use weir_abi::{Frame, Rewrite, Verdict};

use crate::{EngineError, FrameBurst};

/// The side on which packets arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Side {
    /// The network. Its packets go upstream.
    Lower,
    /// The protected side. Its packets go downstream.
    Upper,
}

impl Side {
    /// Both sides.
    pub const BOTH: [Side; 2] = [Side::Lower, Side::Upper];

    /// The side to which accepted packets from this side go.
    pub const fn other(self) -> Side {
        match self {
            Side::Lower => Side::Upper,
            Side::Upper => Side::Lower,
        }
    }

    /// The side of a port by its number in layouts that C shares: 0 lower, anything else upper.
    pub(crate) const fn of_number(number: u16) -> Side {
        if number == Side::Lower as u16 { Side::Lower } else { Side::Upper }
    }
}

/// The role of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// The interface belongs to the lower side.
    Lower,
    /// The interface belongs to the upper side.
    Upper,
    /// The interface gets diverted packets and samples. Nothing is received from it.
    Divert,
}

impl Role {
    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Role::Lower => "lower",
            Role::Upper => "upper",
            Role::Divert => "divert",
        }
    }
}

impl From<Side> for Role {
    fn from(side: Side) -> Self {
        match side {
            Side::Lower => Role::Lower,
            Side::Upper => Role::Upper,
        }
    }
}

/// The interfaces of a datapath.
#[derive(Clone, Debug, Default)]
pub struct Interfaces {
    /// Interfaces to the network.
    pub lower: Vec<String>,
    /// Interfaces to the protected side.
    pub upper: Vec<String>,
    /// The interface for diverted packets and samples.
    pub divert: Option<String>,
}

/// Chooses the output interface, one of `facing`, for packets that arrived on interface `from` of `of`, on receive
/// queue `queue` (docs/decisions/0012-several-interfaces.md).
///
/// If both sides have the same number, interfaces form pairs. If the other side has more, flows are spread by the queue
/// that the card chose for them. Nothing else is used, so a flow stays on one path.
pub const fn facing_interface(from: usize, of: usize, queue: usize, facing: usize) -> usize {
    (from + of * queue) % facing
}

/// The ports of a lane on both sides. A port is a queue of an interface.
pub(crate) struct Sides<P> {
    ports: [Vec<P>; 2],
    /// By side and port: the opposite port, to which its packets go.
    facing: [Vec<usize>; 2],
    /// By side: the port to poll next.
    turn: [usize; 2],
}

impl<P> Sides<P> {
    /// Takes the lane's queues of each interface, with their numbers: lower side, then upper side. Every interface has
    /// at least one.
    pub fn new(interfaces: [Vec<Vec<(u32, P)>>; 2]) -> Self {
        let [lower, upper] = interfaces;
        let facing = [facing_ports(&lower, &upper), facing_ports(&upper, &lower)];
        let flat = |side: Vec<Vec<(u32, P)>>| side.into_iter().flatten().map(|(_, port)| port).collect();
        Sides { ports: [flat(lower), flat(upper)], facing, turn: [0; 2] }
    }

    /// All ports.
    pub fn iter(&self) -> impl Iterator<Item = &P> {
        self.ports.iter().flatten()
    }

    /// All ports.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut P> {
        self.ports.iter_mut().flatten()
    }

    /// Polls the ports of a side in turn until one has packets. Returns its number and the number of packets.
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

    /// Port `index` of a side, and the opposite port, to which its packets go.
    pub fn facing(&mut self, from: Side, index: usize) -> (&mut P, &mut P) {
        let [lower, upper] = &mut self.ports;
        let (ins, outs) = match from {
            Side::Lower => (lower, upper),
            Side::Upper => (upper, lower),
        };
        (&mut ins[index], &mut outs[self.facing[from as usize][index]])
    }
}

/// For each port of one side, interface by interface, the number of the opposite port. The ports of an interface take
/// turns on the ports of the opposite interface.
fn facing_ports<P>(ins: &[Vec<(u32, P)>], outs: &[Vec<(u32, P)>]) -> Vec<usize> {
    let mut facing = Vec::new();
    for (from, ports) in ins.iter().enumerate() {
        for (place, (queue, _)) in ports.iter().enumerate() {
            let to = facing_interface(from, ins.len(), *queue as usize, outs.len());
            let before: usize = outs[..to].iter().map(Vec::len).sum();
            facing.push(before + place % outs[to].len());
        }
    }
    facing
}

/// How packets of an interface reach a lane.
#[derive(Clone, Debug)]
pub struct Access {
    /// The interface, by its name at the start.
    pub interface: String,
    /// Its index; 0 if it is not a kernel interface.
    pub index: u32,
    /// A description for the operator.
    pub way: String,
}

/// A queue pair of each interface, which one worker owns.
pub trait Lane: Send {
    /// Receives up to [`weir_abi::BURST_MAX`] packets from a side; none if no packet waits. The packets stay in place
    /// until [`Lane::dispatch`], which must precede the next call. [`FrameBurst::port`] is the number of their port
    /// among [`Lane::ports`] of the side.
    fn receive(&mut self, from: Side) -> Result<FrameBurst<'_>, EngineError>;

    /// Removes bytes from the end of each packet of the last burst, a number for each packet. Whatever leaves of a
    /// packet ends before them.
    ///
    /// # Panics
    /// Panics if a packet is shorter.
    fn cut(&mut self, bytes: &[u8]);

    /// Carries out the verdicts of the last burst, one per packet. Sends accepted packets to the other side, replies
    /// out of the port at which they arrived, and releases the others. A packet that was changed leaves as the element
    /// of `rewrites` with its index says; the slice is empty if the program changes none. Copies are of received
    /// packets. A packet that cannot be sent is dropped and counted with its reason.
    ///
    /// # Panics
    /// Panics if the number of verdicts differs from the number of packets.
    fn dispatch(&mut self, verdicts: &[Verdict], rewrites: &[Rewrite]) -> Result<(), EngineError>;

    /// Waits for packets, up to `timeout`.
    fn wait(&mut self, timeout: Duration) -> Result<(), EngineError>;

    /// Counters of each interface of the lane.
    fn ports(&self) -> Vec<Arc<PortCounters>>;

    /// How packets of each interface reach the lane. Empty if there is only one way.
    fn access(&self) -> Vec<Access> {
        Vec::new()
    }
}

/// Size of a link header with one VLAN tag, which the MTU does not include.
pub const LINK_BYTES: u32 = 18;

/// What a port is, beside its name and role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortNature {
    /// Index of the kernel's interface that the port uses; 0 if there is none.
    pub kernel_index: u32,
    /// The longest frame that it receives, link header included. `None` if it has no limit of its own.
    pub longest: Option<u32>,
}

macro_rules! port_counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts of packets at a queue of an interface. Only the lane's worker writes them, and any thread reads them.
        /// No cache line contains counters of two workers.
        #[derive(Debug)]
        #[repr(align(128))]
        pub struct PortCounters {
            /// The interface, by its name at the start.
            pub interface: String,
            /// Its index; 0 if it is not a kernel interface.
            pub index: u32,
            /// Its role.
            pub role: Role,
            /// What it is.
            pub nature: PortNature,
            /// Whether it has a link, as its driver said last. Only of ports without an interface of the kernel.
            pub has_link: AtomicBool,
            $($(#[$doc])* pub $name: AtomicU64,)*
        }

        /// A snapshot of [`PortCounters`].
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct PortReading {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl PortCounters {
            /// Counters at 0. `index` is 0 if the interface is not a kernel interface.
            pub fn new(interface: &str, index: u32, role: impl Into<Role>) -> Arc<Self> {
                Self::of(interface, index, role, PortNature { kernel_index: index, longest: None })
            }

            /// Counters at 0 of a port that is special. `index` is 0 if the port has a name of its own.
            pub fn of(interface: &str, index: u32, role: impl Into<Role>, nature: PortNature) -> Arc<Self> {
                let (interface, role, has_link) = (interface.to_owned(), role.into(), AtomicBool::new(true));
                let counters = PortCounters { interface, index, role, nature, has_link, $($name: AtomicU64::new(0),)* };
                Arc::new(counters)
            }

            /// A snapshot of the counters.
            pub fn read(&self) -> PortReading {
                PortReading { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }

        impl PortReading {
            /// The sum of both.
            pub fn plus(self, other: PortReading) -> PortReading {
                PortReading { $($name: self.$name + other.$name,)* }
            }
        }
    };
}

port_counters! {
    /// Packets received.
    rx_packets,
    /// Bytes of the received packets, link header included.
    rx_bytes,
    /// Packets sent.
    tx_packets,
    /// Bytes of the sent packets.
    tx_bytes,
    /// Packets that arrived while the receive queue was full. They got no verdict.
    rx_missed,
    /// Packets that arrived and are longer than the port receives. They got no verdict.
    rx_too_long,
    /// Accepted packets dropped because the transmit queue was full: reason `tx-full`.
    tx_full,
    /// Accepted packets dropped because the interface was down or gone: reason `link-down`.
    tx_link_down,
    /// Accepted packets dropped because they are too long for the interface: reason `tx-too-long`.
    tx_too_long,
    /// Accepted packets dropped because the interface accepts none from XDP programs: reason `tx-unsupported`.
    tx_unsupported,
    /// Accepted packets that a driver took but could not send: reason `tx-error`.
    tx_error,
    /// Diverted packets dropped because there is no divert interface: reason `no-divert`.
    no_divert,
    /// Packets that were sampled, except those that left through the divert interface themselves.
    sampled,
}

impl PortReading {
    /// Excludes packets that a driver took but could not send from the sent ones. Their lengths are unknown and taken
    /// to be the mean.
    pub fn without_errors(self) -> PortReading {
        let tx_packets = self.tx_packets.saturating_sub(self.tx_error);
        let tx_bytes = u128::from(self.tx_bytes) * u128::from(tx_packets) / u128::from(self.tx_packets.max(1));
        PortReading { tx_packets, tx_bytes: tx_bytes as u64, ..self }
    }
}

/// Waits until one of the sockets has packets or an error, up to `timeout`. Returns the events of each socket, in
/// order, or none if interrupted.
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

/// A busy lane makes a round of checks after this many bursts.
const ROUND_BURSTS: u32 = 1024;
/// An idle lane makes a round of checks after this time.
const ROUND_AGE: Duration = Duration::from_millis(20);

/// Schedules a lane's periodic checks: packets that the kernel had no room for, and removed interfaces.
pub(crate) struct Rounds {
    bursts: u32,
    last: Instant,
}

impl Rounds {
    /// The next round is due later.
    pub fn new() -> Self {
        Rounds { bursts: 0, last: Instant::now() }
    }

    /// Whether a round is due after a burst.
    pub fn due_after_burst(&mut self) -> bool {
        self.bursts = self.bursts.wrapping_add(1);
        self.bursts.is_multiple_of(ROUND_BURSTS)
    }

    /// Whether a round is due while the lane is idle.
    pub fn due_when_idle(&mut self) -> bool {
        let due = self.last.elapsed() >= ROUND_AGE;
        if due {
            self.last = Instant::now();
        }
        due
    }
}

/// Shortens frames, each by a number of bytes.
pub(crate) fn cut_frames(frames: &mut [Frame], bytes: &[u8]) {
    for (frame, &cut) in frames.iter_mut().zip(bytes) {
        let cut = u32::from(cut);
        assert!(cut <= frame.cap, "a trailer is in its frame");
        (frame.cap, frame.len) = (frame.cap - cut, frame.len - cut);
    }
}

/// Adds to a counter that only this thread writes.
pub(crate) fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Ordering::Relaxed) + more, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For each queue of each of `n` interfaces, the opposite one of `m`.
    fn facing(n: usize, m: usize, queues: usize) -> Vec<Vec<usize>> {
        (0..n).map(|from| (0..queues).map(|queue| facing_interface(from, n, queue, m)).collect()).collect()
    }

    #[test]
    fn interfaces_are_pairs_and_flows_spread_where_there_are_more() {
        for n in 1..=8 {
            for from in 0..n {
                for queue in 0..64 {
                    assert_eq!(facing_interface(from, n, queue, n), from, "as many on both sides: pairs");
                    assert_eq!(facing_interface(from, n, queue, 1), 0);
                }
            }
        }
        assert_eq!(facing(1, 2, 4), [[0, 1, 0, 1]]);
        assert_eq!(facing(2, 4, 2), [[0, 2], [1, 3]]);
        assert_eq!(facing(2, 3, 3), [[0, 2, 1], [1, 0, 2]]);
        assert_eq!(facing(4, 2, 2), [[0, 0], [1, 1], [0, 0], [1, 1]]);
        // Every interface is used once there are enough queues.
        for (n, m) in (1..=8).flat_map(|n| (1..=8).map(move |m| (n, m))) {
            let mut used: Vec<usize> = facing(n, m, m).concat();
            used.sort_unstable();
            used.dedup();
            assert_eq!(used.len(), m, "{n} to {m}");
        }
    }

    #[test]
    fn a_lane_sends_on_queues_of_its_own() {
        // Queues 1, 3, 5 of one interface with six queues, and 1 and 3 of two interfaces with four: the queues of the
        // second of two workers.
        let side = |name: &'static str, queues: &[u32]| -> Vec<(u32, String)> {
            queues.iter().map(|&queue| (queue, format!("{name}{queue}"))).collect()
        };
        let lower = vec![side("a", &[1, 3, 5])];
        let upper = vec![side("x", &[1, 3]), side("y", &[1, 3])];
        let mut sides = Sides::new([lower, upper]);
        let mut face = |from, index| {
            let (own, out) = sides.facing(from, index);
            (own.clone(), out.clone())
        };
        let pair = |own: &str, out: &str| (own.to_owned(), out.to_owned());
        assert_eq!(
            [0, 1, 2].map(|index| face(Side::Lower, index)),
            [pair("a1", "y1"), pair("a3", "y3"), pair("a5", "y1")]
        );
        assert_eq!(
            [0, 1, 2, 3].map(|index| face(Side::Upper, index)),
            [pair("x1", "a1"), pair("x3", "a3"), pair("y1", "a1"), pair("y3", "a3")]
        );
    }

    #[test]
    fn ports_take_turns() {
        let mut sides = Sides::new([vec![vec![(0, 5), (1, 0)], vec![(0, 1)]], vec![vec![(0, 9)]]]);
        let mut one =
            |side| sides.receive(side, |left: &mut usize| std::mem::replace(left, left.saturating_sub(1)).min(1));
        let order: Vec<_> = (0..6).map(|_| one(Side::Lower).map(|(index, _)| index)).collect();
        assert_eq!(order, [Some(0), Some(2), Some(0), Some(0), Some(0), Some(0)]);
        assert_eq!((one(Side::Lower), one(Side::Upper)), (None, Some((0, 1))));
    }
}
