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
    pub(super) fn unless_refused(self, leaving: impl FnOnce() -> Leaving) -> Self {
        if self.refused.is_some() { self } else { self.leaving(leaving()) }
    }

    pub(super) fn leaving(self, leaving: Leaving) -> Self {
        Tracked { leaving: Some(leaving), ..self }
    }
}
