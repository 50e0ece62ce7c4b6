//! What a compiled chain is called with: a burst of frames and where to put the verdicts.

use crate::flow::{FlowHead, Proxied};
use crate::slot::SlotImage;
use crate::{Addition, Counter, EntryCounter, FeatureElement, Rewrite};

/// The most frames that one call of a compiled chain decides.
pub const BURST_MAX: usize = 64;

/// One received frame: `struct weir_frame`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Frame {
    /// First byte of the link header. Null only if `cap` is 0.
    pub data: *const u8,
    /// Bytes that can be read at `data`; a datapath reads no more than [`crate::WINDOW_BYTES`] of them.
    pub cap: u32,
    /// Bytes that the frame had on the wire, `>= cap`. Captures with a snap length hold less than that.
    pub len: u32,
}

/// When the frames of a burst were received: `struct burst_times`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Times {
    /// Time of the burst in ns; a capture's own time when it is replayed.
    pub now_ns: u64,
    /// Time of each frame in ns, never falling; null if all are of `now_ns`.
    pub each_ns: *const u64,
}

/// The tables that a chain asks: `struct burst_tables`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Tables {
    /// One image a table slot, in slot order; each aligned to 64 bytes.
    pub images: *const *const u8,
}

/// What a chain counts: `struct burst_counters`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Counters {
    /// The worker's counters, one a reason: `Reason::RULE_BASE` and one for each rule of the program.
    pub reasons: *mut Counter,
}

/// What a chain's limiters charge and count: `struct burst_limits`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Limits {
    /// The image of the program's limiters, aligned to 64 bytes; null if it has none.
    pub image: *const u8,
    /// The buckets that they charge.
    pub buckets: *mut u64,
    /// Whether other workers charge them too: 0 or 1.
    pub shared: u64,
    /// Packets that each bucket had no room for, counted for limiters that log; null if none does.
    pub exceeded: *mut u64,
    /// Packets that were charged to each bucket, counted for limiters that log all; null if none does.
    pub passed: *mut u64,
}

/// What a chain adds to tables: `struct burst_additions`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Additions {
    /// Room for the additions of a burst: [`BURST_MAX`] for each adding effect of the chain.
    pub records: *mut Addition,
    /// Number of additions, which the chain increases.
    pub count: *mut u64,
}

/// The entries of a table with counters: `struct table_entries`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct TableEntries {
    /// The worker's counters, by number of the entry. Null for other tables.
    pub counters: *mut EntryCounter,
    /// The labels, by number of the entry. Null for sets.
    pub labels: *const u32,
}

/// The entries that a chain counts: `struct burst_entries`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Entries {
    /// One for each table, in their order; null if no table has counters.
    pub tables: *const TableEntries,
}

/// The flows that a chain tracks: `struct burst_flows`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Flows {
    /// What all workers share besides the flows; null if the policy does not track.
    pub head: *mut FlowHead,
    /// The buckets, [`crate::flow::BUCKET_BYTES`] each.
    pub buckets: *mut u64,
    /// Whether other workers track the same flows: 0 or 1.
    pub shared: u64,
    /// What is kept of proxied flows, one for each slot; null if the program has no SYN proxy.
    pub proxied: *mut Proxied,
}

/// Where a chain puts the packets that it changes: `struct burst_rewrites`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Rewrites {
    /// One for each frame; null if the program changes no packets.
    pub packets: *mut Rewrite,
}

/// The slots that a chain asks: `struct burst_slots`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Slots {
    /// One for each slot of the policy; null if it has none.
    pub slots: *const *mut SlotImage,
    /// The stripe of the worker's counters, below [`crate::slot::STRIPES`].
    pub stripe: u64,
}

/// Where a chain counts features: `struct burst_features`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Features {
    /// The worker's sheet that is written now; null if the policy does not observe.
    pub sheet: *mut FeatureElement,
    /// The seed of hashes.
    pub seed: u64,
}

/// A burst: `struct weir_burst`, the frames and one struct for each thing that a chain uses besides them. The compiled
/// function reads it and writes `verdicts`, counters and buckets.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Burst {
    /// `count` frames.
    pub frames: *const Frame,
    /// `count` words to fill, each a [`crate::Verdict`].
    pub verdicts: *mut u32,
    /// Number of frames, at most [`BURST_MAX`].
    pub count: u32,
    /// A [`crate::Link`].
    pub link: u32,
    /// When the frames were received.
    pub times: Times,
    /// What lookups read.
    pub tables: Tables,
    /// What is counted.
    pub counters: Counters,
    /// What limiters charge.
    pub limits: Limits,
    /// What rules add to tables.
    pub additions: Additions,
    /// The entries that are counted.
    pub entries: Entries,
    /// The flows that are tracked.
    pub flows: Flows,
    /// The packets that it changes.
    pub rewrites: Rewrites,
    /// Rules that change while packets pass.
    pub slots: Slots,
    /// Where features are counted.
    pub features: Features,
}

const _: () = assert!(size_of::<Frame>() == 16);
const _: () = assert!(size_of::<Times>() == 16);
const _: () = assert!(size_of::<Tables>() == 8);
const _: () = assert!(size_of::<Counters>() == 8);
const _: () = assert!(size_of::<Limits>() == 40);
const _: () = assert!(size_of::<Additions>() == 16);
const _: () = assert!(size_of::<TableEntries>() == 16);
const _: () = assert!(size_of::<Entries>() == 8);
const _: () = assert!(size_of::<Flows>() == 32);
const _: () = assert!(size_of::<Rewrites>() == 8);
const _: () = assert!(size_of::<Slots>() == 16);
const _: () = assert!(size_of::<Features>() == 16);
const _: () = assert!(size_of::<Burst>() == 192);
