//! What a SYN proxy does, simulated on recordings.

use serde::{Deserialize, Serialize};

/// The handshake of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Handshake(u64);

impl Handshake {
    /// The handshake of the conversation with a key.
    pub(crate) fn of_key(key: u64) -> Self {
        Handshake(key)
    }
}

/// Whether packets of TCP pass a SYN proxy that belong to no connection, because it may be older than the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Pickup {
    /// Such packets pass: only SYNs need a handshake.
    On,
    /// Such packets are refused.
    Off,
}

/// What a SYN proxy does with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proxied {
    /// The packet is a SYN, which the proxy answers. The host gets it if the handshake completes.
    Waits(Handshake),
    /// The packet belongs to no connection, or is a SYN that was repeated too often.
    Refused,
    /// The packet passes, and so do the SYNs of its connection, because the handshake is complete.
    Completes {
        /// The handshake.
        handshake: Handshake,
        /// How many SYNs have waited.
        syns: u32,
        /// Whether it belongs to a conversation of a proven source.
        is_proven: bool,
    },
    /// The packet passes.
    Passes {
        /// Whether it belongs to a conversation of a proven source.
        is_proven: bool,
    },
}
