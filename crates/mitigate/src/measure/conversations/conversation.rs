//! One conversation: what its two sides have sent, and what that says of them.

use super::standing::{Proof, Voucher};
use super::turns::Turns;
use serde::{Deserialize, Serialize};

/// A proven conversation keeps its value for this long without packets: above the usual keep-alive of 75 s.
pub const IDLE_NS: u64 = 120 * SECOND_NS;
/// For this long nothing new takes its place. So there is room for this many new clients a second: the capacity
/// divided by it.
const HELD_NS: u64 = 10 * SECOND_NS;
/// A conversation without proof keeps its place for this long, a few round trips and one retransmission.
const EMBRYO_NS: u64 = 5 * SECOND_NS;
/// Packets for each answer of clients and servers that take turns.
const PACKETS_IN_TURN: u32 = 2;
/// Packets from one port to one port that are a stream. Made-up sources and ports seldom meet twice.
const STREAM_MIN: u32 = 8;
/// Steps of its own numbers after which a source counts as real where only one direction is seen. A handshake is one.
pub const STEPS: u8 = 3;
const SECOND_NS: u64 = 1_000_000_000;

/// What one side of a conversation has sent.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Party {
    /// Its packets that were received.
    pub packets: u32,
    /// Its packets that actions dropped. They were not received, so they change nothing else.
    pub dropped: u32,
    /// The first and the next sequence number of TCP, and the last acknowledgement.
    pub first: u32,
    pub next: u32,
    pub acked: u32,
    /// Its highest acknowledgement; `None` before the first one.
    pub covered: Option<u32>,
    /// Bytes that it was seen to send and that are not acknowledged, an estimate of all that it has sent.
    pub unacknowledged: u32,
    /// Steps in which its numbers continued.
    pub steps: u8,
    /// Whether its numbers are known.
    pub has_begun: bool,
    /// Whether numbers of the other side came back.
    pub is_real: bool,
    /// Whether it has sent FIN or RST.
    pub has_ended: bool,
    /// Since when it is plausible, ns.
    pub plausible_ns: Option<u64>,
    /// Its packets in the current window that had no proof yet.
    pub pending: u32,
    /// The last window in which it was counted as a stream.
    pub stream_window: u64,
    /// SYNs that a SYN proxy has answered, until a proof.
    pub waiting: u32,
    /// What answers pay for, without numbers.
    pub turns: Turns,
}

/// Two sides that send each other packets.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Conversation {
    /// The hash of its addresses, ports and protocol.
    pub key: u64,
    /// When its last packet was received, ns.
    pub last_ns: u64,
    /// The window in which `pending` was counted.
    pub window: u64,
    /// The lower endpoint, and the other one.
    pub sides: [Party; 2],
    /// The side that sent what was received first, and whether it is known from where that came.
    pub asker: usize,
    pub is_asker_known: bool,
}

impl Conversation {
    /// A conversation whose first packet comes now.
    pub fn new(key: u64, window: u64, asker: usize, now_ns: u64) -> Self {
        let sides = [Party::default(); 2];
        Conversation { key, last_ns: now_ns, window, sides, asker, is_asker_known: false }
    }

    /// What its place is worth: nothing if it is idle, more if it is a stream, still more if it is answered, most if
    /// the asker is real. A host answers made-up askers too, so answers alone must not fill the table, nor must what
    /// answers vouch for.
    pub fn value(&self, now_ns: u64) -> u64 {
        let idle_ns = now_ns.saturating_sub(self.last_ns);
        let is_stream = self.sides.iter().any(Party::is_stream);
        let is_answered = self.sides[1 - self.asker].has_proof();
        let is_settled = self.sides.iter().any(|side| side.turns.is_settled(now_ns));
        let has_ended = self.sides.iter().all(|side| side.has_ended);
        let at = |eighths: u64| u64::MAX / 8 * eighths + self.last_ns / 8;
        match self.sides[self.asker].is_real && !has_ended {
            true if idle_ns <= HELD_NS => u64::MAX,
            true if idle_ns <= IDLE_NS => at(7),
            false if is_settled && idle_ns <= IDLE_NS => at(6),
            false if is_answered && !has_ended && idle_ns <= IDLE_NS => at(5),
            false if is_stream && !has_ended && idle_ns <= EMBRYO_NS => at(4),
            false if idle_ns <= EMBRYO_NS => self.last_ns / 4,
            _ => 0,
        }
    }

    /// What the numbers of a side say of it. That they continue says nothing where the other side is seen, and what it
    /// has sent does not prove the source.
    pub fn numbers(&self, side: usize) -> Proof {
        let (own, other) = (&self.sides[side], &self.sides[1 - side]);
        match (own.is_real, own.plausible_ns) {
            (true, _) => Proof::Real,
            (false, Some(since_ns)) if other.packets == 0 => Proof::Plausible(since_ns),
            (false, _) => Proof::None,
        }
    }

    /// Whether a side is answered nearly as often as it sends.
    pub fn is_in_turn(&self, side: usize) -> bool {
        let (own, other) = (&self.sides[side], &self.sides[1 - side]);
        own.packets.saturating_add(own.dropped) < other.packets.saturating_mul(PACKETS_IN_TURN)
    }

    /// What vouches for a side.
    pub fn voucher(&self, side: usize, now_ns: u64) -> Voucher {
        match self.asker != side && self.is_asker_known {
            true => Voucher::Asked,
            false if self.sides[side].turns.is_settled(now_ns) => Voucher::Settled,
            false if self.is_in_turn(side) => Voucher::InTurn,
            false => Voucher::Few,
        }
    }
}

impl Party {
    /// Whether it has sent so many packets, received or not, that it is a stream.
    pub fn is_stream(&self) -> bool {
        self.packets.saturating_add(self.dropped) >= STREAM_MIN
    }

    /// Whether anything shows that it has received something.
    pub fn has_proof(&self) -> bool {
        self.is_real || self.turns.is_vouched()
    }
}
