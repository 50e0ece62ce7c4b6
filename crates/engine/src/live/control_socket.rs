//! A packet socket for control frames to and from a card on an interface (`docs/card-layout.md`).
//!
//! The kernel gives it answers only: frames with the EtherType of control frames and, eight bytes before their end, a
//! seal with the control bit. Nobody else can send these through a card that appends seals, so a flood does not fill its
//! queue.

use std::io;
use std::mem::{size_of, size_of_val, zeroed};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use libc::{c_int, sock_filter, sock_fprog, sockaddr_ll, socklen_t};
use weir_abi::card::{SEAL_BYTES, control};

use crate::EngineError;
use crate::live::device::Device;
use crate::live::lane::poll_sockets;
use crate::live::promiscuous;

/// The byte of a seal that has the control bit, from the end of the frame.
const FLAGS_FROM_END: u32 = SEAL_BYTES as u32 - 2;
const CONTROL_BIT: u32 = 0x80;

/// The socket.
pub struct ControlSocket {
    fd: OwnedFd,
    device: Device,
}

/// An instruction of classic BPF.
const fn instruction(code: u32, jt: u8, jf: u8, k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt, jf, k }
}

/// Accepts frames whose seal has the control bit. A load outside of the frame refuses it.
const ANSWERS: [sock_filter; 7] = [
    instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_LEN, 0, 0, 0),
    instruction(libc::BPF_ALU | libc::BPF_SUB | libc::BPF_K, 0, 0, FLAGS_FROM_END),
    instruction(libc::BPF_MISC | libc::BPF_TAX, 0, 0, 0),
    instruction(libc::BPF_LD | libc::BPF_B | libc::BPF_IND, 0, 0, 0),
    instruction(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, 0, 1, CONTROL_BIT),
    // The number of bytes that the socket gets.
    instruction(libc::BPF_RET | libc::BPF_K, 0, 0, u32::MAX),
    instruction(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
];

impl ControlSocket {
    /// Opens a socket on an interface, which is promiscuous from now on.
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
        let socket = ControlSocket { fd, device };
        socket.set(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &(1 as c_int))?;
        // What is sent so is not seen by other packet sockets, such as those of DPDK's virtual ports.
        socket.set(libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, &(1 as c_int))?;
        let mut program = ANSWERS;
        let filter = sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
        socket.set(libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &filter)?;
        promiscuous::join(&socket.fd, socket.device.index()).map_err(|error| socket.device.failed(error))?;
        socket.bind()?;
        Ok(socket)
    }

    /// The MTU of the interface.
    ///
    /// # Errors
    /// The interface is gone.
    pub fn mtu(&self) -> Result<u32, EngineError> {
        self.device.mtu()
    }

    /// Sends a frame. It is lost if the interface has no room for it, as on the wire.
    ///
    /// # Errors
    /// The interface is gone.
    pub fn send(&self, frame: &[u8]) -> Result<(), EngineError> {
        // SAFETY: the frame is readable for its length.
        let sent = unsafe { libc::send(self.fd.as_raw_fd(), frame.as_ptr().cast(), frame.len(), libc::MSG_DONTWAIT) };
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            _ if sent >= 0 => Ok(()),
            Some(libc::EAGAIN | libc::ENOBUFS | libc::ENETDOWN | libc::EINTR) => Ok(()),
            _ => Err(self.device.failed(error)),
        }
    }

    /// Receives an answer with its seal, if there is one now.
    ///
    /// # Errors
    /// The interface is gone.
    pub fn receive<'b>(&self, buffer: &'b mut [u8]) -> Result<Option<&'b [u8]>, EngineError> {
        // SAFETY: the buffer is writable for its length.
        let got =
            unsafe { libc::recv(self.fd.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), libc::MSG_DONTWAIT) };
        if got >= 0 {
            return Ok(Some(&buffer[..got as usize]));
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EINTR | libc::ENETDOWN) => Ok(None),
            _ => Err(self.device.failed(error)),
        }
    }

    /// Waits for an answer, up to `timeout`.
    ///
    /// # Errors
    /// The kernel cannot wait.
    pub fn wait(&self, timeout: Duration) -> Result<(), EngineError> {
        poll_sockets([self.fd.as_fd()].into_iter(), timeout).map(drop)
    }

    fn bind(&self) -> Result<(), EngineError> {
        // SAFETY: zeros are a valid value of this plain structure.
        let mut address: sockaddr_ll = unsafe { zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = control::ETHER_TYPE.to_be();
        address.sll_ifindex = self.device.index() as c_int;
        // SAFETY: the address is a sockaddr_ll of the given size.
        let failed = unsafe {
            libc::bind(self.fd.as_raw_fd(), (&raw const address).cast(), size_of::<sockaddr_ll>() as socklen_t)
        };
        if failed == 0 { Ok(()) } else { Err(self.device.failed(io::Error::last_os_error())) }
    }

    fn set<T>(&self, level: c_int, option: c_int, value: &T) -> Result<(), EngineError> {
        let bytes = size_of_val(value) as socklen_t;
        // SAFETY: `value` is readable for `bytes`, and what it points to lives as long.
        let failed = unsafe { libc::setsockopt(self.fd.as_raw_fd(), level, option, (&raw const *value).cast(), bytes) };
        if failed == 0 { Ok(()) } else { Err(self.device.failed(io::Error::last_os_error())) }
    }
}
