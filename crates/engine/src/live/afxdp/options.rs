//! The options of sockets: what is requested, and what the kernel grants.

use rustix::net::xdp::SocketAddrXdpFlags;

use super::busy::Waiting;

/// What copies packets between the card and the umem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Copying {
    /// The card accesses the umem directly (zero-copy).
    Nobody,
    /// The kernel, once in each direction.
    Kernel,
}

/// Number of frames that a packet takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Buffers {
    /// One frame for any packet.
    One,
    /// As many frames as needed (Linux 6.6). The first contains the headers.
    Several,
}

/// Options of the sockets.
#[derive(Clone, Copy)]
pub(super) struct How {
    pub workers: usize,
    pub buffers: Buffers,
    pub waiting: Waiting,
    pub copy: SocketAddrXdpFlags,
}

impl How {
    /// Flags for the first socket of a lane.
    pub fn flags(&self) -> SocketAddrXdpFlags {
        let several = match self.buffers {
            Buffers::One => SocketAddrXdpFlags::empty(),
            Buffers::Several => SocketAddrXdpFlags::XDP_USE_SG,
        };
        self.copy | several | SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP
    }
}
