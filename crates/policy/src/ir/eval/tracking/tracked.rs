//! What the tracker says of a packet.

use crate::ir::PacketState;
use crate::ir::eval::rewrite::Leaving;
use weir_abi::Reason;
use weir_abi::flow::{Flow, FlowKey, Proxied};

/// What the tracker says of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::ir::eval) struct Tracked {
    /// Its state.
    pub(in crate::ir::eval) state: PacketState,
    /// Why it is invalid.
    pub(in crate::ir::eval) refused: Option<Reason>,
    /// The flow that it opens if it is accepted.
    pub(super) opening: Option<Opening>,
    /// What leaves in its place if it is accepted.
    pub(in crate::ir::eval) leaving: Option<Leaving>,
    /// Present if it is a SYN that was not refused. The SYN proxy counts it.
    pub(super) asking: Option<Asking>,
}

/// A SYN that reaches the SYN proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asking {
    pub(super) key: FlowKey,
    pub(super) client: usize,
    /// Whether it opens a connection, or might as well.
    pub(super) may_be_answered: bool,
}

/// A flow to enter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Opening {
    pub(super) key: FlowKey,
    pub(super) flow: Flow,
    /// Present if it is proxied.
    pub(super) proxied: Option<Proxied>,
}

impl Tracked {
    pub(super) const UNTRACKED: Tracked = Tracked::of(PacketState::Untracked);

    pub(super) const fn of(state: PacketState) -> Self {
        Tracked { state, refused: None, opening: None, leaving: None, asking: None }
    }

    pub(super) fn refused(reason: Reason) -> Self {
        Tracked { refused: Some(reason), ..Tracked::of(PacketState::Invalid) }
    }

    pub(super) fn opens(key: FlowKey, flow: Flow, proxied: Option<Proxied>) -> Self {
        Tracked { opening: Some(Opening { key, flow, proxied }), ..Tracked::of(PacketState::New) }
    }

    /// What a packet that passes becomes.
    pub(super) fn unless_refused(self, leaving: impl FnOnce() -> Leaving) -> Self {
        if self.refused.is_some() { self } else { self.leaving(leaving()) }
    }

    /// A SYN of a client, unless it was refused.
    pub(super) fn asking(self, key: FlowKey, client: usize, may_be_answered: bool) -> Self {
        let asking = self.refused.is_none().then_some(Asking { key, client, may_be_answered });
        Tracked { asking, ..self }
    }

    pub(super) fn leaving(self, leaving: Leaving) -> Self {
        Tracked { leaving: Some(leaving), ..self }
    }
}
