//! What is known of a sender, and what a packet shows.

use serde::{Deserialize, Serialize};

/// What is known of the sender of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Proof {
    /// Nothing.
    None,
    /// Its own numbers continue since this time, ns.
    Plausible(u64),
    /// The packet is of a protocol without numbers, and answers pay for what its sender sends. It may be forged.
    Vouched(Voucher),
    /// The sender has received answers: it knows their sequence numbers.
    Real,
}

/// What vouches for a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Voucher {
    /// A few answers.
    Few,
    /// Few answers, but nearly as many as its packets.
    InTurn,
    /// Answers again and again.
    Settled,
    /// A question of the other side, which certainly came from there. The sender of a forged answer has guessed what
    /// was asked.
    Asked,
}

/// What a packet shows about its conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// What is known of the sender.
    pub proof: Proof,
    /// Whether this packet changed that.
    pub is_news: bool,
    /// Earlier packets of the sender in this window that had less proof when they came.
    pub redeemed: u32,
    /// What the packet is of a stream.
    pub stream: Stream,
    /// Bytes of TCP that the packet is the first to acknowledge, and bytes that its sender has sent since its last one.
    pub exchanged: u32,
}

/// What a packet is of a stream: packets of one source from one port to one port, with or without proof. One sender
/// does what a stream does, however many packets it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stream {
    /// It is of none.
    None,
    /// The first of a stream in this window. This many earlier packets of the window belong to it.
    First(u32),
    /// A further one.
    Further,
}

impl Standing {
    /// Nothing is known of the sender.
    pub const UNKNOWN: Standing =
        Standing { proof: Proof::None, is_news: false, redeemed: 0, stream: Stream::None, exchanged: 0 };
}
