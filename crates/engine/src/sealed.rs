//! Frames from a card: which seals are known, and what a frame is (`docs/card-layout.md`).
//!
//! A card appends a trailer to each frame: a body of answers, and the seal. The front of a datapath compares the last
//! eight bytes of each frame with the seals that it knows, removes the trailer, and chooses the chain. Nothing behind it
//! sees trailers, but the chain that reads the body. `weir_card::receive` is the reference.

use std::sync::mpsc::SyncSender;

/// A configuration of a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Configured {
    /// The epoch.
    pub epoch: u16,
    /// Bytes of the body.
    pub body: u8,
}

/// The chain of a policy that reads answers, and the configuration of the card that gives them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answered {
    /// Index of the chain.
    pub chain: usize,
    /// The configuration.
    pub configured: Configured,
}

/// What happens to frames without a seal of the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WithoutSeal {
    /// The card has perhaps no configuration yet, so nothing was appended: the plain chain decides the frame as it is.
    Alone,
    /// The card has answered the first commit: the frame is dropped and counted as `unsealed`.
    Drop,
}

/// A card in front of an interface, as the datapath knows it.
#[derive(Clone, Debug)]
pub struct CardPort {
    /// The card's secret, 40 bits.
    pub token: u64,
    /// Configurations whose frames may arrive, besides that of the active policy: at most [`CardPort::KNOWN_MAX`].
    pub known: Vec<Configured>,
    /// What happens to other frames.
    pub without_seal: WithoutSeal,
    /// Where workers put the card's answers to control frames, without their seals; a frame without room is lost.
    /// Programs in the kernel pass these frames up instead, with their seals: a raw socket on the interface receives
    /// them.
    pub control: Option<SyncSender<Vec<u8>>>,
}

impl CardPort {
    /// Most configurations besides that of the active policy.
    pub const KNOWN_MAX: usize = 4;
}
