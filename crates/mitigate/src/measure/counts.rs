//! What is counted for a prefix in a window.

use crate::prefix::Prefix;
use serde::{Deserialize, Serialize};
use weir_abi::PacketClass;

/// The counts of a prefix in one window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// The prefix.
    pub prefix: Prefix,
    /// Packets to it, by class.
    pub packets: [u64; PacketClass::COUNT],
    /// Bytes to it.
    pub bytes: u64,
    /// Packets to it of sources that have not proven that they are real, by class.
    pub unproven: [u64; PacketClass::COUNT],
    /// Further packets without proof, of streams, by class. They count as `unproven` unless they are spared.
    pub streamed: [u64; PacketClass::COUNT],
    /// Streams that they belong to.
    pub streams: u64,
    /// Datagrams among `streamed` that do not continue, and are spared because only one direction is seen.
    pub alone: u64,
    /// Packets to it of conversations that answers vouch for, by class. Their sources may be made up.
    pub vouched: [u64; PacketClass::COUNT],
    /// Packets among `vouched` that few answers vouch for, by class.
    pub briefly_vouched: [u64; PacketClass::COUNT],
    /// Packets to it whose source was never seen before.
    pub new_sources: u64,
    /// Packets from it.
    pub answers: u64,
    /// SYN-ACKs from it.
    pub syn_acks: u64,
    /// Classes whose packets were counted exactly, where others are estimates from samples.
    pub is_exact: [bool; PacketClass::COUNT],
}

impl Counts {
    /// No packet yet.
    pub fn new(prefix: Prefix) -> Self {
        let none = [0; PacketClass::COUNT];
        let is_exact = [false; PacketClass::COUNT];
        Counts {
            prefix,
            packets: none,
            bytes: 0,
            unproven: none,
            streamed: none,
            streams: 0,
            alone: 0,
            vouched: none,
            briefly_vouched: none,
            new_sources: 0,
            answers: 0,
            syn_acks: 0,
            is_exact,
        }
    }

    /// All packets to it.
    pub fn total(&self) -> u64 {
        self.packets.iter().sum()
    }

    /// All packets to it without proof.
    pub fn unproven_total(&self) -> u64 {
        self.unproven.iter().sum()
    }

    /// Whether estimates say nothing of it.
    pub fn is_exact(&self) -> bool {
        self.is_exact.iter().zip(self.packets).all(|(&is_exact, packets)| is_exact || packets == 0)
    }

    /// All packets to it that answers vouch for.
    pub fn vouched_total(&self) -> u64 {
        self.vouched.iter().sum()
    }

    /// Packets to it of sources that cannot be forged.
    pub fn certain_total(&self) -> u64 {
        self.proven_total().saturating_sub(self.vouched_total())
    }

    /// Packets to it of proven sources, and those that answers vouch for.
    pub fn proven_total(&self) -> u64 {
        self.total().saturating_sub(self.unproven_total() + self.streamed_total())
    }

    /// All packets to it of streams without proof, apart from `unproven`.
    pub fn streamed_total(&self) -> u64 {
        self.streamed.iter().sum()
    }

    /// Packets of a class of proven sources, and those that answers vouch for.
    pub fn proven(&self, class: PacketClass) -> u64 {
        let class = class as usize;
        self.packets[class].saturating_sub(self.unproven[class] + self.streamed[class])
    }
}
