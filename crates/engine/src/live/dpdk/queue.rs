//! A queue pair of a port, and packets on their way out.

use std::sync::Arc;

use weir_abi::dpdk::Lost;
use weir_abi::{BURST_MAX, Frame};

use super::port::Ports;
use super::shim::{self, Mbuf};
use crate::live::checksum::Unfinished;
use crate::live::lane::{PortCounters, add};

/// A queue pair of a port, owned by one worker.
pub(super) struct Queue {
    /// The port's place among the open ones.
    pub port: usize,
    /// The port's number and the queue's.
    pub id: (u16, u16),
    pub counters: Arc<PortCounters>,
    /// Whether senders leave checksums to a card that is not there.
    pub unfinished: bool,
    /// Packets that the port had no room for, as of the last look. Its first queue counts them.
    pub missed: u64,
    /// Packets that the port took and could not send, likewise.
    pub unsent: u64,
}

impl Queue {
    /// Looks after the port, if this is its first queue.
    pub fn look(&mut self, ports: &Ports) {
        if self.id.1 == 0 {
            let Lost { missed, unsent } = ports.ports[self.port].look();
            add(&self.counters.rx_missed, missed.saturating_sub(self.missed));
            add(&self.counters.tx_error, unsent.saturating_sub(self.unsent));
            (self.missed, self.unsent) = (missed, unsent);
        }
    }
}

/// Finishes the checksums of packets that were received and lie in one piece each, where their senders did not.
///
/// # Safety
/// The packets are the caller's alone.
pub(super) unsafe fn finish_checksums(frames: &[Frame]) {
    for frame in frames.iter().filter(|frame| frame.cap == frame.len) {
        let length = frame.len as usize;
        // SAFETY: a received frame is readable for its length, and nobody else's.
        let bytes = unsafe { std::slice::from_raw_parts_mut(frame.data.cast_mut(), length) };
        if let Some(found) = Unfinished::find(bytes, length) {
            let checksum = found.checksum([&*bytes].into_iter());
            bytes[found.field..found.field + checksum.len()].copy_from_slice(&checksum);
        }
    }
}

/// Packets on their way out, at most a burst.
pub(super) struct Outgoing {
    packets: [*mut Mbuf; BURST_MAX],
    lengths: [u32; BURST_MAX],
    count: usize,
}

impl Outgoing {
    pub const NONE: Outgoing =
        Outgoing { packets: [std::ptr::null_mut(); BURST_MAX], lengths: [0; BURST_MAX], count: 0 };

    /// Puts a packet behind the others, and counts it `times` times: once, and nobody else holds it from now on, or not at all. There is room for
    /// a burst.
    pub fn put(&mut self, packet: *mut Mbuf, length: u32, times: usize) {
        let place = self.count % BURST_MAX;
        self.packets[place] = packet;
        self.lengths[place] = length;
        self.count += times;
    }

    /// Gives the packets to a port. What it does not take is freed and counted.
    pub fn send(&mut self, to: &Queue, ports: &Ports) {
        if self.count == 0 {
            return;
        }
        let (port, queue) = to.id;
        // SAFETY: the queue is this worker's; the packets are ours, and those that it takes are not looked at again.
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
        // SAFETY: these packets are ours, and not looked at again.
        unsafe { shim::dpdk_free(rest.as_mut_ptr(), rest.len() as u32) };
        self.count = 0;
    }
}
