//! An interface from the other end of the wire: what generators and tests send and receive with.

use std::os::fd::AsFd;
use std::time::Duration;

use weir_abi::{BURST_MAX, Frame, Link};

use super::{Offload, Port, ring};
use crate::live::lane::{PortReading, Side, poll_sockets};
use crate::{EngineError, FrameBurst};

/// All frames of an interface, in and out.
pub struct Wire {
    port: Port,
    frames: [Frame; BURST_MAX],
    offloads: [Offload; BURST_MAX],
}

impl Wire {
    /// Opens an interface.
    ///
    /// # Errors
    /// There is none, or no right to raw sockets (CAP_NET_RAW).
    pub fn open(interface: &str) -> Result<Self, EngineError> {
        let port = Port::open(interface, Side::Lower, None, ring::LATE_MS)?;
        let frames = [Frame { data: std::ptr::null(), cap: 0, len: 0 }; BURST_MAX];
        Ok(Wire { port, frames, offloads: [Offload::default(); BURST_MAX] })
    }

    /// Sends the frames of a burst that are whole. What the interface does not take is counted ([`Wire::counters`]).
    ///
    /// # Errors
    /// The interface fails.
    pub fn send(&mut self, burst: &FrameBurst<'_>) -> Result<(), EngineError> {
        for frame in burst.frames().iter().filter(|frame| frame.cap == frame.len) {
            self.port.outbox.add([*frame], &Offload::default());
        }
        self.port.outbox.send(&self.port.socket, &self.port.counters)
    }

    /// Hands the next burst to `see`, after waiting for it at most so long. Returns the number of frames.
    ///
    /// # Errors
    /// The interface fails.
    pub fn receive(&mut self, timeout: Duration, see: impl FnOnce(&FrameBurst<'_>)) -> Result<usize, EngineError> {
        let mut count = self.port.ring.receive(&mut self.frames, &mut self.offloads);
        if count == 0 {
            poll_sockets([self.port.socket.as_fd()].into_iter(), timeout)?;
            count = self.port.ring.receive(&mut self.frames, &mut self.offloads);
        }
        if count > 0 {
            // SAFETY: the ring keeps the block of these frames from the kernel until release(), after the burst is gone.
            see(&unsafe { FrameBurst::from_raw(&self.frames[..count], Link::Ethernet, 0) });
            self.port.ring.release();
        }
        Ok(count)
    }

    /// What was sent, and what was not.
    pub fn counters(&self) -> PortReading {
        self.port.counters.read()
    }

    /// Frames that were not received because the ring was full.
    pub fn missed(&self) -> u64 {
        self.port.socket.missed()
    }
}
