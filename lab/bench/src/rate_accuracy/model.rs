//! Models of buckets. Weir's buckets are compared with them.

use super::offer::Seen;

const NS_PER_S: u64 = 1_000_000_000;

/// A model of a bucket. Its calls must be in order of time.
pub trait Model {
    /// Number of the packets that pass.
    fn passed(&mut self, seen: &Seen) -> u64;
}

/// The leaky bucket without rounding. Its level is in billionths of a packet, and `rate` of them drain per nanosecond.
pub struct Exact {
    rate: u64,
    room: u64,
    level: u64,
    last_ns: u64,
}

impl Exact {
    /// An empty bucket, with room for a whole burst.
    pub fn new(rate: u64, burst: u64) -> Self {
        Exact { rate, room: burst * NS_PER_S, level: 0, last_ns: 0 }
    }
}

impl Model for Exact {
    fn passed(&mut self, seen: &Seen) -> u64 {
        self.level = self.level.saturating_sub((seen.at_ns - self.last_ns) * self.rate);
        self.last_ns = seen.at_ns;
        let passed = ((self.room - self.level) / NS_PER_S).min(seen.packets.into());
        self.level += passed * NS_PER_S;
        passed
    }
}

/// The paper's token bucket, which gets its tokens after a number of packets (section IV-E). It holds the tokens of one
/// second.
pub struct Refilled {
    rate: u64,
    tokens: u64,
    packets: u64,
    filled_ns: u64,
    refills: usize,
}

/// Number of packets between two refills: the best value of the paper.
const REFILL_PACKETS: u64 = 1_000_000;

impl Refilled {
    /// A bucket without tokens.
    pub fn new(rate: u64) -> Self {
        Refilled { rate, tokens: 0, packets: 0, filled_ns: 0, refills: 0 }
    }

    /// Number of refills.
    pub fn refills(&self) -> usize {
        self.refills
    }
}

impl Model for Refilled {
    fn passed(&mut self, seen: &Seen) -> u64 {
        let passed = self.tokens.min(seen.packets.into());
        self.tokens -= passed;
        self.packets += u64::from(seen.packets);
        if self.packets >= REFILL_PACKETS {
            let earned = (seen.at_ns - self.filled_ns) * self.rate / NS_PER_S;
            self.tokens = (self.tokens + earned).min(self.rate);
            (self.packets, self.filled_ns) = (0, seen.at_ns);
            self.refills += 1;
        }
        passed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(at_ns: u64, packets: u16) -> Seen {
        Seen { at_ns, packets, passed: 0 }
    }

    #[test]
    fn the_exact_one_passes_a_packet_the_moment_it_is_earned() {
        let mut exact = Exact::new(1_000_000, 2);
        assert_eq!([(0, 5), (999, 1), (1000, 2), (3500, 9)].map(|(ns, n)| exact.passed(&at(ns, n))), [2, 0, 1, 2]);
        // The bucket keeps at most two packets.
        assert_eq!([(3500, 1), (4499, 1), (4500, 1)].map(|(ns, n)| exact.passed(&at(ns, n))), [0, 0, 1]);
    }

    #[test]
    fn the_papers_one_has_no_tokens_until_it_is_refilled() {
        let mut refilled = Refilled::new(30);
        let mut million = |at_ns| (0..REFILL_PACKETS / 64).map(|_| refilled.passed(&at(at_ns, 64))).sum::<u64>();
        // The tokens of one second, and after two seconds as many as the bucket holds.
        assert_eq!([1, 1, 3, 4].map(|seconds| million(seconds * NS_PER_S)), [0, 30, 0, 30]);
        assert_eq!(refilled.refills(), 4);
    }
}
