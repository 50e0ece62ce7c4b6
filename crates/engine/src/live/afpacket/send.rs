//! Packets on their way out of an interface: a burst of them in one system call.

use std::io;
use std::mem::zeroed;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::null_mut;

use libc::{iovec, mmsghdr};
use weir_abi::{BURST_MAX, Frame};

use crate::EngineError;
use crate::live::afpacket::ring::{Offload, VnetHeader};
use crate::live::afpacket::socket::Socket;
use crate::live::lane::{PortCounters, add};

/// Packets that wait for [`Outbox::send`]. Their bytes are in a ring that keeps them until then.
#[derive(Default)]
pub(super) struct Outbox {
    packets: Vec<(VnetHeader, Frame)>,
}

impl Outbox {
    /// Puts a packet in.
    ///
    /// # Panics
    /// If a burst is in there already.
    pub fn add(&mut self, frame: &Frame, offload: &Offload) {
        assert!(self.packets.len() < BURST_MAX, "at most a burst is sent at once");
        self.packets.push((offload.vnet, *frame));
    }

    /// Sends all packets. What the interface does not take is dropped and counted.
    pub fn send(&mut self, socket: &Socket, counters: &PortCounters) -> Result<(), EngineError> {
        if self.packets.is_empty() {
            return Ok(());
        }
        // A packet of which the ring has only the beginning cannot be sent.
        self.packets.retain(|(_, frame)| {
            let whole = frame.cap == frame.len;
            add(&counters.tx_too_long, u64::from(!whole));
            whole
        });
        let count = self.packets.len();
        let mut pieces = [[iovec { iov_base: null_mut(), iov_len: 0 }; 2]; BURST_MAX];
        // SAFETY: zeros are a valid value of this plain structure: no address, no control data.
        let mut messages: [mmsghdr; BURST_MAX] = unsafe { zeroed() };
        for ((pieces, message), (vnet, frame)) in pieces.iter_mut().zip(&mut messages).zip(&mut self.packets) {
            pieces[0] = iovec { iov_base: (&raw mut *vnet).cast(), iov_len: size_of::<VnetHeader>() };
            pieces[1] = iovec { iov_base: frame.data.cast_mut().cast(), iov_len: frame.cap as usize };
            message.msg_hdr.msg_iov = pieces.as_mut_ptr();
            message.msg_hdr.msg_iovlen = pieces.len();
        }
        let mut at = 0;
        while at < count {
            let left = &mut messages[at..count];
            // SAFETY: each message points to two pieces above, and those to a header in `self.packets` and a frame in a ring.
            let sent = unsafe {
                libc::sendmmsg(
                    socket.as_fd().as_raw_fd(),
                    left.as_mut_ptr(),
                    left.len() as u32,
                    libc::MSG_DONTWAIT as _,
                )
            };
            if sent > 0 {
                let bytes: u64 =
                    self.packets[at..at + sent as usize].iter().map(|(_, frame)| u64::from(frame.len)).sum();
                add(&counters.tx_packets, sent as u64);
                add(&counters.tx_bytes, bytes);
                at += sent as usize;
            } else {
                at += count_refused(socket, counters, count - at)?;
            }
        }
        self.packets.clear();
        Ok(())
    }
}

/// Counts why the first of `left` packets was refused. Returns how many there is no use in trying.
fn count_refused(socket: &Socket, counters: &PortCounters, left: usize) -> Result<usize, EngineError> {
    let source = io::Error::last_os_error();
    match source.raw_os_error() {
        Some(libc::EINTR) => Ok(0),
        Some(libc::EAGAIN | libc::ENOBUFS) => {
            add(&counters.tx_full, 1);
            Ok(1)
        }
        Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV) => {
            add(&counters.tx_link_down, left as u64);
            Ok(left)
        }
        // Too long, or of a form that the kernel does not send (an empty one, say).
        Some(libc::EMSGSIZE | libc::EINVAL) => {
            add(&counters.tx_too_long, 1);
            Ok(1)
        }
        _ => Err(EngineError::Interface { interface: socket.interface().to_owned(), source }),
    }
}
