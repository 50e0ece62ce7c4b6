//! A packet socket on one interface: the common part of sockets for packets and of sockets for control frames.

use std::io;
use std::mem::{size_of, size_of_val, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libc::{c_int, sock_filter, sock_fprog, sockaddr_ll, socklen_t};

use crate::EngineError;
use crate::live::os::device::Device;
use crate::live::os::promiscuous;

/// A packet socket, which receives nothing until it is bound to a protocol. What it sends passes no queue of the
/// interface and is not seen by other packet sockets, such as the sockets of DPDK's virtual ports. It does not receive
/// what others send.
pub(in crate::live) struct PacketSocket {
    fd: OwnedFd,
    device: Device,
}

impl PacketSocket {
    /// A socket for an interface, not yet bound to it.
    ///
    /// # Errors
    /// There is no such interface, or the process lacks the right to raw sockets (CAP_NET_RAW).
    pub fn open(interface: &str) -> Result<Self, EngineError> {
        let device = Device::open(interface)?;
        // SAFETY: the call takes no pointers.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0) };
        if fd < 0 {
            return Err(device.failed(io::Error::last_os_error()));
        }
        // SAFETY: the descriptor is new and not owned elsewhere.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let socket = PacketSocket { fd, device };
        socket.set(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &(1 as c_int))?;
        socket.set(libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, &(1 as c_int))?;
        Ok(socket)
    }

    /// The interface.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Lets what is sent pass the queue of the interface from now on. On the way the kernel cuts large packets for an
    /// interface that does not; without the queue it drops them. Other packet sockets see what is sent then.
    pub fn pass_queue(&self) -> Result<(), EngineError> {
        self.set(libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, &(0 as c_int))
    }

    /// Makes the interface promiscuous until the socket is closed.
    pub fn be_promiscuous(&self) -> Result<(), EngineError> {
        promiscuous::join(self, self.device.index()).map_err(|error| self.device.failed(error))
    }

    /// Binds it to the interface. It receives packets of this protocol (an EtherType, or ETH_P_ALL) from now on; with 0
    /// it only sends.
    pub fn bind(&self, protocol: u16) -> Result<(), EngineError> {
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

    /// Lets the socket receive only packets that a program of classic BPF accepts, in place of an earlier program.
    pub fn filter(&self, program: &[sock_filter]) -> Result<(), EngineError> {
        let length = program.len() as u16;
        // The kernel copies the program, and does not change it.
        let program = sock_fprog { len: length, filter: program.as_ptr().cast_mut() };
        self.set(libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
    }

    /// Lets the socket receive all packets again.
    pub fn end_filter(&self) -> Result<(), EngineError> {
        self.set(libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &(0 as c_int))
    }

    /// Sets an option. What `value` points to must live until the call returns.
    pub fn set<T>(&self, level: c_int, option: c_int, value: &T) -> Result<(), EngineError> {
        let bytes = size_of_val(value) as socklen_t;
        // SAFETY: `value` is readable for `bytes`.
        let failed = unsafe { libc::setsockopt(self.fd.as_raw_fd(), level, option, (&raw const *value).cast(), bytes) };
        if failed == 0 { Ok(()) } else { Err(self.failed()) }
    }

    /// Reads an option of packet sockets. `T` must be plain data: the kernel may write any bytes into it.
    pub fn get<T: Copy>(&self, option: c_int, value: &mut T) -> Result<(), EngineError> {
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

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
