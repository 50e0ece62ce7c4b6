//! A lane without interfaces: it gives packets from memory repeatedly and discards accepted ones. It serves to measure
//! workers and to test changes under load.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use weir_abi::{Action, BURST_MAX, Frame, Rewrite, Verdict};

use crate::frame_set::FrameSet;
use crate::live::lane::{Lane, PortCounters, Side, add};
use crate::{EngineError, FrameBurst};

/// Observes the bursts of a memory lane.
pub trait Witness: Send {
    /// A burst from a side got its verdicts.
    fn decided(&mut self, from: Side, verdicts: &[Verdict]);
}

/// Ignores all bursts.
impl Witness for () {
    fn decided(&mut self, _: Side, _: &[Verdict]) {}
}

/// A lane with frames from each side, without end or up to a number. Its cache lines contain nothing that other workers
/// write.
#[repr(align(128))]
pub struct MemoryLane<W> {
    frames: [Arc<FrameSet>; 2],
    /// Next burst of each side.
    next: [usize; 2],
    /// Number of packets left to give, by side.
    left: [u64; 2],
    /// Number of packets that each side's sink accepts; `None` for no limit.
    room: [Option<Arc<AtomicU64>>; 2],
    ports: [Arc<PortCounters>; 2],
    received: (Side, usize),
    /// Bytes that were cut from each packet of the last burst.
    cut: [u8; BURST_MAX],
    witness: W,
}

impl<W: Witness> MemoryLane<W> {
    /// A lane that gives each side's frames in bursts, `left` packets in total.
    ///
    /// # Panics
    /// Panics if a side has no frames.
    pub fn new(frames: [Arc<FrameSet>; 2], left: [u64; 2], witness: W) -> Self {
        assert!(frames.iter().all(|frames| !frames.is_empty()), "a side gives frames");
        let ports =
            [PortCounters::new("memory-lower", 0, Side::Lower), PortCounters::new("memory-upper", 0, Side::Upper)];
        let received = (Side::Lower, 0);
        MemoryLane { frames, next: [0; 2], left, room: [None, None], ports, received, cut: [0; BURST_MAX], witness }
    }

    /// Limits the sink of a side to `room` packets. The lane counts `room` down to 0, and other threads may raise it.
    #[must_use]
    pub fn with_room(mut self, side: Side, room: Arc<AtomicU64>) -> Self {
        self.room[side as usize] = Some(room);
        self
    }
}

fn bytes(frames: &[Frame]) -> u64 {
    frames.iter().map(|frame| u64::from(frame.len)).sum()
}

impl<W: Witness> Lane for MemoryLane<W> {
    fn receive(&mut self, from: Side) -> Result<FrameBurst<'_>, EngineError> {
        let side = from as usize;
        let bursts = self.frames[side].len().div_ceil(BURST_MAX);
        let left = self.left[side];
        let burst = self.frames[side].burst(self.next[side] % bursts).first(left.min(BURST_MAX as u64) as usize);
        self.next[side] += 1;
        self.left[side] = left - burst.len() as u64;
        self.received = (from, burst.len());
        self.cut = [0; BURST_MAX];
        add(&self.ports[side].rx_packets, burst.len() as u64);
        add(&self.ports[side].rx_bytes, bytes(burst.frames()));
        Ok(burst)
    }

    fn cut(&mut self, bytes: &[u8]) {
        self.cut[..bytes.len()].copy_from_slice(bytes);
    }

    fn dispatch(&mut self, verdicts: &[Verdict], rewrites: &[Rewrite]) -> Result<(), EngineError> {
        let (from, count) = self.received;
        assert_eq!(verdicts.len(), count, "a verdict for each packet");
        self.witness.decided(from, verdicts);
        let side = from as usize;
        let bursts = self.frames[side].len().div_ceil(BURST_MAX);
        let burst = self.frames[side].burst((self.next[side] - 1) % bursts);
        let to = from.other() as usize;
        let room = self.room[to].as_ref().map_or(u64::MAX, |room| room.load(Ordering::Relaxed));
        let (mut sent, mut length, mut full, mut diverted) = (0, 0, 0, 0);
        let (mut replies, mut replied) = (0, 0);
        for (at, (verdict, frame)) in verdicts.iter().zip(burst.frames()).enumerate() {
            if verdict.rewritten() && verdict.action() == Some(Action::Reply) {
                replies += 1;
                replied += u64::from(rewrites[at].len);
            }
            // Branch-free, because verdicts are unpredictable.
            let accepted = u64::from(verdict.action() == Some(Action::Accept));
            let taken = accepted & u64::from(sent < room);
            sent += taken;
            full += accepted - taken;
            length += taken * u64::from(frame.len - u32::from(self.cut[at]));
            diverted += u64::from(verdict.action() == Some(Action::Divert));
        }
        if let Some(room) = &self.room[to] {
            room.fetch_sub(sent, Ordering::Relaxed);
        }
        let port = &self.ports[side];
        add(&port.tx_packets, replies);
        add(&port.tx_bytes, replied);
        let out = &self.ports[to];
        add(&out.tx_packets, sent);
        add(&out.tx_bytes, length);
        add(&out.tx_full, full);
        add(&self.ports[side].no_divert, diverted);
        Ok(())
    }

    fn wait(&mut self, timeout: Duration) -> Result<(), EngineError> {
        std::thread::sleep(timeout.min(Duration::from_millis(1)));
        Ok(())
    }

    fn ports(&self) -> Vec<Arc<PortCounters>> {
        self.ports.to_vec()
    }
}
