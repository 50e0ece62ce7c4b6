//! Bursts that keep their packets, so that one thread can receive them, another decide them, and a third send them.

use std::sync::Arc;

use weir_abi::{Action, BURST_MAX, Frame, Link, Verdict, WINDOW_BYTES};

use super::eal::Eal;
use super::port::{Found, Ports};
use super::shim::{self, Mbuf};
use crate::{EngineError, FrameBurst};

/// Opens a port by its DPDK name, to receive and to send frames of at most `longest` bytes in different threads.
///
/// # Errors
/// There is no such port, or not enough memory.
pub fn open(eal: &Eal, name: &str, longest: u16) -> Result<(Receiver, Sender), EngineError> {
    let ports = Arc::new(Ports::open(&[Found::find(eal, name, 1)?], 1, &[longest])?);
    let port = ports.ports[0].id;
    Ok((Receiver { port, windows: shim::windows(), ports: ports.clone() }, Sender { port, ports }))
}

/// The receive queue of a port.
pub struct Receiver {
    port: u16,
    windows: Box<[[u8; WINDOW_BYTES]]>,
    ports: Arc<Ports>,
}

/// The transmit queue of a port.
pub struct Sender {
    port: u16,
    /// Closes the port when both ends are gone.
    #[cfg_attr(not(test), expect(dead_code, reason = "only its end matters"))]
    ports: Arc<Ports>,
}

/// A burst that owns its packets.
pub struct OwnedBurst {
    packets: [*mut Mbuf; BURST_MAX],
    frames: [Frame; BURST_MAX],
    count: usize,
    /// The packets return to a pool of these.
    _ports: Arc<Ports>,
}

// SAFETY: the packets belong to this value alone, and DPDK's pools may be used by all threads.
unsafe impl Send for OwnedBurst {}

impl Receiver {
    /// Receives a burst, if packets wait. Packets in several pieces are dropped: no frame that [`open`] was promised is
    /// so long.
    pub fn receive(&mut self) -> Option<OwnedBurst> {
        let mut burst = OwnedBurst {
            packets: [std::ptr::null_mut(); BURST_MAX],
            frames: [Frame { data: std::ptr::null(), cap: 0, len: 0 }; BURST_MAX],
            count: 0,
            _ports: self.ports.clone(),
        };
        let windows = self.windows.as_mut_ptr();
        let (packets, frames) = (burst.packets.as_mut_ptr(), burst.frames.as_mut_ptr());
        // SAFETY: there is room for a burst of packets, frames and windows.
        let count = unsafe { shim::dpdk_receive(self.port, 0, packets, frames, windows) } as usize;
        let copied = self.windows.as_flattened().as_ptr_range();
        for at in 0..count {
            if copied.contains(&burst.frames[at].data) {
                // SAFETY: the packet is not accessed again: it is not among those that are kept.
                unsafe { shim::dpdk_free(&raw mut burst.packets[at], 1) };
            } else {
                burst.packets[burst.count] = burst.packets[at];
                burst.frames[burst.count] = burst.frames[at];
                burst.count += 1;
            }
        }
        (burst.count > 0).then_some(burst)
    }
}

impl OwnedBurst {
    /// The frames.
    pub fn burst(&self) -> FrameBurst<'_> {
        // SAFETY: the frames lie in packets that this value owns, and nothing writes them.
        unsafe { FrameBurst::from_raw(&self.frames[..self.count], Link::Ethernet, 0) }
    }
}

impl Drop for OwnedBurst {
    fn drop(&mut self) {
        // SAFETY: this value owns the packets, and they are not accessed again.
        unsafe { shim::dpdk_free(self.packets.as_mut_ptr(), self.count as u32) };
    }
}

impl Sender {
    /// Sends the accepted packets and drops the others. Returns how many the port took.
    ///
    /// # Panics
    /// Panics if there are fewer verdicts than packets.
    pub fn send(&mut self, mut burst: OwnedBurst, verdicts: &[Verdict]) -> usize {
        let (mut accepted, mut others) = ([std::ptr::null_mut(); BURST_MAX], 0);
        let mut count = 0;
        for (at, verdict) in verdicts[..burst.count].iter().enumerate() {
            let packet = burst.packets[at];
            if verdict.action() == Some(Action::Accept) {
                accepted[count] = packet;
                count += 1;
            } else {
                burst.packets[others] = packet;
                others += 1;
            }
        }
        burst.count = others;
        // SAFETY: the packets belonged to `burst`, which has them no longer. Packets that the port does not take are
        // freed.
        unsafe {
            let sent = shim::dpdk_send(self.port, 0, accepted.as_mut_ptr(), count as u32) as usize;
            shim::dpdk_free(accepted.as_mut_ptr().add(sent), (count - sent) as u32);
            sent
        }
    }
}

#[cfg(test)]
impl Sender {
    /// Sends frames that were not received.
    pub(super) fn put(&mut self, burst: &FrameBurst<'_>) {
        let mut packets = [std::ptr::null_mut(); BURST_MAX];
        let frames = burst.frames();
        // SAFETY: there is room for a burst, and the frames are readable as their burst promises.
        unsafe {
            let pool = self.ports.pools[0].0;
            let made = shim::dpdk_make(pool, frames.as_ptr(), packets.as_mut_ptr(), frames.len() as u32);
            assert_eq!(shim::dpdk_send(self.port, 0, packets.as_mut_ptr(), made), made);
        }
    }
}
