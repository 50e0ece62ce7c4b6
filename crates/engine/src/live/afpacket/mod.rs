//! Raw packet sockets with rings of blocks (packet(7), TPACKET_V3). This engine works on every interface and with every
//! driver. It is the baseline for the other engines. The kernel copies each packet once on reception and once on
//! transmission. It also processes received packets itself, so interfaces should have no addresses.
//!
//! Unfinished offloads of a packet (checksums, segmentation) travel with it in a `virtio_net_hdr`. A 64 KB packet of a
//! local sender, or one that the card merged, is therefore sent as it was received. VLAN tags, which the kernel
//! removes, are inserted again.

pub mod bump;
mod rewritten;
pub(in crate::live) mod ring;
pub(in crate::live) mod send;
pub(in crate::live) mod socket;
pub mod wire;

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::PollFlags;
use weir_abi::{Action, BURST_MAX, Frame, Link, Rewrite, Verdict};

use crate::live::divert::Divert;
use crate::live::lane::{Interfaces, Lane, PortCounters, Rounds, Side, Sides, add, cut_frames, poll_sockets};
use crate::{EngineError, FrameBurst};
pub(in crate::live) use ring::Offload;
use ring::Ring;
pub(in crate::live) use send::Outbox;
pub(in crate::live) use socket::Socket;

/// A queue of an interface.
struct Port {
    socket: Socket,
    ring: Ring,
    outbox: Outbox,
    counters: Arc<PortCounters>,
}

/// The frames received last, and what is needed to send each of them.
struct Received {
    from: (Side, usize),
    frames: [Frame; BURST_MAX],
    offloads: [Offload; BURST_MAX],
    count: usize,
}

/// A socket for each interface, driven by one worker.
pub struct AfPacketLane {
    sides: Sides<Port>,
    divert: Option<Divert>,
    received: Received,
    rounds: Rounds,
}

// SAFETY: the frames' pointers point into the lane's own rings.
unsafe impl Send for AfPacketLane {}

impl AfPacketLane {
    /// Opens a lane for each of `workers`. The kernel distributes flows to them, both directions of a flow to the same
    /// one (PACKET_FANOUT_HASH).
    ///
    /// # Errors
    /// There is no such interface, or the process lacks the right to raw sockets (CAP_NET_RAW).
    pub fn open(interfaces: &Interfaces, workers: usize) -> Result<Vec<Self>, EngineError> {
        let mut fanouts = vec![None; interfaces.lower.len() + interfaces.upper.len()];
        let open = |worker| Self::open_one(interfaces, (worker, workers), &mut fanouts);
        let lanes: Vec<Self> = (0..workers).map(open).collect::<Result<_, _>>()?;
        if workers > 1 {
            lanes.iter().flat_map(|lane| lane.sides.iter()).try_for_each(|port| port.socket.begin())?;
        }
        Ok(lanes)
    }

    fn open_one(
        interfaces: &Interfaces,
        (worker, workers): (usize, usize),
        fanouts: &mut [Option<u16>],
    ) -> Result<Self, EngineError> {
        let mut fanouts = fanouts.iter_mut();
        let mut open = |names: &[String], side| -> Result<Vec<Vec<(u32, Port)>>, EngineError> {
            let ports = names.iter().map(|name| {
                let group = fanouts.next().expect("one for each interface");
                let port = Port::open(name, side, (workers > 1).then_some(group), ring::SOON_MS)?;
                // A worker's share of an interface's flows counts as a queue.
                Ok(vec![(worker as u32, port)])
            });
            ports.collect()
        };
        let sides = Sides::new([open(&interfaces.lower, Side::Lower)?, open(&interfaces.upper, Side::Upper)?]);
        let divert = interfaces.divert.as_deref().map(Divert::open).transpose()?;
        let received = Received {
            from: (Side::Lower, 0),
            frames: [Frame { data: std::ptr::null(), cap: 0, len: 0 }; BURST_MAX],
            offloads: [Offload::default(); BURST_MAX],
            count: 0,
        };
        Ok(AfPacketLane { sides, divert, received, rounds: Rounds::new() })
    }

    /// Counts packets that the kernel had no room for. Fails if an interface was removed.
    fn make_round(&mut self) -> Result<(), EngineError> {
        for port in self.sides.iter() {
            add(&port.counters.rx_missed, port.socket.missed());
            port.socket.device().check()?;
        }
        Ok(())
    }
}

impl Port {
    /// Opens a port. With a fanout group, it refuses all packets until all sockets of the group are open.
    fn open(name: &str, side: Side, fanout: Option<&mut Option<u16>>, retire_ms: u32) -> Result<Self, EngineError> {
        let socket = Socket::open(name)?;
        let ring = Ring::map(&socket, retire_ms)?;
        if let Some(group) = fanout {
            socket.refuse_all()?;
            socket.receive_all()?;
            *group = Some(socket.join_fanout(*group)?);
        } else {
            socket.receive_all()?;
        }
        let counters = PortCounters::new(name, socket.device().index(), side);
        Ok(Port { socket, ring, outbox: Outbox::default(), counters })
    }

    /// Queues a packet, or what leaves in its place.
    fn put(&mut self, frame: &Frame, offload: &Offload, rewrite: Option<&Rewrite>) {
        // A packet that the ring holds only in part cannot be sent.
        let is_whole = frame.cap == frame.len;
        match rewrite {
            None if is_whole => self.outbox.add([*frame], offload),
            Some(rewrite) if is_whole || rewrite.head == rewrite.len => {
                self.outbox.add(rewritten::pieces(frame, rewrite, offload), &rewritten::offload(rewrite, offload));
            }
            _ => add(&self.counters.tx_too_long, 1),
        }
    }

    /// Opens a port that receives nothing.
    fn open_to_send(name: &str, side: Side) -> Result<Self, EngineError> {
        let socket = Socket::open(name)?;
        let ring = Ring::map(&socket, ring::LATE_MS)?;
        socket.bind_to_send()?;
        let counters = PortCounters::new(name, socket.device().index(), side);
        Ok(Port { socket, ring, outbox: Outbox::default(), counters })
    }
}

impl Lane for AfPacketLane {
    fn receive(&mut self, from: Side) -> Result<FrameBurst<'_>, EngineError> {
        let Received { frames, offloads, .. } = &mut self.received;
        let found = self.sides.receive(from, |port| {
            let count = port.ring.receive(frames, offloads);
            add(&port.counters.rx_packets, count as u64);
            add(&port.counters.rx_bytes, frames[..count].iter().map(|frame| u64::from(frame.len)).sum());
            count
        });
        let (index, count) = found.unwrap_or_default();
        (self.received.from, self.received.count) = ((from, index), count);
        let frames = &self.received.frames[..self.received.count];
        // SAFETY: the ring keeps the block of these frames from the kernel until dispatch(), which cannot be called
        // while the burst is borrowed. Each frame lies inside the block.
        Ok(unsafe { FrameBurst::from_raw(frames, Link::Ethernet, 0) }.at_port(index))
    }

    fn cut(&mut self, bytes: &[u8]) {
        cut_frames(&mut self.received.frames, bytes);
    }

    fn dispatch(&mut self, verdicts: &[Verdict], rewrites: &[Rewrite]) -> Result<(), EngineError> {
        let Received { from: (from, index), frames, offloads, count } = &self.received;
        assert_eq!(verdicts.len(), *count, "a verdict for each packet");
        let (port, out) = self.sides.facing(*from, *index);
        for (at, ((verdict, frame), offload)) in verdicts.iter().zip(frames).zip(offloads).enumerate() {
            let to = match verdict.action() {
                Some(Action::Accept) => Some(&mut *out),
                Some(Action::Reply) => Some(&mut *port),
                _ => None,
            };
            if let Some(to) = to {
                to.put(frame, offload, rewrites.get(at).filter(|_| verdict.rewritten()));
            }
            Divert::take(self.divert.as_mut(), *verdict, &port.counters, [*frame], offload);
        }
        out.outbox.send(&out.socket, &out.counters)?;
        port.outbox.send(&port.socket, &port.counters)?;
        if let Some(divert) = &mut self.divert {
            divert.send()?;
        }
        port.ring.release();
        self.received.count = 0;
        if self.rounds.due_after_burst() { self.make_round() } else { Ok(()) }
    }

    fn wait(&mut self, timeout: Duration) -> Result<(), EngineError> {
        if self.rounds.due_when_idle() {
            self.make_round()?;
        }
        let found = poll_sockets(self.sides.iter().map(|port| port.socket.as_fd()), timeout)?;
        let mut any = false;
        for (port, found) in self.sides.iter().zip(found) {
            // An interface that goes down reports one error. Its packets arrive again when it is up.
            if found.intersects(PollFlags::ERR) {
                port.socket.clear_error();
                any = true;
            }
        }
        if any {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn ports(&self) -> Vec<Arc<PortCounters>> {
        let own = self.sides.iter().map(|port| &port.counters);
        own.chain(self.divert.as_ref().map(Divert::counters)).cloned().collect()
    }
}
