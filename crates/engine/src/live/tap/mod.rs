//! Taps: copies of decided packets for user space, on every engine. The datapath copies a packet after its verdict to
//! each open tap that wants it. A tap wants packets by action, side and reason, one in N of them, and so many a second.
//!
//! ```text
//!   worker 0 --- a ring for each tap --+--> the reader of tap 0
//!   worker 1 --- a ring for each tap --+--> the reader of tap 1
//!   programs --- one ring ---- whoever reads a tap empties it for all, into a queue for each tap
//! ```
//! * Nothing waits for a reader: without room a copy is lost, which is counted.
//! * Each policy numbers its rules. A tap that wants a rule finds it in each policy by its name, before the policy
//!   decides its first packet (`filter.rs`, `policy_bits.rs`).
//! * Taps open and close while packets pass. Without open taps, a worker reads a word for each burst and a program a
//!   word for each packet.
//!
//! Samples for mitigation are another thing: rules ask for them (`samples`).

mod copy_ring;
mod filter;
mod head;
mod kernel;
mod open_tap;
mod policy_bits;
mod reader;
mod taps;
#[cfg(test)]
mod tests;
mod worker;

pub use filter::{BUDGET_PPS, PolicyNames, Reasons, RuleName, TapFilter};
pub use head::may_match;
pub(in crate::live) use kernel::KernelTaps;
pub use open_tap::{Copied, TapCounts};
pub(in crate::live) use policy_bits::PolicyBits;
pub use reader::{TapReader, TapsInUse};
pub use taps::Taps;
pub(in crate::live) use worker::WorkerTaps;
