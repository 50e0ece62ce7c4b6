//! What is counted for a prefix in a window.

use crate::class::Class;
use crate::prefix::Prefix;

/// The counts of a prefix in one window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// The prefix.
    pub prefix: Prefix,
    /// Packets to it, by class.
    pub packets: [u64; Class::COUNT],
    /// Bytes to it.
    pub bytes: u64,
    /// Packets to it of sources that have not proven that they are real, by class.
    pub unproven: [u64; Class::COUNT],
    /// Packets to it whose source was never seen before.
    pub new_sources: u64,
    /// Packets from it.
    pub answers: u64,
    /// SYN-ACKs from it.
    pub syn_acks: u64,
}

impl Counts {
    /// No packet yet.
    pub fn new(prefix: Prefix) -> Self {
        let none = [0; Class::COUNT];
        Counts { prefix, packets: none, bytes: 0, unproven: none, new_sources: 0, answers: 0, syn_acks: 0 }
    }

    /// All packets to it.
    pub fn total(&self) -> u64 {
        self.packets.iter().sum()
    }

    /// All packets to it without proof.
    pub fn unproven_total(&self) -> u64 {
        self.unproven.iter().sum()
    }

    /// Packets to it of proven sources.
    pub fn proven_total(&self) -> u64 {
        self.total().saturating_sub(self.unproven_total())
    }
}
