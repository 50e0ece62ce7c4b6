//! A packet socket for the packets of one interface: its ring, its fanout group and what it has missed.

use std::mem::zeroed;
use std::os::fd::{AsFd, BorrowedFd};

use libc::{c_int, sock_filter};

use crate::EngineError;
use crate::live::os::device::Device;
use crate::live::os::packet_socket::PacketSocket;

/// The kernel's `struct tpacket_req3`.
pub(super) use libc::tpacket_req3 as RingRequest;

/// Limit on bytes of packets in transmission from a socket: several bursts of 64 KB packets. A slow card limits packets
/// by its own queue and not by this.
const SEND_BYTES: c_int = 32 << 20;

/// The program of classic BPF that refuses all packets.
const NOTHING: [sock_filter; 1] = [sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 }];

/// A packet socket, which receives nothing at first.
pub(in crate::live) struct Socket(PacketSocket);

impl Socket {
    /// A socket for an interface, not yet bound to it.
    pub fn open(interface: &str) -> Result<Self, EngineError> {
        let socket = Socket(PacketSocket::open(interface)?);
        socket.set(libc::PACKET_VERSION, &(libc::tpacket_versions::TPACKET_V3 as c_int))?;
        socket.set(libc::PACKET_VNET_HDR, &(1 as c_int))?;
        // Without CAP_NET_ADMIN the system's default stays.
        let _kept = socket.0.set(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &SEND_BYTES);
        Ok(socket)
    }

    /// Requests the receive ring.
    pub fn request_ring(&self, request: &RingRequest) -> Result<(), EngineError> {
        self.set(libc::PACKET_RX_RING, request)
    }

    /// Refuses all packets until [`Socket::begin`]. A socket can join a group only when it receives packets, and until
    /// then it would receive those that are for others of the group.
    pub fn refuse_all(&self) -> Result<(), EngineError> {
        self.0.filter(&NOTHING)
    }

    /// Ends [`Socket::refuse_all`].
    pub fn begin(&self) -> Result<(), EngineError> {
        self.0.end_filter()
    }

    /// Receives all packets of the interface from now on, for any address, until the socket is closed.
    pub fn receive_all(&self) -> Result<(), EngineError> {
        self.0.be_promiscuous()?;
        self.0.bind(libc::ETH_P_ALL as u16)
    }

    /// Makes the socket ready to send on the interface, without receiving.
    pub fn bind_to_send(&self) -> Result<(), EngineError> {
        self.0.bind(0)
    }

    /// Lets the kernel cut large packets that the interface does not cut.
    pub fn let_kernel_segment(&self) -> Result<(), EngineError> {
        self.0.pass_queue()
    }

    /// Joins the fanout group of sockets to which the kernel distributes the interface's flows, or creates one. Returns
    /// its number.
    pub fn join_fanout(&self, group: Option<u16>) -> Result<u16, EngineError> {
        let mode = libc::PACKET_FANOUT_HASH;
        let argument = match group {
            Some(group) => mode << 16 | u32::from(group),
            None => (mode | libc::PACKET_FANOUT_FLAG_UNIQUEID) << 16,
        };
        self.set(libc::PACKET_FANOUT, &argument)?;
        let mut found = 0u32;
        self.0.get(libc::PACKET_FANOUT, &mut found)?;
        Ok(found as u16)
    }

    /// Number of packets without room in the ring since the last call.
    pub fn missed(&self) -> u64 {
        // SAFETY: zeros are a valid value of this plain structure.
        let mut stats: libc::tpacket_stats_v3 = unsafe { zeroed() };
        match self.0.get(libc::PACKET_STATISTICS, &mut stats) {
            Ok(()) => stats.tp_drops.into(),
            Err(_) => 0,
        }
    }

    /// Clears the error that the interface went down.
    pub fn clear_error(&self) {
        let _error = rustix::net::sockopt::socket_error(&self.0);
    }

    /// The interface.
    pub fn device(&self) -> &Device {
        self.0.device()
    }

    fn set<T>(&self, option: c_int, value: &T) -> Result<(), EngineError> {
        self.0.set(libc::SOL_PACKET, option, value)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
