//! A packet socket for control frames to and from a card on an interface (`docs/reference/card-layout.md`).
//!
//! The kernel gives it answers only: frames with the EtherType of control frames and, eight bytes before their end, a
//! seal with the control bit. Only the card can send such frames, because it appends its own seals to all others. So a
//! flood does not fill the socket's queue.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use libc::sock_filter;
use weir_abi::card::{SEAL_BYTES, control};

use crate::EngineError;
use crate::live::lane::poll_sockets;
use crate::live::os::packet_socket::PacketSocket;

/// The byte of a seal that has the control bit, from the end of the frame.
const FLAGS_FROM_END: u32 = SEAL_BYTES as u32 - 2;
const CONTROL_BIT: u32 = 0x80;

/// The socket.
pub struct ControlSocket(PacketSocket);

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
        let socket = PacketSocket::open(interface)?;
        socket.filter(&ANSWERS)?;
        socket.be_promiscuous()?;
        socket.bind(control::ETHER_TYPE)?;
        Ok(ControlSocket(socket))
    }

    /// The MTU of the interface.
    ///
    /// # Errors
    /// The interface is gone.
    pub fn mtu(&self) -> Result<u32, EngineError> {
        self.0.device().mtu()
    }

    /// Sends a frame. It is lost if the interface has no room for it, as on the wire.
    ///
    /// # Errors
    /// The interface is gone.
    pub fn send(&self, frame: &[u8]) -> Result<(), EngineError> {
        // SAFETY: the frame is readable for its length.
        let sent =
            unsafe { libc::send(self.0.as_fd().as_raw_fd(), frame.as_ptr().cast(), frame.len(), libc::MSG_DONTWAIT) };
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            _ if sent >= 0 => Ok(()),
            Some(libc::EAGAIN | libc::ENOBUFS | libc::ENETDOWN | libc::EINTR) => Ok(()),
            _ => Err(self.0.device().failed(error)),
        }
    }

    /// Receives an answer with its seal, if there is one now.
    ///
    /// # Errors
    /// The interface is gone.
    pub fn receive<'b>(&self, buffer: &'b mut [u8]) -> Result<Option<&'b [u8]>, EngineError> {
        // SAFETY: the buffer is writable for its length.
        let got = unsafe {
            libc::recv(self.0.as_fd().as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), libc::MSG_DONTWAIT)
        };
        if got >= 0 {
            return Ok(Some(&buffer[..got as usize]));
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EINTR | libc::ENETDOWN) => Ok(None),
            _ => Err(self.0.device().failed(error)),
        }
    }

    /// Waits for an answer, up to `timeout`.
    ///
    /// # Errors
    /// The kernel cannot wait.
    pub fn wait(&self, timeout: Duration) -> Result<(), EngineError> {
        poll_sockets([self.0.as_fd()].into_iter(), timeout).map(drop)
    }
}
