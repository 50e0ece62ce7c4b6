//! Where exported packets come from.

use weir_abi::{Link, Verdict};
use weir_engine::live::Side;

/// A packet that was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecidedPacket<'a> {
    /// Its first bytes.
    pub bytes: &'a [u8],
    /// How it begins.
    pub link: Link,
    /// Bytes of the whole packet.
    pub wire_len: u32,
    /// The side from which it came.
    pub from: Side,
    /// What was decided, and why.
    pub verdict: Verdict,
    /// The place of the rule that decided, if it is known.
    pub at: Option<&'a str>,
    /// When, in milliseconds of the clock of [`weir_state::now_ns`].
    pub at_ms: u64,
}

/// Copies of decided packets, in the order in which they were decided. A source is bounded and loses copies without
/// room.
pub trait DecidedPackets: Send {
    /// The next copy; `None` if there is none now.
    fn next(&mut self) -> Option<DecidedPacket<'_>>;

    /// Number of chosen packets since the start that were not copied.
    fn lost(&self) -> u64;
}
