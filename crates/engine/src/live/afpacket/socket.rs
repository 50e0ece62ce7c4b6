//! A packet socket on one interface.

use std::io;
use std::mem::{size_of, size_of_val, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libc::{c_int, sockaddr_ll, socklen_t};

use crate::EngineError;
use crate::live::device::Device;
use crate::live::promiscuous;

/// The kernel's `struct tpacket_req3`.
pub(super) use libc::tpacket_req3 as RingRequest;

/// Limit on bytes of packets in transmission from a socket: several bursts of 64 KB packets. A slow card limits packets
/// by its own queue and not by this.
const SEND_BYTES: c_int = 32 << 20;

/// A packet socket, which receives nothing at first.
pub(in crate::live) struct Socket {
    fd: OwnedFd,
    device: Device,
}

impl Socket {
    /// A socket for an interface, not yet bound to it.
    pub fn open(interface: &str) -> Result<Self, EngineError> {
        let device = Device::open(interface)?;
        // SAFETY: the call takes no pointers.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0) };
        if fd < 0 {
            return Err(device.failed(io::Error::last_os_error()));
        }
        // SAFETY: the descriptor is new and not owned elsewhere.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let socket = Socket { fd, device };
        socket.set(libc::PACKET_VERSION, &(libc::tpacket_versions::TPACKET_V3 as c_int))?;
        socket.set(libc::PACKET_VNET_HDR, &1)?;
        socket.set(libc::PACKET_IGNORE_OUTGOING, &1)?;
        socket.set(libc::PACKET_QDISC_BYPASS, &1)?;
        // Without CAP_NET_ADMIN the system's default stays.
        let _kept = socket.set_at(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &SEND_BYTES);
        Ok(socket)
    }

    /// Requests the receive ring.
    pub fn request_ring(&self, request: &RingRequest) -> Result<(), EngineError> {
        self.set(libc::PACKET_RX_RING, request)
    }

    /// Receives all packets of the interface from now on, for any address, until the socket is closed.
    pub fn receive_all(&self) -> Result<(), EngineError> {
        promiscuous::join(self, self.device.index()).map_err(|error| self.device.failed(error))?;
        self.bind(libc::ETH_P_ALL as u16)
    }

    /// Makes the socket ready to send on the interface, without receiving.
    pub fn bind_to_send(&self) -> Result<(), EngineError> {
        self.bind(0)
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
        self.get(libc::PACKET_FANOUT, &mut found)?;
        Ok(found as u16)
    }

    /// Number of packets without room in the ring since the last call.
    pub fn missed(&self) -> u64 {
        // SAFETY: zeros are a valid value of this plain structure.
        let mut stats: libc::tpacket_stats_v3 = unsafe { zeroed() };
        match self.get(libc::PACKET_STATISTICS, &mut stats) {
            Ok(()) => stats.tp_drops.into(),
            Err(_) => 0,
        }
    }

    /// Clears the error that the interface went down.
    pub fn clear_error(&self) {
        let _error = rustix::net::sockopt::socket_error(&self.fd);
    }

    /// The interface.
    pub fn device(&self) -> &Device {
        &self.device
    }

    fn bind(&self, protocol: u16) -> Result<(), EngineError> {
        // SAFETY: zeros are a valid value of this plain structure.
        let mut address: sockaddr_ll = unsafe { zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol.to_be();
        address.sll_ifindex = self.device.index() as c_int;
        // SAFETY: the address is a sockaddr_ll of the given size.
        let failed = unsafe {
            libc::bind(self.fd.as_raw_fd(), (&raw const address).cast(), size_of::<sockaddr_ll>() as socklen_t)
        };
        if failed == 0 { Ok(()) } else { Err(self.failed()) }
    }

    fn set<T>(&self, option: c_int, value: &T) -> Result<(), EngineError> {
        self.set_at(libc::SOL_PACKET, option, value)
    }

    fn set_at<T>(&self, level: c_int, option: c_int, value: &T) -> Result<(), EngineError> {
        let bytes = size_of_val(value) as socklen_t;
        // SAFETY: `value` is readable for `bytes`.
        let failed = unsafe { libc::setsockopt(self.fd.as_raw_fd(), level, option, (&raw const *value).cast(), bytes) };
        if failed == 0 { Ok(()) } else { Err(self.failed()) }
    }

    /// Reads an option. `T` must be plain data: the kernel may write any bytes into it.
    fn get<T: Copy>(&self, option: c_int, value: &mut T) -> Result<(), EngineError> {
        let mut bytes = size_of::<T>() as socklen_t;
        // SAFETY: `value` is writable for `bytes`, and any bytes are a valid value of it.
        let failed = unsafe {
            libc::getsockopt(self.fd.as_raw_fd(), libc::SOL_PACKET, option, (&raw mut *value).cast(), &raw mut bytes)
        };
        if failed == 0 { Ok(()) } else { Err(self.failed()) }
    }

    fn failed(&self) -> EngineError {
        self.device.failed(io::Error::last_os_error())
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
