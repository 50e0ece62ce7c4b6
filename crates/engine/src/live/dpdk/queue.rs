//! A queue pair of a port, and packets to be sent.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use weir_abi::dpdk::Lost;
use weir_abi::{BURST_MAX, Frame, Rewrite};

use super::port::Ports;
use super::shim::{self, Mbuf};
use crate::live::checksum::{self, Unfinished};
use crate::live::lane::{PortCounters, add};

/// A queue pair of a port, owned by one worker.
pub(super) struct Queue {
    /// Index of the port among the open ones.
    pub port: usize,
    /// Number of the port and of the queue.
    pub id: (u16, u16),
    pub counters: Arc<PortCounters>,
    /// Whether senders leave checksums to a card that does not exist.
    pub unfinished: bool,
    /// Packets that the port had no room for, as of the last check. The port's first queue counts them.
    pub missed: u64,
    /// Packets that the port took but could not send, likewise.
    pub unsent: u64,
}

impl Queue {
    /// Checks the port, if this is its first queue.
    pub fn look(&mut self, ports: &Ports) {
        if self.id.1 == 0 {
            let port = &ports.ports[self.port];
            let Lost { missed, unsent } = port.look();
            self.counters.has_link.store(port.is_up(), Ordering::Relaxed);
            add(&self.counters.rx_missed, missed.saturating_sub(self.missed));
            add(&self.counters.tx_error, unsent.saturating_sub(self.unsent));
            (self.missed, self.unsent) = (missed, unsent);
        }
    }
}

/// Completes the checksums of received packets that a frame shows whole, if their senders left them to the card. It
/// does so in the frame and in the packet, because the frame may be a copy.
///
/// # Safety
/// The caller owns the packets exclusively, and the frames are their beginnings.
pub(super) unsafe fn finish_checksums(packets: &[*mut Mbuf], frames: &[Frame]) {
    for (&packet, frame) in packets.iter().zip(frames).filter(|(_, frame)| frame.cap == frame.len) {
        let length = frame.len as usize;
        // SAFETY: a received frame is readable for its length and is exclusively owned.
        let bytes = unsafe { std::slice::from_raw_parts_mut(frame.data.cast_mut(), length) };
        if let Some(found) = Unfinished::find(bytes, length) {
            let checksum = found.checksum([&*bytes].into_iter());
            bytes[found.field..found.field + checksum.len()].copy_from_slice(&checksum);
            // SAFETY: the packet is exclusively owned. It keeps its length.
            let is_done = unsafe {
                shim::dpdk_rewrite(packet, frame.len, found.field as u32, checksum.as_ptr(), checksum.len() as u32)
            };
            debug_assert!(is_done, "a packet that keeps its length has room");
        }
    }
}

/// Changes a packet into what leaves in its place, after [`finish_checksums`]. Returns whether its last segment has
/// room for a longer packet.
///
/// # Safety
/// The caller owns the packet exclusively, and the frame is its beginning.
pub(super) unsafe fn rewrite(packet: *mut Mbuf, frame: &Frame, rewrite: &Rewrite) -> bool {
    let head = rewrite.head();
    // SAFETY: a received frame is readable, and the bytes to be written are elsewhere.
    unsafe {
        let received = std::slice::from_raw_parts(frame.data, frame.cap as usize);
        let checksum = checksum::updated(rewrite, received);
        let is_done = shim::dpdk_rewrite(packet, rewrite.len, 0, head.as_ptr(), head.len() as u32);
        checksum.filter(|_| is_done).is_none_or(|field| {
            shim::dpdk_rewrite(packet, rewrite.len, rewrite.checksum_at, field.as_ptr(), field.len() as u32)
        }) && is_done
    }
}

/// Packets to be sent, at most a burst.
pub(super) struct Outgoing {
    packets: [*mut Mbuf; BURST_MAX],
    lengths: [u32; BURST_MAX],
    count: usize,
}

impl Outgoing {
    pub const NONE: Outgoing =
        Outgoing { packets: [std::ptr::null_mut(); BURST_MAX], lengths: [0; BURST_MAX], count: 0 };

    /// Appends a packet if `times` is 1, after which the caller no longer owns it. If `times` is 0, nothing is added.
    /// There must be room.
    pub fn put(&mut self, packet: *mut Mbuf, length: u32, times: usize) {
        let place = self.count % BURST_MAX;
        self.packets[place] = packet;
        self.lengths[place] = length;
        self.count += times;
    }

    /// Sends the packets to a port. Packets that it refuses are freed and counted.
    pub fn send(&mut self, to: &Queue, ports: &Ports) {
        if self.count == 0 {
            return;
        }
        let (port, queue) = to.id;
        // SAFETY: the queue belongs to this worker, which owns the packets. Packets that the queue takes are not
        // accessed again.
        let sent = unsafe { shim::dpdk_send(port, queue, self.packets.as_mut_ptr(), self.count as u32) as usize };
        add(&to.counters.tx_packets, sent as u64);
        add(&to.counters.tx_bytes, self.lengths[..sent].iter().map(|&length| u64::from(length)).sum());
        if sent < self.count {
            let up = ports.ports[to.port].is_up();
            add(if up { &to.counters.tx_full } else { &to.counters.tx_link_down }, (self.count - sent) as u64);
        }
        self.free_from(sent);
    }

    /// Frees the packets.
    pub fn free(&mut self) {
        self.free_from(0);
    }

    fn free_from(&mut self, first: usize) {
        let rest = &mut self.packets[first..self.count];
        // SAFETY: this worker owns these packets and does not access them again.
        unsafe { shim::dpdk_free(rest.as_mut_ptr(), rest.len() as u32) };
        self.count = 0;
    }
}
