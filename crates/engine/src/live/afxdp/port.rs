//! A queue of an interface: one AF_XDP socket and its four rings.

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
use super::open::{Buffers, Copying, How, LINK_BYTES, Place, longest_packet};
use super::ring::{Consumer, Producer};
use super::umem::{PACKET_BYTES, Umem};
use crate::EngineError;
use crate::live::carrier::{Carrier, DOWN_AGE, State};
use crate::live::lane::{PortCounters, add};

/// Entries of each ring.
pub(super) const RING: u32 = 2048;
/// Stands in a transmit ring for what was dropped: no frame is there, so that the kernel passes over it.
const NOTHING: u64 = u64::MAX;

/// A bound socket.
pub(super) struct Port {
    pub socket: OwnedFd,
    pub place: Place,
    pub counters: Arc<PortCounters>,
    pub copying: Copying,
    /// Whether senders leave checksums to a card that is not there.
    pub unfinished: bool,
    pub rx: Consumer<XdpDesc>,
    fill: Producer<u64>,
    tx: Producer<XdpDesc>,
    completion: Consumer<u64>,
    /// What was already counted as missed.
    missed: u64,
    /// Entries of `tx` that were already counted as sent or lost.
    counted: u32,
    /// Packets that the kernel took and threw away, and that are not yet among those entries. Before Linux 6.17 it says later what it took.
    refused: u64,
    state: State,
    /// When that was last looked at.
    looked: Instant,
    carrier: Carrier,
    /// Bytes of the longest packet that the interface sends.
    longest: u32,
}

impl Port {
    /// A socket on the queue. The first of a lane registers the memory, the others share it, and do as the first was told.
    pub fn open(
        place: Place,
        counters: Arc<PortCounters>,
        umem: &Umem,
        first: Option<&Port>,
        how: &How,
    ) -> Result<Self, EngineError> {
        let longest = longest_packet(&place.device)?;
        let device = place.device.clone();
        Self::try_open(place, counters, umem, first, how, longest).map_err(|errno| match (how.buffers, errno) {
            (Buffers::Several, Errno::INVAL) => device.failed(std::io::Error::other(format!(
                "packets of {longest} bytes take several buffers, which this kernel cannot (Linux 6.6 can); those of an MTU of {} take one",
                PACKET_BYTES - LINK_BYTES
            ))),
            _ => device.failed(errno),
        })
    }

    fn try_open(
        place: Place,
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
        let unfinished = place.device.driver().is_virtual();
        let mut port = Port {
            unfinished,
            rx: Consumer::map(&socket, offsets.rx, XDP_PGOFF_RX_RING, RING)?,
            fill: Producer::map(&socket, offsets.fr, XDP_UMEM_PGOFF_FILL_RING, RING)?,
            tx: Producer::map(&socket, offsets.tx, XDP_PGOFF_TX_RING, RING)?,
            completion: Consumer::map(&socket, offsets.cr, XDP_UMEM_PGOFF_COMPLETION_RING, RING)?,
            socket,
            place,
            counters,
            copying: Copying::Kernel,
            missed: 0,
            counted: 0,
            refused: 0,
            state: State::Up,
            looked: Instant::now(),
            carrier: Carrier::default(),
            longest,
        };
        busy::prefer(&port.socket, how.waiting)?;
        let (index, queue) = (port.place.device.index(), port.place.queue);
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

    /// Gives the kernel frames to receive into, at most `most`, as long as there are free ones.
    pub fn refill(&mut self, umem: &mut Umem, most: u32) {
        let room = self.fill.room().min(most);
        let given = (0..room).map_while(|_| umem.take()).map(|frame| self.fill.put(frame)).count();
        if given > 0 {
            self.fill.publish();
            // A driver that ran out of frames sleeps until it is told that there are some.
            if self.copying == Copying::Nobody && self.fill.needs_wakeup() {
                self.poll_driver();
            }
        }
    }

    /// Has the driver look for packets, on this core and now.
    pub fn poll_driver(&self) {
        // The answer is in the rings; an interface that is down or gone is found elsewhere.
        let _none = recv(&self.socket, &mut [0u8; 0], RecvFlags::DONTWAIT);
    }

    /// Queues a packet to be sent, which lies in these pieces. Returns whether it will be; else it is counted as dropped.
    pub fn queue(&mut self, pieces: &[XdpDesc], bytes: u32) -> bool {
        if self.state == State::Down && self.looked.elapsed() >= DOWN_AGE {
            // One that was removed stays down, and is found in the next round.
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

    /// Has the kernel send what was queued. Returns whether it has taken everything; if not, this is to be called again.
    pub fn send(&mut self, umem: &mut Umem) -> Result<bool, EngineError> {
        self.tx.publish();
        let mut looked = false;
        // The kernel takes some packets a call when it copies.
        while !self.tx.is_drained() && self.tx.needs_wakeup() {
            let before = self.tx.consumed();
            let refused = match send(&self.socket, &[], SendFlags::DONTWAIT) {
                Ok(_) | Err(Errno::AGAIN | Errno::NOBUFS | Errno::INTR) => false,
                // The interface took a packet and threw it away.
                Err(Errno::BUSY) => self.copying == Copying::Kernel,
                Err(Errno::NETDOWN | Errno::NXIO | Errno::NODEV) => {
                    self.look()?;
                    self.drop_unsent(umem);
                    break;
                }
                Err(errno) => return Err(self.place.device.failed(errno)),
            };
            if refused {
                if !looked {
                    self.look_after_refusal()?;
                    looked = true;
                }
                self.count_refused();
            }
            // Its queue is full for the moment.
            if self.tx.consumed() == before && !refused {
                break;
            }
        }
        self.count_sent();
        Ok(self.tx.is_drained())
    }

    /// Counts what the kernel took since the last time as sent, but for what it refused. Of several packets the last is the one.
    fn count_sent(&mut self) {
        let (mut packets, mut bytes, mut last) = (0, 0, 0);
        let mut is_first = true;
        // What was dropped is counted before the kernel passes over it.
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

    /// The packet that the kernel took last was not sent.
    fn count_refused(&mut self) {
        self.refused += 1;
        self.count_sent();
        add(self.why_refused(), 1);
    }

    /// The counter of packets that the interface does not take in the state that it is in.
    fn why_refused(&self) -> &AtomicU64 {
        match self.state {
            State::Up => &self.counters.tx_full,
            State::Down => &self.counters.tx_link_down,
        }
    }

    /// Drops what was queued for an interface that is down. The kernel only looks at the queue when it is called to; a driver that sends by itself
    /// may look at any time, and keeps what is queued, less than a burst's packets, until the link is up.
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

    /// Takes frames back that were sent.
    pub fn reclaim(&mut self, umem: &mut Umem) {
        let ready = self.completion.ready();
        for place in 0..ready {
            umem.give_back(self.completion.peek(place));
        }
        if ready > 0 {
            self.completion.take(ready);
        }
    }

    /// Looks whether the interface is up, and how long its packets may be.
    ///
    /// # Errors
    /// It was removed.
    pub fn look(&mut self) -> Result<(), EngineError> {
        self.looked = Instant::now();
        self.state = State::Down;
        self.state = self.carrier.look(&self.place.device)?;
        self.longest = longest_packet(&self.place.device)?;
        Ok(())
    }

    /// As [`Port::look`], after it refused a packet.
    fn look_after_refusal(&mut self) -> Result<(), EngineError> {
        self.looked = Instant::now();
        self.state = State::Down;
        self.state = self.carrier.after_refusal(&self.place.device)?;
        Ok(())
    }

    /// Counts packets that the kernel had no room for.
    pub fn count_missed(&mut self) {
        let Ok(statistics) = xdp_statistics(&self.socket) else { return };
        let missed = statistics.rx_dropped + statistics.rx_ring_full.unwrap_or(0);
        add(&self.counters.rx_missed, missed - self.missed);
        self.missed = missed;
    }
}
