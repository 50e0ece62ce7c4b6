//! What the tracker says of a packet.

use crate::ir::PacketState;
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
    pub(in crate::ir::eval) leaving: Option<Vec<u8>>,
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
        Tracked { state, refused: None, opening: None, leaving: None }
    }

    pub(super) fn refused(reason: Reason) -> Self {
        Tracked { refused: Some(reason), ..Tracked::of(PacketState::Invalid) }
    }

    pub(super) fn opens(key: FlowKey, flow: Flow, proxied: Option<Proxied>) -> Self {
        Tracked { opening: Some(Opening { key, flow, proxied }), ..Tracked::of(PacketState::New) }
    }

    /// What a packet that passes becomes.
    pub(super) fn unless_refused(self, bytes: impl FnOnce() -> Vec<u8>) -> Self {
        if self.refused.is_some() { self } else { self.leaving(bytes()) }
    }

    pub(super) fn leaving(self, bytes: Vec<u8>) -> Self {
        Tracked { leaving: Some(bytes), ..self }
    }
}
