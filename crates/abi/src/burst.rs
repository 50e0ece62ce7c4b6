//! What a compiled chain is called with: a burst of frames and where to put the verdicts.

use crate::Counter;

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

/// A burst: `struct weir_burst`. The compiled function reads it and writes `verdicts` and `counters`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Burst {
    /// `count` frames.
    pub frames: *const Frame,
    /// `count` words to fill, each a [`crate::Verdict`].
    pub verdicts: *mut u32,
    /// One image a table slot, in slot order; each aligned to 64 bytes.
    pub tables: *const *const u8,
    /// The worker's counters, one a reason: `Reason::RULE_BASE` and one for each rule of the program.
    pub counters: *mut Counter,
    /// Time of the burst in ns; a capture's own time when it is replayed.
    pub now_ns: u64,
    /// Number of frames, at most [`BURST_MAX`].
    pub count: u32,
    /// A [`crate::Link`].
    pub link: u32,
    /// Time of each frame in ns, never falling; null if all are of `now_ns`.
    pub times_ns: *const u64,
    /// The image of the program's limiters, aligned to 64 bytes; null if it has none.
    pub limits: *const u8,
    /// The buckets that they charge.
    pub buckets: *mut u64,
    /// Whether other workers charge them too: 0 or 1.
    pub buckets_shared: u64,
    /// Packets that each bucket had no room for, counted for limiters that log; null if none does.
    pub exceeded: *mut u64,
    /// Packets that were charged to each bucket, counted for limiters that log all; null if none does.
    pub passed: *mut u64,
}

const _: () = assert!(size_of::<Frame>() == 16);
const _: () = assert!(size_of::<Burst>() == 96);
