//! AF_XDP sockets: packets go from the card's queue into memory that is ours, are decided there, and leave from where they lie. Where the driver
//! can, nothing is copied; on others (veth) the kernel copies once each way.
//!
//! A lane has a socket on its queues of every interface, and one memory for all of them. A packet keeps its frame from reception to the other
//! interface's completion ring. Neither addresses nor routes of the interfaces are looked at, and nothing of them is changed: the XDP program goes
//! with the process.

mod port;
mod program;
mod queues;
mod ring;
mod umem;

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::xdp::SocketAddrXdpFlags;
use weir_abi::{Action, BURST_MAX, Frame, Link, Verdict};

use crate::live::attach::{Attached, Mode};
use crate::live::lane::{Interfaces, Lane, PortCounters, Side, Sides, add, poll_sockets};
use crate::{EngineError, FrameBurst};
use port::{Place, Port, RING};
use umem::Umem;

/// Bursts after which the kernel is asked how many packets it had no room for.
const MISSED_EVERY: u32 = 1024;
/// How long a worker without packets waits to try again what the kernel would not send.
const UNSENT_WAIT: Duration = Duration::from_millis(1);
/// Frames of the memory for each socket: what its rings hold, and a burst in our hands.
const FRAMES_A_PORT: usize = 2 * RING as usize + BURST_MAX;

/// The packets received last.
struct Received {
    from: (Side, usize),
    frames: [Frame; BURST_MAX],
    addresses: [u64; BURST_MAX],
    count: usize,
}

/// Sockets on a worker's queues of all interfaces.
pub struct AfXdpLane {
    /// The programs, which other workers' lanes hold as well: detached when the last lane goes.
    _programs: Arc<Vec<Attached>>,
    sides: Sides<Port>,
    divert: Option<Port>,
    /// After the sockets: they are closed first.
    umem: Umem,
    received: Received,
    bursts: u32,
}

// SAFETY: pointers lead into the lane's own memory and rings.
unsafe impl Send for AfXdpLane {}

/// What [`AfXdpLane::open`] found.
pub struct Opened {
    /// A lane for each worker.
    pub lanes: Vec<AfXdpLane>,
    /// Interfaces whose drivers know no XDP.
    pub generic: Vec<String>,
}

impl AfXdpLane {
    /// A lane for each of `workers`; queue `q` of each interface goes to worker `q` modulo their number.
    ///
    /// # Errors
    /// There is no such interface, it has fewer queues than there are workers, or there is no right to XDP (CAP_NET_ADMIN, CAP_BPF).
    pub fn open(interfaces: &Interfaces, workers: usize) -> Result<Opened, EngineError> {
        // Some drivers can do without copying, and others of the same lane cannot: then all copy.
        Self::open_with(interfaces, workers, SocketAddrXdpFlags::empty())
            .or_else(|_| Self::open_with(interfaces, workers, SocketAddrXdpFlags::XDP_COPY))
    }

    fn open_with(interfaces: &Interfaces, workers: usize, copy: SocketAddrXdpFlags) -> Result<Opened, EngineError> {
        let lower = places(&interfaces.lower, workers)?;
        let upper = places(&interfaces.upper, workers)?;
        let divert = places(interfaces.divert.as_slice(), 1)?;
        let mut lanes = Vec::new();
        for worker in 0..workers {
            let own = |places: &[Place]| -> Vec<Place> {
                places.iter().filter(|place| place.queue as usize % workers == worker).cloned().collect()
            };
            let divert = divert.iter().find(|place| place.queue as usize == worker).cloned();
            lanes.push(Self::open_one([own(&lower), own(&upper)], divert, copy)?);
        }
        let mut programs = Vec::new();
        let mut generic = Vec::new();
        for interface in interfaces.lower.iter().chain(&interfaces.upper) {
            let ports = lanes.iter().flat_map(|lane| lane.sides.iter());
            let own: Vec<&Port> = ports.filter(|port| port.place.interface == *interface).collect();
            let sockets: Vec<(u32, BorrowedFd<'_>)> =
                own.iter().map(|port| (port.place.queue, port.socket.as_fd())).collect();
            let index = own.first().expect("every interface has a queue").place.index;
            let attached = program::attach(interface, index, &sockets)?;
            if attached.mode == Mode::Generic {
                generic.push(interface.clone());
            }
            programs.push(attached);
        }
        let programs = Arc::new(programs);
        lanes.iter_mut().for_each(|lane| lane._programs = programs.clone());
        Ok(Opened { lanes, generic })
    }

    fn open_one(
        [lower, upper]: [Vec<Place>; 2],
        divert: Option<Place>,
        copy: SocketAddrXdpFlags,
    ) -> Result<Self, EngineError> {
        let sockets = lower.len() + upper.len() + usize::from(divert.is_some());
        let memory = |errno: Errno| EngineError::Interface { interface: "memory".to_owned(), source: errno.into() };
        let umem = Umem::new(sockets * FRAMES_A_PORT).map_err(memory)?;
        let mut sides = [Vec::new(), Vec::new()];
        for (side, places) in [(Side::Lower, lower), (Side::Upper, upper)] {
            for place in places {
                let counters = PortCounters::new(&place.interface, side);
                let port = Port::open(place, counters, &umem, sides.iter().flatten().next(), copy)?;
                sides[side as usize].push(port);
            }
        }
        let divert = divert.map(|place| {
            let counters = PortCounters::new(&place.interface, Side::Upper);
            Port::open(place, counters, &umem, sides.iter().flatten().next(), copy)
        });
        let received = Received {
            from: (Side::Lower, 0),
            frames: [Frame { data: std::ptr::null(), cap: 0, len: 0 }; BURST_MAX],
            addresses: [0; BURST_MAX],
            count: 0,
        };
        let (divert, programs, sides) = (divert.transpose()?, Arc::default(), Sides::new(sides));
        let mut lane = AfXdpLane { _programs: programs, sides, divert, umem, received, bursts: 0 };
        for port in lane.sides.iter_mut() {
            port.refill(&mut lane.umem, RING);
        }
        Ok(lane)
    }

    fn count_missed(&mut self) {
        self.sides.iter_mut().for_each(Port::count_missed);
    }
}

/// All queues of the interfaces.
fn places(interfaces: &[String], workers: usize) -> Result<Vec<Place>, EngineError> {
    let mut places = Vec::new();
    for interface in interfaces {
        let failed = |source: std::io::Error| EngineError::Interface { interface: interface.clone(), source };
        let (index, queues) = queues::of(interface).map_err(failed)?;
        if (queues as usize) < workers {
            let problem = format!("{queues} receive queues, too few for {workers} workers");
            return Err(failed(std::io::Error::other(problem)));
        }
        places.extend((0..queues).map(|queue| Place { interface: interface.clone(), index, queue }));
    }
    Ok(places)
}

impl Lane for AfXdpLane {
    fn receive(&mut self, from: Side) -> Result<FrameBurst<'_>, EngineError> {
        let Received { frames, addresses, .. } = &mut self.received;
        let found = self.sides.receive(from, |port| {
            let count = BURST_MAX.min(port.rx.ready() as usize);
            let mut bytes = 0;
            for (frame, address) in frames.iter_mut().zip(&mut *addresses).take(count) {
                let packet = port.rx.take();
                *frame = Frame { data: self.umem.at(packet.addr), cap: packet.len, len: packet.len };
                *address = packet.addr;
                bytes += u64::from(packet.len);
            }
            if count > 0 {
                port.rx.release();
                add(&port.counters.rx_packets, count as u64);
                add(&port.counters.rx_bytes, bytes);
            }
            count
        });
        let (index, count) = found.unwrap_or_default();
        (self.received.from, self.received.count) = ((from, index), count);
        let frames = &self.received.frames[..self.received.count];
        // SAFETY: the packets' frames are ours until dispatch(), which cannot be called while the burst is borrowed.
        Ok(unsafe { FrameBurst::from_raw(frames, Link::Ethernet, 0) })
    }

    fn dispatch(&mut self, verdicts: &[Verdict]) -> Result<(), EngineError> {
        let Received { from: (from, index), frames, addresses, count } = &self.received;
        assert_eq!(verdicts.len(), *count, "a verdict for each packet");
        let (port, out) = self.sides.facing(*from, *index);
        out.reclaim(&mut self.umem);
        for ((verdict, frame), &address) in verdicts.iter().zip(frames).zip(addresses) {
            let to = match verdict.action() {
                Some(Action::Accept) => Some(&mut *out),
                Some(Action::Divert) => self.divert.as_mut(),
                Some(Action::Drop) | None => None,
            };
            let sent = match to {
                Some(to) => to.queue(address, frame.len),
                None => {
                    add(&port.counters.no_divert, u64::from(verdict.action() == Some(Action::Divert)));
                    false
                }
            };
            if !sent {
                self.umem.give_back(address);
            }
            if let (true, Some(divert)) = (verdict.sampled(), &mut self.divert) {
                match self.umem.copy(frame) {
                    Some(copy) if !divert.queue(copy, frame.len) => self.umem.give_back(copy),
                    Some(_) => {}
                    None => add(&divert.counters.tx_full, 1),
                }
            }
        }
        out.send()?;
        if let Some(divert) = &mut self.divert {
            divert.send()?;
            divert.reclaim(&mut self.umem);
        }
        port.refill(&mut self.umem, BURST_MAX as u32);
        self.received.count = 0;
        self.bursts = self.bursts.wrapping_add(1);
        if self.bursts.is_multiple_of(MISSED_EVERY) {
            self.count_missed();
        }
        Ok(())
    }

    fn wait(&mut self, timeout: Duration) -> Result<(), EngineError> {
        self.count_missed();
        let mut sent = true;
        for port in self.sides.iter_mut().chain(&mut self.divert) {
            sent &= port.send()?;
            port.reclaim(&mut self.umem);
        }
        for port in self.sides.iter_mut() {
            port.refill(&mut self.umem, RING);
        }
        let timeout = if sent { timeout } else { timeout.min(UNSENT_WAIT) };
        poll_sockets(self.sides.iter().map(|port| port.socket.as_fd()), timeout)?;
        Ok(())
    }

    fn ports(&self) -> Vec<Arc<PortCounters>> {
        self.sides.iter().chain(&self.divert).map(|port| port.counters.clone()).collect()
    }
}
