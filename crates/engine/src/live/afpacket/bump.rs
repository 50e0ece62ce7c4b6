//! A bump in the wire between two interfaces: frames pass one by one, in order, and may leave with more bytes at the
//! end.
//!
//! A sender of a virtual link leaves checksums to its card, and a checksum that is completed later would include what
//! was appended. So the bump completes it before. Packets of many segments have no end to append to: they are refused
//! and counted as too long.

use std::os::fd::AsFd;
use std::time::Duration;

use weir_abi::{BURST_MAX, Frame};

use super::Port;
use super::ring::{self, Offload};
use crate::EngineError;
use crate::live::lane::{PortReading, Side, add, poll_sockets};

/// What becomes of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Passage {
    /// The frame ends here.
    Dropped,
    /// The frame leaves on the other side, with these bytes behind it.
    Passed(Vec<u8>),
    /// Other bytes leave on the side from which it came.
    Answered(Vec<u8>),
}

/// Two interfaces.
pub struct Bump {
    /// By side.
    ports: [Port; 2],
    frames: [Frame; BURST_MAX],
    offloads: [Offload; BURST_MAX],
    /// What leaves with the frames of a burst or in their place.
    more: Vec<Vec<u8>>,
}

// SAFETY: the frames' pointers point into the bump's own rings.
unsafe impl Send for Bump {}

impl Bump {
    /// Opens the interfaces: lower, upper.
    ///
    /// # Errors
    /// There is no such interface, or the process lacks the right to raw sockets (CAP_NET_RAW).
    pub fn open(interfaces: [&str; 2]) -> Result<Self, EngineError> {
        let open = |side: Side| Port::open(interfaces[side as usize], side, None, ring::SOON_MS);
        let frames = [Frame { data: std::ptr::null(), cap: 0, len: 0 }; BURST_MAX];
        Ok(Bump {
            ports: [open(Side::Lower)?, open(Side::Upper)?],
            frames,
            offloads: [Offload::default(); BURST_MAX],
            more: Vec::with_capacity(BURST_MAX),
        })
    }

    /// The interfaces' longest packets without their link header.
    ///
    /// # Errors
    /// An interface is gone.
    pub fn mtus(&self) -> Result<[u32; 2], EngineError> {
        Ok([self.ports[0].socket.device().mtu()?, self.ports[1].socket.device().mtu()?])
    }

    /// Passes a burst from each side to `handle`, one frame after the other, and sends what it says. Waits up to
    /// `timeout` if there is nothing. Returns the number of frames.
    ///
    /// # Errors
    /// An interface failed.
    pub fn step(
        &mut self,
        timeout: Duration,
        mut handle: impl FnMut(Side, &[u8]) -> Passage,
    ) -> Result<usize, EngineError> {
        let mut moved = 0;
        for from in Side::BOTH {
            moved += self.burst(from, &mut handle)?;
        }
        if moved == 0 {
            for port in &self.ports {
                add(&port.counters.rx_missed, port.socket.missed());
                port.socket.device().check()?;
            }
            poll_sockets(self.ports.iter().map(|port| port.socket.as_fd()), timeout)?;
        }
        Ok(moved)
    }

    fn burst(&mut self, from: Side, handle: &mut impl FnMut(Side, &[u8]) -> Passage) -> Result<usize, EngineError> {
        let [lower, upper] = &mut self.ports;
        let (port, other) = if from == Side::Lower { (lower, upper) } else { (upper, lower) };
        let count = port.ring.receive(&mut self.frames, &mut self.offloads);
        for (frame, offload) in self.frames.iter().zip(&self.offloads).take(count) {
            add(&port.counters.rx_packets, 1);
            add(&port.counters.rx_bytes, frame.len.into());
            if frame.cap != frame.len {
                add(&other.counters.tx_too_long, 1);
                continue;
            }
            // SAFETY: the ring keeps the frame's block from the kernel until release(), and nothing else refers to it.
            let bytes = unsafe { std::slice::from_raw_parts_mut(frame.data.cast_mut(), frame.len as usize) };
            match handle(from, bytes) {
                Passage::Dropped => {}
                Passage::Passed(more) if more.is_empty() => other.outbox.add([*frame], offload),
                Passage::Passed(_) if offload.vnet.is_segmented() => add(&other.counters.tx_too_long, 1),
                Passage::Passed(more) => {
                    offload.vnet.complete_checksum(bytes);
                    other.outbox.add([*frame, piece(&more)], &Offload::default());
                    self.more.push(more);
                }
                Passage::Answered(answer) => {
                    port.outbox.add([piece(&answer)], &Offload::default());
                    self.more.push(answer);
                }
            }
        }
        if count > 0 {
            other.outbox.send(&other.socket, &other.counters)?;
            port.outbox.send(&port.socket, &port.counters)?;
            port.ring.release();
            self.more.clear();
        }
        Ok(count)
    }

    /// Counters by side.
    pub fn counters(&self) -> [PortReading; 2] {
        self.ports.each_ref().map(|port| port.counters.read())
    }
}

/// Bytes that stay where they are until they were sent.
fn piece(bytes: &[u8]) -> Frame {
    Frame { data: bytes.as_ptr(), cap: bytes.len() as u32, len: bytes.len() as u32 }
}
