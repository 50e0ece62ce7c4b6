//! The head of a table of flows: all that its users share besides the flows.

use super::{HashKeys, REPLAY_SEED};
use crate::cookie::REPLAY_SECRET;

/// Number of locks for keys that are entered.
pub const OPENING_LOCKS: usize = 256;

/// The secrets of a table: no sender of packets may know them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowSecrets {
    /// The seed of the hash. An attacker who knows it can fill a bucket.
    pub seed: u64,
    /// The key of cookies. An attacker who knows it can open flows.
    pub cookies: [u64; 2],
}

impl FlowSecrets {
    /// The secrets of every replay of a capture. They are fixed, so replays are deterministic.
    pub const REPLAY: Self = FlowSecrets { seed: REPLAY_SEED, cookies: REPLAY_SECRET };
}

/// Whether SYNs are answered: `struct syn_switch` in `datapath/track/flow_bucket.h`. Compiled code changes it.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct SynSwitch {
    /// The second of the latest SYN.
    pub second: u64,
    /// Number of its SYNs.
    pub count: u64,
    /// The first of the seconds that all had few SYNs.
    pub calm_from: u64,
    /// 1 while SYNs are answered.
    pub is_on: u64,
}

/// The data that all users of a table share: `struct flow_head` in `datapath/track/flow_bucket.h`.
#[derive(Debug)]
#[repr(C)]
pub struct FlowHead {
    /// Time of the latest tracked packet in ticks since the clock's zero, not modulo [`super::TICKS`].
    pub clock: u64,
    /// Number of buckets.
    pub buckets: u64,
    /// The keys of the hash.
    pub keys: HashKeys,
    /// The key of cookies.
    pub cookie_secret: [u64; 2],
    /// The epoch of the latest cookie + 1; 0 if there was none.
    pub cookies_made: u64,
    /// The switch of the SYN proxy.
    pub syns: SynSwitch,
    /// Locks of keys that are entered.
    opening: [u64; OPENING_LOCKS],
}

const _: () = assert!(size_of::<FlowHead>() == 128 + 8 * OPENING_LOCKS);

impl FlowHead {
    /// The head of an empty table.
    pub fn new(buckets: u32, secrets: FlowSecrets) -> Self {
        FlowHead {
            clock: 0,
            buckets: buckets.into(),
            keys: HashKeys::of(secrets.seed),
            cookie_secret: secrets.cookies,
            cookies_made: 0,
            syns: SynSwitch::default(),
            opening: [0; OPENING_LOCKS],
        }
    }

    /// Its words, up to those that are 0 in a new table.
    pub fn words(&self) -> impl Iterator<Item = u64> + '_ {
        [self.clock, self.buckets].into_iter().chain(self.keys.all()).chain(self.cookie_secret)
    }
}
