//! What all who use a table of flows share besides the flows.

use super::HashKeys;

/// Number of locks for keys that are entered.
pub const OPENING_LOCKS: usize = 256;

/// What all who use a table share: `struct flow_head` in `datapath/include/flow_table.h`.
#[derive(Debug)]
#[repr(C)]
pub struct FlowHead {
    /// Time of the latest tracked packet in ticks since the clock's zero, not modulo [`super::TICKS`].
    pub clock: u64,
    /// Number of buckets.
    pub buckets: u64,
    /// The keys of the hash.
    pub keys: HashKeys,
    zero: [u64; 7],
    /// Locks of keys that are entered.
    opening: [u64; OPENING_LOCKS],
}

const _: () = assert!(size_of::<FlowHead>() == 128 + 8 * OPENING_LOCKS);

impl FlowHead {
    /// The head of an empty table.
    pub fn new(buckets: u32, seed: u64) -> Self {
        let (buckets, keys) = (buckets.into(), HashKeys::of(seed));
        FlowHead { clock: 0, buckets, keys, zero: [0; 7], opening: [0; OPENING_LOCKS] }
    }

    /// Its words, up to the locks.
    pub fn words(&self) -> impl Iterator<Item = u64> + '_ {
        [self.clock, self.buckets].into_iter().chain(self.keys.all())
    }
}
