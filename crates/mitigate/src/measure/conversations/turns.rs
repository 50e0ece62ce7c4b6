//! What answers pay for, where no sequence numbers show that a sender has received them.
//!
//! An attacker who knows two addresses and ports can forge a datagram of their conversation, and a host answers forged
//! questions too. So an answer never proves a source. It vouches for a number of the source's next packets, for some
//! seconds. This bounds what a forged conversation is worth by what the protected host itself sends.

use serde::{Deserialize, Serialize};

const SECOND_NS: u64 = 1_000_000_000;
/// An answer pays for packets of this time, if every packet is seen. Clients of a service that is in use are answered
/// more often.
pub const PAID_NS: u64 = 10 * SECOND_NS;
/// Packets that are paid for at once, at most.
const CREDIT_MAX: u32 = 256;
/// A conversation is settled after this many answers to something new.
const SETTLED_TURNS: u32 = 8;

/// How much an answer pays for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Pay {
    /// Echo replies: each request has one, and networks double few.
    Echo,
    /// Datagrams of a new conversation, and of a settled one.
    Datagrams,
}

impl Pay {
    fn packets(self, is_settled: bool) -> u32 {
        match self {
            Pay::Echo => 2,
            Pay::Datagrams if is_settled => 64,
            Pay::Datagrams => 16,
        }
    }

    fn most(self) -> u32 {
        match self {
            Pay::Echo => 16,
            Pay::Datagrams => CREDIT_MAX,
        }
    }
}

/// What one side of a conversation has been paid for.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Turns {
    /// Its packets that are paid for, and until when.
    credit: u32,
    until_ns: u64,
    /// Whether it has sent something since then, and since when nothing of it was the first behind an answer.
    has_spoken: bool,
    is_fresh: bool,
    /// Answers to something new.
    turns: u32,
    /// Whether a packet was ever paid for.
    is_vouched: bool,
}

impl Turns {
    /// The other side sends a packet, which pays for packets of some time.
    pub fn earn(&mut self, pay: Pay, now_ns: u64, paid_ns: u64) {
        // A side without answers for some time begins anew.
        if self.is_stale(now_ns) {
            (self.credit, self.turns) = (0, 0);
        }
        self.turns = self.turns.saturating_add(u32::from(std::mem::take(&mut self.has_spoken)));
        self.credit = (self.credit + pay.packets(self.is_settled(now_ns))).min(pay.most());
        (self.until_ns, self.is_fresh) = (now_ns.saturating_add(paid_ns), true);
    }

    /// This side sends a packet. Returns whether an answer pays for it.
    pub fn spend(&mut self, now_ns: u64) -> bool {
        self.has_spoken = true;
        if !self.has_credit(now_ns) {
            return false;
        }
        self.credit -= 1;
        self.is_vouched = true;
        true
    }

    /// Redeems at most so many earlier packets of this side. Returns how many its credit pays for.
    pub fn redeem(&mut self, packets: u32) -> u32 {
        let redeemed = packets.min(self.credit);
        self.credit -= redeemed;
        redeemed
    }

    /// Whether its packet is the first behind an answer. A question has one answer at least, and a rule that drops it
    /// does harm. Further packets may be forged.
    pub fn take_fresh(&mut self) -> bool {
        std::mem::take(&mut self.is_fresh)
    }

    /// Whether an answer pays for its next packet.
    pub fn has_credit(&self, now_ns: u64) -> bool {
        self.credit > 0 && !self.is_stale(now_ns)
    }

    /// Whether it was ever paid for.
    pub fn is_vouched(&self) -> bool {
        self.is_vouched
    }

    /// Whether it has been answered again and again.
    pub fn is_settled(&self, now_ns: u64) -> bool {
        self.turns >= SETTLED_TURNS && !self.is_stale(now_ns)
    }

    fn is_stale(&self, now_ns: u64) -> bool {
        now_ns > self.until_ns
    }
}
