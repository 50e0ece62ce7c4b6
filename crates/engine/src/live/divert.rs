//! Where diverted packets and samples go: an interface of its own, that nothing is received from.
//!
//! A raw socket on every engine, so that it can be any interface (a tunnel to another scrubber, a tap of an analyser) and needs neither a queue
//! for each worker nor a driver that knows XDP. The packet is copied once, by the kernel.

use std::sync::Arc;

use weir_abi::{Action, Frame, Verdict};

use crate::EngineError;
use crate::live::afpacket::{Offload, Outbox, Socket};
use crate::live::lane::{PortCounters, Role, add};

/// A worker's way out for packets that are diverted, and for copies.
pub(super) struct Divert {
    socket: Socket,
    outbox: Outbox,
    counters: Arc<PortCounters>,
}

impl Divert {
    /// The way out of an interface.
    ///
    /// # Errors
    /// There is none, or no right to raw sockets (CAP_NET_RAW).
    pub fn open(interface: &str) -> Result<Self, EngineError> {
        let socket = Socket::open(interface)?;
        socket.bind_to_send()?;
        let counters = PortCounters::new(interface, socket.device().index(), Role::Divert);
        Ok(Divert { socket, outbox: Outbox::default(), counters })
    }

    /// Takes a packet that came in at a port, if its verdict says so. One that is diverted is a sample already and not taken twice.
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

    /// Sends what was taken. Must come before the packets' memory is given back.
    pub fn send(&mut self) -> Result<(), EngineError> {
        self.outbox.send(&self.socket, &self.counters)
    }

    /// What was sent.
    pub fn counters(&self) -> &Arc<PortCounters> {
        &self.counters
    }
}
