//! Memory layouts that Rust and the C datapath share.
//!
//! The compiler and the engines share only this crate. Every type is plain bytes in host byte order unless its name
//! says otherwise (`Be16`). Its size and offsets are asserted here and, with the same numbers, in `datapath`.
//! The crate contains layouts and names. It computes only what all engines must compute alike: limits, flows, SYN
//! cookies, features and the ticks of additions.

pub mod addition;
pub mod burst;
pub mod card;
pub mod cookie;
pub mod counter;
pub mod dpdk;
pub mod each;
pub mod entry;
pub mod family;
pub mod features;
pub mod flow;
pub mod image;
pub mod kernel;
pub mod limit;
pub mod link;
pub mod packet;
pub mod rate;
pub mod reason;
pub mod rewrite;
pub mod seats;
pub mod siphash;
pub mod slot;
pub mod tap;
pub mod tap_where;
pub mod target;
pub mod verdict;
pub mod wire_card;

pub use addition::{Addition, AdditionCounts};
pub use burst::{BURST_MAX, Burst, Frame};
pub use counter::Counter;
pub use entry::{EntryCounter, EntryCounts};
pub use family::Family;
pub use features::{FeatureCell, FeatureElement, FeatureRecord, FeatureShape, PacketClass};
pub use flow::FlowState;
pub use image::{ImageHeader, Layout};
pub use limit::{LimitEntries, LimitEntry, LimitProfile};
pub use link::Link;
pub use packet::PacketView;
pub use rate::{Limit, LimitProblem, Rate};
pub use reason::Reason;
pub use rewrite::{REWRITE_BYTES, Rewrite};
pub use target::Target;
pub use verdict::{Action, Verdict};

/// Version of everything in this crate. An artifact carries the version it was compiled against and is refused
/// by an engine of another one.
pub const ABI_VERSION: u32 = 20;

/// Number of bytes of a frame that a datapath may read. Bytes after the window are payload to every rule. On every
/// engine, a header that starts inside the window and ends outside it is malformed. One XDP page holds the whole
/// window.
pub const WINDOW_BYTES: usize = 2048;
