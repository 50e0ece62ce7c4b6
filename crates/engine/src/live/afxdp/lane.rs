//! A lane: receives bursts from the sockets of one worker, and sends what is accepted.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::xdp::{XdpDesc, XdpDescOptions};
use weir_abi::{Action, BURST_MAX, Frame, Link, Rewrite, Verdict};

use super::busy::Waiting;
use super::options::{Buffers, How};
use super::port::{Port, RING};
use super::umem::Umem;
use super::way::Way;
use super::window::Windows;
use crate::live::afpacket::Offload;
use crate::live::divert::Divert;
use crate::live::lane::{Access, Lane, PortCounters, Rounds, Side, Sides, add, cut_frames, poll_sockets};
use crate::live::os::rss;
use crate::live::programs::attach::Attached;
use crate::{EngineError, FrameBurst};

/// How long a worker without packets waits before it retries packets that the kernel did not send.
const UNSENT_WAIT: Duration = Duration::from_millis(1);

/// The packets received last.
struct Received {
    from: (Side, usize),
    /// For each packet, its window and its total length.
    frames: [Frame; BURST_MAX],
    windows: Windows,
    count: usize,
    /// The packets' pieces in order, and the end of each packet's pieces.
    pieces: Vec<XdpDesc>,
    ends: [usize; BURST_MAX],
}

/// Sockets on one worker's queues of all interfaces.
pub struct AfXdpLane {
    /// The programs, shared with other workers' lanes. They are detached when the last lane is dropped.
    pub(super) programs: Arc<Vec<Attached>>,
    buffers: Buffers,
    /// Number of lanes that share the interfaces.
    workers: usize,
    pub(super) sides: Sides<Port>,
    divert: Option<Divert>,
    /// Declared after the sockets, so that they are closed first.
    umem: Umem,
    received: Received,
    rounds: Rounds,
    waiting: Waiting,
}

// SAFETY: the pointers point into the lane's own memory and rings.
unsafe impl Send for AfXdpLane {}

impl AfXdpLane {
    /// A lane without programs.
    pub(super) fn new(sides: Sides<Port>, divert: Option<Divert>, umem: Umem, how: &How) -> Self {
        let received = Received {
            from: (Side::Lower, 0),
            frames: [Frame { data: std::ptr::null(), cap: 0, len: 0 }; BURST_MAX],
            windows: Windows::new(),
            count: 0,
            pieces: Vec::with_capacity(RING as usize),
            ends: [0; BURST_MAX],
        };
        let How { workers, buffers, waiting, .. } = *how;
        AfXdpLane {
            programs: Arc::default(),
            buffers,
            workers,
            sides,
            divert,
            umem,
            received,
            rounds: Rounds::new(),
            waiting,
        }
    }

    /// Counts packets that the kernel had no room for, checks the interfaces and gives them free frames.
    fn make_round(&mut self) -> Result<(), EngineError> {
        for port in self.sides.iter_mut() {
            port.count_missed();
            port.look()?;
            port.reclaim(&mut self.umem);
        }
        self.sides.iter_mut().for_each(|port| port.refill(&mut self.umem, RING));
        Ok(())
    }
}

impl Received {
    /// Takes packets from a port. Returns their number.
    fn take(&mut self, port: &mut Port, umem: &Umem) -> usize {
        self.count = 0;
        self.pieces.clear();
        let (ready, mut bytes) = (port.rx.ready(), 0);
        while self.count < BURST_MAX {
            let first = self.pieces.len();
            let whole = (first as u32..ready).any(|place| {
                let piece = port.rx.peek(place);
                self.pieces.push(piece);
                !piece.options.contains(XdpDescOptions::XDP_PKT_CONTD)
            });
            if !whole {
                // The ring is empty, or the rest of a packet has not arrived yet.
                self.pieces.truncate(first);
                break;
            }
            let pieces = self.pieces[first..].iter();
            let pieces = pieces.map(|piece| Frame { data: umem.at(piece.addr), cap: piece.len, len: piece.len });
            // SAFETY: the kernel wrote the pieces into the umem. This lane owns them until they are sent or returned.
            let frame = unsafe { self.windows.frame(self.count, pieces) };
            self.frames[self.count] = frame;
            self.ends[self.count] = self.pieces.len();
            self.count += 1;
            bytes += u64::from(frame.len);
        }
        if self.count > 0 {
            port.rx.take(self.pieces.len() as u32);
            add(&port.counters.rx_packets, self.count as u64);
            add(&port.counters.rx_bytes, bytes);
        }
        self.count
    }

    /// Each packet: its frame and its pieces.
    fn packets(&mut self) -> impl Iterator<Item = (&Frame, &mut [XdpDesc])> {
        let (mut start, mut rest) = (0, &mut self.pieces[..]);
        self.frames.iter().zip(self.ends).take(self.count).map(move |(frame, end)| {
            let (pieces, others) = std::mem::take(&mut rest).split_at_mut(end - start);
            (start, rest) = (end, others);
            (frame, pieces)
        })
    }
}

/// Queues a packet, or what leaves in its place. Returns how many pieces were queued; none if the packet was counted as
/// dropped.
fn send(to: &mut Port, umem: &mut Umem, pieces: &mut [XdpDesc], length: u32, rewrite: Option<&Rewrite>) -> usize {
    let (count, length) = match rewrite {
        None => (pieces.len(), length),
        Some(rewrite) => match umem.rewrite(pieces, rewrite) {
            Some(left) => (left, rewrite.len),
            None => {
                add(&to.counters.tx_too_long, 1);
                return 0;
            }
        },
    };
    if to.queue(&pieces[..count], length) { count } else { 0 }
}

impl Lane for AfXdpLane {
    fn receive(&mut self, from: Side) -> Result<FrameBurst<'_>, EngineError> {
        let AfXdpLane { sides, received, umem, .. } = self;
        let found = sides.receive(from, |port| received.take(port, umem));
        let (index, count) = found.unwrap_or_default();
        (received.from, received.count) = ((from, index), count);
        // SAFETY: the lane owns the packets' frames until dispatch(), which cannot be called while the burst is
        // borrowed.
        Ok(unsafe { FrameBurst::from_raw(&received.frames[..count], Link::Ethernet, 0) }.at_port(index))
    }

    fn cut(&mut self, bytes: &[u8]) {
        for ((_, pieces), &cut) in self.received.packets().zip(bytes) {
            let mut left = u32::from(cut);
            for piece in pieces.iter_mut().rev() {
                let here = left.min(piece.len);
                piece.len -= here;
                left -= here;
            }
        }
        cut_frames(&mut self.received.frames, bytes);
    }

    fn dispatch(&mut self, verdicts: &[Verdict], rewrites: &[Rewrite]) -> Result<(), EngineError> {
        let AfXdpLane { sides, divert, umem, received, .. } = self;
        assert_eq!(verdicts.len(), received.count, "a verdict for each packet");
        let (from, index) = received.from;
        let (port, out) = sides.facing(from, index);
        out.reclaim(umem);
        port.reclaim(umem);
        for (at, (verdict, (frame, pieces))) in verdicts.iter().zip(received.packets()).enumerate() {
            // A trailer may have been all of the last pieces.
            let kept = pieces.iter().take_while(|piece| piece.len > 0).count();
            let (pieces, emptied) = pieces.split_at_mut(kept);
            emptied.iter().for_each(|piece| umem.give_back(piece.addr));
            if port.unfinished && (verdict.action() != Some(Action::Drop) || verdict.sampled()) {
                umem.finish_checksum(pieces, frame.len);
            }
            let whole = pieces.iter().map(|piece| Frame { data: umem.at(piece.addr), cap: piece.len, len: piece.len });
            Divert::take(divert.as_mut(), *verdict, &port.counters, whole, &Offload::default());
            let rewrite = rewrites.get(at).filter(|_| verdict.rewritten());
            // The copy is of what was received.
            if let Some(divert) = divert
                && rewrite.is_some()
                && verdict.sampled()
            {
                divert.send()?;
            }
            let to = match verdict.action() {
                Some(Action::Accept) => Some(&mut *out),
                Some(Action::Reply) => Some(&mut *port),
                _ => None,
            };
            let sent = to.filter(|_| kept > 0).map_or(0, |to| send(to, umem, pieces, frame.len, rewrite));
            pieces[sent..].iter().for_each(|piece| umem.give_back(piece.addr));
        }
        // This precedes the refill, so that the frames of diverted packets are free by then.
        if let Some(divert) = divert {
            divert.send()?;
        }
        out.send(umem)?;
        port.send(umem)?;
        port.refill(umem, BURST_MAX as u32);
        received.count = 0;
        if self.rounds.due_after_burst() { self.make_round() } else { Ok(()) }
    }

    fn wait(&mut self, timeout: Duration) -> Result<(), EngineError> {
        let mut sent = true;
        for port in self.sides.iter_mut() {
            sent &= port.send(&mut self.umem)?;
            port.reclaim(&mut self.umem);
        }
        for port in self.sides.iter_mut() {
            port.refill(&mut self.umem, RING);
        }
        if self.rounds.due_when_idle() {
            self.make_round()?;
        }
        match self.waiting {
            Waiting::BusyPoll => self.sides.iter().for_each(Port::poll_driver),
            Waiting::Sleep if sent => {
                poll_sockets(self.sides.iter().map(|port| port.socket.as_fd()), timeout)?;
            }
            // Not poll(), which would send without reporting the result.
            Waiting::Sleep => std::thread::sleep(timeout.min(UNSENT_WAIT)),
        }
        Ok(())
    }

    fn ports(&self) -> Vec<Arc<PortCounters>> {
        let own = self.sides.iter().map(|port| &port.counters);
        own.chain(self.divert.as_ref().map(Divert::counters)).cloned().collect()
    }

    fn access(&self) -> Vec<Access> {
        let access = self.programs.iter().map(|program| {
            let own = self.sides.iter().find(|port| port.device_queue.device.name() == program.interface());
            let own = own.expect("a lane has queues of every interface");
            let symmetric = if self.workers > 1 { rss::is_symmetric(&own.device_queue.device) } else { None };
            let (copying, unfinished) = (own.copying, own.unfinished);
            let way = Way { program, copying, buffers: self.buffers, unfinished, symmetric };
            let (interface, index) = (program.interface().to_owned(), own.device_queue.device.index());
            Access { interface, index, way: way.to_string() }
        });
        access.collect()
    }
}
