//! The peer of an interface under test, with which generators and tests send and receive.

use std::os::fd::AsFd;
use std::time::Duration;

use weir_abi::{BURST_MAX, Frame, Link};

use super::{Offload, Port, ring};
use crate::live::lane::{PortReading, Side, poll_sockets};
use crate::{EngineError, FrameBurst};

/// Sends and receives all frames of an interface.
pub struct Wire {
    port: Port,
    frames: [Frame; BURST_MAX],
    offloads: [Offload; BURST_MAX],
}

// SAFETY: the frames' pointers point into the wire's own ring.
unsafe impl Send for Wire {}

impl Wire {
    /// Opens an interface.
    ///
    /// # Errors
    /// There is no such interface, or the process lacks the right to raw sockets (CAP_NET_RAW).
    pub fn open(interface: &str) -> Result<Self, EngineError> {
        let port = Port::open(interface, Side::Lower, None, ring::LATE_MS)?;
        let frames = [Frame { data: std::ptr::null(), cap: 0, len: 0 }; BURST_MAX];
        Ok(Wire { port, frames, offloads: [Offload::default(); BURST_MAX] })
    }

    /// Opens an interface only to send, so that the kernel copies no received packets for it.
    ///
    /// # Errors
    /// See [`Wire::open`].
    pub fn open_to_send(interface: &str) -> Result<Self, EngineError> {
        let port = Port::open_to_send(interface, Side::Lower)?;
        let frames = [Frame { data: std::ptr::null(), cap: 0, len: 0 }; BURST_MAX];
        Ok(Wire { port, frames, offloads: [Offload::default(); BURST_MAX] })
    }

    /// Sends the complete frames of a burst. Frames that the interface refuses are counted ([`Wire::counters`]).
    ///
    /// # Errors
    /// The interface failed.
    pub fn send(&mut self, burst: &FrameBurst<'_>) -> Result<(), EngineError> {
        for frame in burst.frames().iter().filter(|frame| frame.cap == frame.len) {
            self.port.outbox.add([*frame], &Offload::default());
        }
        self.port.outbox.send(&self.port.socket, &self.port.counters)
    }

    /// Passes the next burst to `see`, after waiting up to `timeout`. Returns the number of frames.
    ///
    /// # Errors
    /// The interface failed.
    pub fn receive(&mut self, timeout: Duration, see: impl FnOnce(&FrameBurst<'_>)) -> Result<usize, EngineError> {
        let mut count = self.port.ring.receive(&mut self.frames, &mut self.offloads);
        if count == 0 {
            poll_sockets([self.port.socket.as_fd()].into_iter(), timeout)?;
            count = self.port.ring.receive(&mut self.frames, &mut self.offloads);
        }
        if count > 0 {
            // SAFETY: the ring keeps the block of these frames from the kernel until release(), which follows the end
            // of the burst.
            see(&unsafe { FrameBurst::from_raw(&self.frames[..count], Link::Ethernet, 0) });
            self.port.ring.release();
        }
        Ok(count)
    }

    /// Counters of sent and refused packets.
    pub fn counters(&self) -> PortReading {
        self.port.counters.read()
    }

    /// Number of frames missed because the ring was full.
    pub fn missed(&self) -> u64 {
        self.port.socket.missed()
    }
}
