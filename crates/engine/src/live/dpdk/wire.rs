//! A port from the other end of the wire: what generators and tests send and receive with, in a process of their own.

use weir_abi::{BURST_MAX, Frame, Link};

use super::eal::Eal;
use super::port::{Found, Ports};
use super::shim::{self, Mbuf};
use crate::{EngineError, FrameBurst};

/// A queue pair of a port.
pub struct Wire {
    port: u16,
    packets: [*mut Mbuf; BURST_MAX],
    frames: [Frame; BURST_MAX],
    ports: Ports,
}

// SAFETY: the queues and packets are the wire's own.
unsafe impl Send for Wire {}

impl Wire {
    /// Opens a port by DPDK's name for it, to send frames of at most `longest` bytes.
    ///
    /// # Errors
    /// There is no such port, or not enough memory.
    pub fn open(eal: &Eal, name: &str, longest: u16) -> Result<Self, EngineError> {
        let ports = Ports::open(&[Found::find(eal, name, 1)?], 1, &[longest])?;
        Ok(Wire {
            port: ports.ports[0].id,
            packets: [std::ptr::null_mut(); BURST_MAX],
            frames: [Frame { data: std::ptr::null(), cap: 0, len: 0 }; BURST_MAX],
            ports,
        })
    }

    /// Whether something is at the other end.
    pub fn is_up(&self) -> bool {
        self.ports.ports[0].look();
        self.ports.ports[0].is_up()
    }

    /// Sends the frames of a burst. Returns how many the port took: the first ones.
    pub fn send(&mut self, burst: &FrameBurst<'_>) -> usize {
        let (pool, frames) = (self.ports.pools[0].0, burst.frames());
        let packets = self.packets.as_mut_ptr();
        // SAFETY: there is room for a burst; frames are readable as their burst says; what is not sent is freed.
        unsafe {
            let made = shim::dpdk_make(pool, frames.as_ptr(), packets, frames.len() as u32);
            let sent = shim::dpdk_send(self.port, 0, packets, made);
            shim::dpdk_free(packets.add(sent as usize), made - sent);
            sent as usize
        }
    }

    /// Hands what has come to `see`. Returns the number of frames.
    pub fn receive(&mut self, see: impl FnOnce(&FrameBurst<'_>)) -> usize {
        // SAFETY: there is room for a burst of packets and frames.
        let count = unsafe { shim::dpdk_receive(self.port, 0, self.packets.as_mut_ptr(), self.frames.as_mut_ptr()) };
        if count > 0 {
            // SAFETY: the packets are ours until they are freed, after the burst is gone.
            see(&unsafe { FrameBurst::from_raw(&self.frames[..count as usize], Link::Ethernet, 0) });
            // SAFETY: the packets are ours, and not looked at again.
            unsafe { shim::dpdk_free(self.packets.as_mut_ptr(), count) };
        }
        count as usize
    }
}
