//! A port is a queue of an interface: one AF_XDP socket and its four rings.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::sockopt::{
    set_xdp_rx_ring_size, set_xdp_tx_ring_size, set_xdp_umem_completion_ring_size, set_xdp_umem_fill_ring_size,
    set_xdp_umem_reg, xdp_mmap_offsets, xdp_options, xdp_statistics,
};
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, SocketAddrXdpWithSharedUmem, XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING,
    XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING, XdpDesc, XdpDescOptions, XdpOptionsFlags,
};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with};

use super::busy;
use super::options::{Buffers, Copying, How};
use super::queue::{DeviceQueue, longest_packet};
use super::ring::{Consumer, Producer};
use super::umem::{PACKET_BYTES, Umem};
use crate::EngineError;
use crate::live::lane::{LINK_BYTES, PortCounters, add};
use crate::live::os::carrier::{Carrier, DOWN_AGE, State};

/// Number of entries in each ring.
pub(super) const RING: u32 = 2048;
/// Replaces a dropped packet in a transmit ring. It is not a valid frame, so the kernel skips it.
const NOTHING: u64 = u64::MAX;

/// A bound socket.
pub(super) struct Port {
    pub socket: OwnedFd,
    pub device_queue: DeviceQueue,
    pub counters: Arc<PortCounters>,
    pub copying: Copying,
    /// Whether senders leave checksums to a card that does not exist.
    pub unfinished: bool,
    pub rx: Consumer<XdpDesc>,
    fill: Producer<u64>,
    tx: Producer<XdpDesc>,
    completion: Consumer<u64>,
    buffers: Buffers,
    /// Numbers of missed packets, and of packets that were too long, that were already counted.
    missed: u64,
    too_long: u64,
    /// Number of `tx` entries that were already counted as sent or lost.
    counted: u32,
    /// Packets that the kernel took and discarded, and that are not yet among those entries. Before Linux 6.17 the
    /// kernel reports late what it took.
    refused: u64,
    state: State,
    /// Time of the last check of the state.
    looked: Instant,
    carrier: Carrier,
    /// Size of the longest packet that the interface sends.
    longest: u32,
}

impl Port {
    /// Opens a socket on the queue. The first socket of a lane registers the umem. The others share it and its options.
    pub fn open(
        device_queue: DeviceQueue,
        counters: Arc<PortCounters>,
        umem: &Umem,
        first: Option<&Port>,
        how: &How,
    ) -> Result<Self, EngineError> {
        let longest = longest_packet(&device_queue.device)?;
        let device = device_queue.device.clone();
        Self::try_open(device_queue, counters, umem, first, how, longest).map_err(|errno| match (how.buffers, errno) {
            (Buffers::Several, Errno::INVAL) => device.failed(std::io::Error::other(format!(
                "packets of {longest} bytes need several buffers, which only Linux 6.6 and newer support; with an MTU of {} \
                 they need one",
                PACKET_BYTES - LINK_BYTES
            ))),
            _ => device.failed(errno),
        })
    }

    fn try_open(
        device_queue: DeviceQueue,
        counters: Arc<PortCounters>,
        umem: &Umem,
        first: Option<&Port>,
        how: &How,
        longest: u32,
    ) -> Result<Self, Errno> {
        let socket = socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
        if first.is_none() {
            set_xdp_umem_reg(&socket, umem.registration())?;
        }
        set_xdp_umem_fill_ring_size(&socket, RING)?;
        set_xdp_umem_completion_ring_size(&socket, RING)?;
        set_xdp_rx_ring_size(&socket, RING)?;
        set_xdp_tx_ring_size(&socket, RING)?;
        let offsets = xdp_mmap_offsets(&socket)?;
        let unfinished = device_queue.device.driver().is_virtual();
        let mut port = Port {
            unfinished,
            rx: Consumer::map(&socket, offsets.rx, XDP_PGOFF_RX_RING, RING)?,
            fill: Producer::map(&socket, offsets.fr, XDP_UMEM_PGOFF_FILL_RING, RING)?,
            tx: Producer::map(&socket, offsets.tx, XDP_PGOFF_TX_RING, RING)?,
            completion: Consumer::map(&socket, offsets.cr, XDP_UMEM_PGOFF_COMPLETION_RING, RING)?,
            socket,
            device_queue,
            counters,
            copying: Copying::Kernel,
            buffers: how.buffers,
            missed: 0,
            too_long: 0,
            counted: 0,
            refused: 0,
            state: State::Up,
            looked: Instant::now(),
            carrier: Carrier::default(),
            longest,
        };
        busy::prefer(&port.socket, how.waiting)?;
        let (index, queue) = (port.device_queue.device.index(), port.device_queue.queue);
        match first {
            None => bind(&port.socket, &SocketAddrXdp::new(how.flags(), index, queue))?,
            Some(first) => {
                let addr = SocketAddrXdp::new(SocketAddrXdpFlags::XDP_SHARED_UMEM, index, queue);
                let shared_umem_fd = std::os::fd::AsFd::as_fd(&first.socket);
                bind(&port.socket, &SocketAddrXdpWithSharedUmem { addr, shared_umem_fd })?;
            }
        }
        if xdp_options(&port.socket)?.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY) {
            port.copying = Copying::Nobody;
        }
        Ok(port)
    }

    /// Gives the kernel up to `most` free frames to receive into.
    pub fn refill(&mut self, umem: &mut Umem, most: u32) {
        let room = self.fill.room().min(most);
        let given = (0..room).map_while(|_| umem.take()).map(|frame| self.fill.put(frame)).count();
        if given > 0 {
            self.fill.publish();
            // A driver without frames sleeps until it is woken up.
            if self.copying == Copying::Nobody && self.fill.needs_wakeup() {
                self.poll_driver();
            }
        }
    }

    /// Makes the driver look for packets, on this core and now.
    pub fn poll_driver(&self) {
        // The result is in the rings. Another check finds interfaces that are down or removed.
        let _none = recv(&self.socket, &mut [0u8; 0], RecvFlags::DONTWAIT);
    }

    /// Queues a packet in these pieces for transmission. Returns whether it was queued; otherwise it is counted as
    /// dropped.
    pub fn queue(&mut self, pieces: &[XdpDesc], bytes: u32) -> bool {
        if self.state == State::Down && self.looked.elapsed() >= DOWN_AGE {
            // A removed interface stays down, and the next round reports it.
            let _removed = self.look();
        }
        let refused = match self.state {
            State::Down => Some(&self.counters.tx_link_down),
            State::Up if bytes > self.longest => Some(&self.counters.tx_too_long),
            State::Up if (self.tx.room() as usize) < pieces.len() => {
                let _removed = self.look_after_refusal();
                Some(self.why_refused())
            }
            State::Up => None,
        };
        if let Some(refused) = refused {
            add(refused, 1);
            return false;
        }
        for (piece, more) in pieces.iter().zip((0..pieces.len()).rev()) {
            let options = if more > 0 { XdpDescOptions::XDP_PKT_CONTD } else { XdpDescOptions::empty() };
            self.tx.put(XdpDesc { addr: piece.addr, len: piece.len, options });
        }
        true
    }

    /// Makes the kernel send what was queued. Returns whether it has taken everything; if not, call again.
    pub fn send(&mut self, umem: &mut Umem) -> Result<bool, EngineError> {
        self.tx.publish();
        let mut looked = false;
        // When the kernel copies, it takes only some packets per call.
        while !self.tx.is_drained() && self.tx.needs_wakeup() {
            let before = self.tx.consumed();
            let refused = match send(&self.socket, &[], SendFlags::DONTWAIT) {
                Ok(_) | Err(Errno::AGAIN | Errno::NOBUFS | Errno::INTR) => false,
                // The interface took a packet and discarded it.
                Err(Errno::BUSY) => self.copying == Copying::Kernel,
                Err(Errno::NETDOWN | Errno::NXIO | Errno::NODEV) => {
                    self.look()?;
                    self.drop_unsent(umem);
                    break;
                }
                Err(errno) => return Err(self.device_queue.device.failed(errno)),
            };
            if refused {
                if !looked {
                    self.look_after_refusal()?;
                    looked = true;
                }
                self.count_refused();
            }
            // Its queue is full at the moment.
            if self.tx.consumed() == before && !refused {
                break;
            }
        }
        self.count_sent();
        Ok(self.tx.is_drained())
    }

    /// Counts what the kernel took since the last call as sent, except refused packets. If there are several packets,
    /// the last one was refused.
    fn count_sent(&mut self) {
        let (mut packets, mut bytes, mut last) = (0, 0, 0);
        let mut is_first = true;
        // Dropped packets were counted before the kernel skips them.
        let fresh = (self.tx.consumed().wrapping_sub(self.counted) as i32).max(0);
        for _ in 0..fresh {
            let piece = self.tx.entry(self.counted);
            self.counted = self.counted.wrapping_add(1);
            if piece.addr == NOTHING {
                continue;
            }
            bytes += u64::from(piece.len);
            last = if is_first { 0 } else { last } + u64::from(piece.len);
            is_first = !piece.options.contains(XdpDescOptions::XDP_PKT_CONTD);
            packets += u64::from(is_first);
        }
        while self.refused > 0 && packets > 0 {
            self.refused -= 1;
            packets -= 1;
            bytes -= last.min(bytes);
        }
        add(&self.counters.tx_packets, packets);
        add(&self.counters.tx_bytes, bytes);
    }

    /// Records that the packet which the kernel took last was not sent.
    fn count_refused(&mut self) {
        self.refused += 1;
        self.count_sent();
        add(self.why_refused(), 1);
    }

    /// The counter of packets that the interface refuses in its current state.
    fn why_refused(&self) -> &AtomicU64 {
        match self.state {
            State::Up => &self.counters.tx_full,
            State::Down => &self.counters.tx_link_down,
        }
    }

    /// Drops packets queued for an interface that is down. If the kernel copies, it reads the queue only when called. A
    /// zero-copy driver may read it at any time and keeps queued packets, less than a burst, until the link is up.
    fn drop_unsent(&mut self, umem: &mut Umem) {
        self.count_sent();
        if self.state == State::Up || self.copying == Copying::Nobody {
            return;
        }
        let (mut packets, produced) = (0, self.tx.produced());
        while self.counted != produced {
            let piece = self.tx.entry(self.counted);
            if piece.addr != NOTHING {
                packets += u64::from(!piece.options.contains(XdpDescOptions::XDP_PKT_CONTD));
                umem.give_back(piece.addr);
                self.tx.overwrite(self.counted, XdpDesc { addr: NOTHING, len: 0, options: XdpDescOptions::empty() });
            }
            self.counted = self.counted.wrapping_add(1);
        }
        add(&self.counters.tx_link_down, packets);
    }

    /// Takes back the frames of sent packets.
    pub fn reclaim(&mut self, umem: &mut Umem) {
        let ready = self.completion.ready();
        for index in 0..ready {
            umem.give_back(self.completion.peek(index));
        }
        if ready > 0 {
            self.completion.take(ready);
        }
    }

    /// Checks whether the interface is up, and its maximum packet size.
    ///
    /// # Errors
    /// It was removed.
    pub fn look(&mut self) -> Result<(), EngineError> {
        self.looked = Instant::now();
        self.state = State::Down;
        self.state = self.carrier.look(&self.device_queue.device)?;
        self.longest = longest_packet(&self.device_queue.device)?;
        Ok(())
    }

    /// Like [`Port::look`], after the interface refused a packet.
    fn look_after_refusal(&mut self) -> Result<(), EngineError> {
        self.looked = Instant::now();
        self.state = State::Down;
        self.state = self.carrier.after_refusal(&self.device_queue.device)?;
        Ok(())
    }

    /// Counts packets that the kernel had no room for, and those that no frame can take.
    pub fn count_missed(&mut self) {
        let Ok(statistics) = xdp_statistics(&self.socket) else { return };
        // A kernel that copies drops for two reasons: a packet is too long, or there is no frame, which it counts too.
        let too_long = match (self.buffers, self.copying, statistics.rx_fill_ring_empty_descs) {
            (Buffers::One, Copying::Kernel, Some(without_frame)) => statistics.rx_dropped.saturating_sub(without_frame),
            _ => 0,
        };
        let too_long = too_long.max(self.too_long);
        let missed = (statistics.rx_dropped - too_long + statistics.rx_ring_full.unwrap_or(0)).max(self.missed);
        add(&self.counters.rx_too_long, too_long - self.too_long);
        add(&self.counters.rx_missed, missed - self.missed);
        (self.missed, self.too_long) = (missed, too_long);
    }
}
