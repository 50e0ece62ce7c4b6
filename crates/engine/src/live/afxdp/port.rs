//! A queue of an interface: one AF_XDP socket and its four rings.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::sockopt::{
    set_xdp_rx_ring_size, set_xdp_tx_ring_size, set_xdp_umem_completion_ring_size, set_xdp_umem_fill_ring_size,
    set_xdp_umem_reg, xdp_mmap_offsets, xdp_statistics,
};
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, SocketAddrXdpWithSharedUmem, XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING,
    XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING, XdpDesc, XdpDescOptions,
};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, bind, send, socket_with};

use super::ring::{Consumer, Producer};
use super::umem::Umem;
use crate::EngineError;
use crate::live::lane::{PortCounters, add};

/// Entries of each ring.
pub(super) const RING: u32 = 2048;
/// Calls for one burst: the kernel sends 32 packets a call when it copies.
const WAKEUPS_MAX: u32 = 16;

/// Which queue of which interface.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub interface: String,
    pub index: u32,
    pub queue: u32,
}

/// A bound socket.
pub(super) struct Port {
    pub socket: OwnedFd,
    pub place: Place,
    pub counters: Arc<PortCounters>,
    pub rx: Consumer<XdpDesc>,
    fill: Producer<u64>,
    tx: Producer<XdpDesc>,
    completion: Consumer<u64>,
    /// What was already counted as missed.
    missed: u64,
    /// Packets put into `tx` since the last wakeup.
    unsent: u32,
}

impl Port {
    /// A socket on the queue. The first of a lane registers the memory, the others share it. `copy` is what the first asks for.
    pub fn open(
        place: Place,
        counters: Arc<PortCounters>,
        umem: &Umem,
        first: Option<&Port>,
        copy: SocketAddrXdpFlags,
    ) -> Result<Self, EngineError> {
        let interface = place.interface.clone();
        Self::try_open(place, counters, umem, first, copy)
            .map_err(|errno| EngineError::Interface { interface, source: errno.into() })
    }

    fn try_open(
        place: Place,
        counters: Arc<PortCounters>,
        umem: &Umem,
        first: Option<&Port>,
        copy: SocketAddrXdpFlags,
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
        let port = Port {
            rx: Consumer::map(&socket, offsets.rx, XDP_PGOFF_RX_RING, RING)?,
            fill: Producer::map(&socket, offsets.fr, XDP_UMEM_PGOFF_FILL_RING, RING)?,
            tx: Producer::map(&socket, offsets.tx, XDP_PGOFF_TX_RING, RING)?,
            completion: Consumer::map(&socket, offsets.cr, XDP_UMEM_PGOFF_COMPLETION_RING, RING)?,
            socket,
            place,
            counters,
            missed: 0,
            unsent: 0,
        };
        let Place { index, queue, .. } = port.place;
        match first {
            None => {
                let flags = copy | SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
                bind(&port.socket, &SocketAddrXdp::new(flags, index, queue))?;
            }
            Some(first) => {
                let addr = SocketAddrXdp::new(SocketAddrXdpFlags::XDP_SHARED_UMEM, index, queue);
                let shared_umem_fd = std::os::fd::AsFd::as_fd(&first.socket);
                bind(&port.socket, &SocketAddrXdpWithSharedUmem { addr, shared_umem_fd })?;
            }
        }
        Ok(port)
    }

    /// Gives the kernel frames to receive into, at most `most`, as long as there are free ones.
    pub fn refill(&mut self, umem: &mut Umem, most: u32) {
        let mut given = 0;
        while given < self.fill.room().min(most) {
            let Some(frame) = umem.take() else { break };
            self.fill.put(frame);
            given += 1;
        }
        if given > 0 {
            self.fill.publish();
        }
    }

    /// Queues a packet to be sent, and counts it. Returns whether there was room; else the packet is counted as dropped.
    pub fn queue(&mut self, address: u64, length: u32) -> bool {
        let room = self.tx.room() > 0;
        if room {
            self.tx.put(XdpDesc { addr: address, len: length, options: XdpDescOptions::empty() });
            self.unsent += 1;
            add(&self.counters.tx_packets, 1);
            add(&self.counters.tx_bytes, length.into());
        } else {
            add(&self.counters.tx_full, 1);
        }
        room
    }

    /// Has the kernel send what was queued. Returns whether it has taken everything; if not, this is to be called again.
    pub fn send(&mut self) -> Result<bool, EngineError> {
        if self.unsent > 0 {
            self.unsent = 0;
            self.tx.publish();
        }
        for _ in 0..WAKEUPS_MAX {
            if self.tx.is_drained() || !self.tx.needs_wakeup() {
                break;
            }
            match send(&self.socket, &[], SendFlags::DONTWAIT) {
                // It sent some; or it is busy, or the queue of the card is full for the moment.
                Ok(_) | Err(Errno::AGAIN | Errno::BUSY | Errno::NOBUFS | Errno::INTR) => {}
                // What is queued goes out when the link is up again.
                Err(Errno::NETDOWN | Errno::NXIO) => break,
                Err(errno) => {
                    let interface = self.place.interface.clone();
                    return Err(EngineError::Interface { interface, source: errno.into() });
                }
            }
        }
        Ok(self.tx.is_drained())
    }

    /// Takes frames back that were sent.
    pub fn reclaim(&mut self, umem: &mut Umem) {
        let ready = self.completion.ready();
        for _ in 0..ready {
            umem.give_back(self.completion.take());
        }
        if ready > 0 {
            self.completion.release();
        }
    }

    /// Counts packets that the kernel had no room for.
    pub fn count_missed(&mut self) {
        let Ok(statistics) = xdp_statistics(&self.socket) else { return };
        let missed = statistics.rx_dropped + statistics.rx_ring_full.unwrap_or(0);
        add(&self.counters.rx_missed, missed - self.missed);
        self.missed = missed;
    }
}
