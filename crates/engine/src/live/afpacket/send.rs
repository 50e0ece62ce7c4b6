//! Sends a burst of packets out of an interface in one system call.

use std::io;
use std::mem::zeroed;
use std::os::fd::{AsFd, AsRawFd};

use libc::{iovec, mmsghdr};
use weir_abi::{BURST_MAX, Frame};

use crate::EngineError;
use crate::live::afpacket::ring::{Offload, VnetHeader};
use crate::live::afpacket::socket::Socket;
use crate::live::lane::{PortCounters, add};
use crate::live::os::carrier::{Carrier, State};

/// A packet's header for the kernel, its length, and the end of its pieces in [`Outbox::pieces`].
struct Packet {
    vnet: VnetHeader,
    bytes: u32,
    end: usize,
}

/// Packets queued for [`Outbox::send`]. Their bytes stay in a receive ring until then.
#[derive(Default)]
pub(in crate::live) struct Outbox {
    packets: Vec<Packet>,
    /// The packets' buffers, in order.
    pieces: Vec<iovec>,
    /// The kernel's input: each packet's header and pieces. Kept to reuse its capacity.
    gather: Vec<iovec>,
    carrier: Carrier,
    segments: Segments,
}

/// What cuts large packets into segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Segments {
    /// The interface, as far as is known.
    #[default]
    Interface,
    /// The kernel, because the interface has refused a large packet.
    Kernel,
}

impl Outbox {
    /// Queues a packet in one or more pieces.
    ///
    /// # Panics
    /// Panics if a whole burst is queued already.
    pub fn add(&mut self, pieces: impl IntoIterator<Item = Frame>, offload: &Offload) {
        assert!(self.packets.len() < BURST_MAX, "at most a burst is sent at once");
        let mut bytes = 0;
        for piece in pieces {
            bytes += piece.cap;
            self.pieces.push(iovec { iov_base: piece.data.cast_mut().cast(), iov_len: piece.cap as usize });
        }
        self.packets.push(Packet { vnet: offload.vnet, bytes, end: self.pieces.len() });
    }

    /// Sends all packets. Packets that the interface refuses are dropped and counted.
    pub fn send(&mut self, socket: &Socket, counters: &PortCounters) -> Result<(), EngineError> {
        let count = self.packets.len();
        if count == 0 {
            return Ok(());
        }
        // SAFETY: zeros are a valid value of this plain structure: no address, no control data.
        let mut messages: [mmsghdr; BURST_MAX] = unsafe { zeroed() };
        self.fill(&mut messages);
        let mut at = 0;
        while at < count {
            let left = &mut messages[at..count];
            // SAFETY: each message points to its pieces in `gather`, which point to a header in `packets` and to frames
            // in a ring.
            let sent = unsafe {
                libc::sendmmsg(
                    socket.as_fd().as_raw_fd(),
                    left.as_mut_ptr(),
                    left.len() as u32,
                    libc::MSG_DONTWAIT as _,
                )
            };
            if sent > 0 {
                let sent = &self.packets[at..at + sent as usize];
                add(&counters.tx_packets, sent.len() as u64);
                add(&counters.tx_bytes, sent.iter().map(|packet| u64::from(packet.bytes)).sum());
                at += sent.len();
            } else {
                at += self.count_refused(socket, counters, at)?;
            }
        }
        self.packets.clear();
        self.pieces.clear();
        Ok(())
    }

    /// Makes each message point to a packet.
    fn fill(&mut self, messages: &mut [mmsghdr; BURST_MAX]) {
        self.gather.clear();
        // The vector must not be reallocated while messages point into it.
        self.gather.reserve(self.pieces.len() + self.packets.len());
        let mut from = 0;
        for (packet, message) in self.packets.iter_mut().zip(messages) {
            let start = self.gather.len();
            self.gather.push(iovec { iov_base: (&raw mut packet.vnet).cast(), iov_len: size_of::<VnetHeader>() });
            self.gather.extend_from_slice(&self.pieces[from..packet.end]);
            from = packet.end;
            let own = &mut self.gather[start..];
            message.msg_hdr.msg_iovlen = own.len();
            message.msg_hdr.msg_iov = own.as_mut_ptr();
        }
    }

    /// Counts why the packet at an index was refused. Returns the number of packets to give up; 0 to send it again.
    fn count_refused(&mut self, socket: &Socket, counters: &PortCounters, at: usize) -> Result<usize, EngineError> {
        let source = io::Error::last_os_error();
        let left = self.packets.len() - at;
        let (counter, refused) = match source.raw_os_error() {
            Some(libc::EINTR) => return Ok(0),
            // The socket reports once that the interface was down; it is up again.
            Some(libc::ENETDOWN) if self.carrier.look(socket.device())? == State::Up => return Ok(0),
            Some(libc::EAGAIN | libc::ENOBUFS | libc::ENETDOWN | libc::ENXIO | libc::ENODEV) => {
                // The kernel returns the same error for a full queue and for a link that is down.
                match self.carrier.after_refusal(socket.device())? {
                    // Also for an interface that does not cut a large packet.
                    State::Up if self.packets[at].vnet.is_segmented() && self.segments == Segments::Interface => {
                        socket.let_kernel_segment()?;
                        self.segments = Segments::Kernel;
                        return Ok(0);
                    }
                    State::Up => (&counters.tx_full, 1),
                    State::Down => (&counters.tx_link_down, left),
                }
            }
            // Too long, or of a form that the kernel does not send, such as an empty packet.
            Some(libc::EMSGSIZE | libc::EINVAL) => (&counters.tx_too_long, 1),
            _ => return Err(socket.device().failed(source)),
        };
        add(counter, refused as u64);
        Ok(refused)
    }
}
