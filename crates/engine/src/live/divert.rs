//! The divert interface, which receives diverted packets and samples. Nothing is received from it.
//!
//! It is a raw socket on every engine. Any interface will do (a tunnel to another scrubber, the tap of an analyser),
//! without a queue for each worker or a driver with XDP. The kernel copies each packet once.

use std::sync::Arc;

use weir_abi::{Action, Frame, Verdict};

use crate::EngineError;
use crate::live::afpacket::ring::Offload;
use crate::live::afpacket::send::Outbox;
use crate::live::afpacket::socket::Socket;
use crate::live::lane::{PortCounters, Role, add};

/// A worker's outgoing socket for diverted packets and samples.
pub(super) struct Divert {
    socket: Socket,
    outbox: Outbox,
    counters: Arc<PortCounters>,
}

impl Divert {
    /// Opens the interface for sending.
    ///
    /// # Errors
    /// There is no such interface, or the process lacks the right to raw sockets (CAP_NET_RAW).
    pub fn open(interface: &str) -> Result<Self, EngineError> {
        let socket = Socket::open(interface)?;
        socket.bind_to_send()?;
        let counters = PortCounters::new(interface, socket.device().index(), Role::Divert);
        Ok(Divert { socket, outbox: Outbox::default(), counters })
    }

    /// Queues a packet that arrived at a port, if its verdict says so. A diverted packet is not queued again as a
    /// sample.
    pub fn take(
        divert: Option<&mut Divert>,
        verdict: Verdict,
        port: &PortCounters,
        pieces: impl IntoIterator<Item = Frame>,
        offload: &Offload,
    ) {
        let diverted = verdict.action() == Some(Action::Divert);
        match divert {
            Some(divert) if diverted || verdict.sampled() => {
                divert.outbox.add(pieces, offload);
                add(&port.sampled, u64::from(!diverted));
            }
            None if diverted => add(&port.no_divert, 1),
            _ => {}
        }
    }

    /// Sends the queued packets. This must precede the release of their memory.
    pub fn send(&mut self) -> Result<(), EngineError> {
        self.outbox.send(&self.socket, &self.counters)
    }

    /// Counters of sent packets.
    pub fn counters(&self) -> &Arc<PortCounters> {
        &self.counters
    }
}
