//! Buckets of limiters, which outlive the policies that charge them.
//!
//! A policy's rates are an image of its own ([`weir_tables::LimitImage`]) that nobody writes. Its buckets are words of one array that all workers
//! and all generations share ([`Buckets`]); which word is whose, the [`pool`] keeps. So a rate or a list changes by a new image, and the
//! buckets that stay go on as if nothing had happened. What policies count for each bucket ([`counts`]) lies beside them.

mod buckets;
pub mod counts;
pub mod pool;
mod words;

use std::sync::Arc;

use weir_tables::LimitImage;

pub use buckets::Buckets;
use counts::Counted;
pub use words::BUCKETS_MAX;
pub(crate) use words::Words;

/// The time that limits go by on interfaces: what the kernel's programs read.
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// What a program polices by: rates, and the buckets that they are kept in.
#[derive(Clone)]
pub struct Limits {
    /// Rates and tickets.
    pub image: Arc<LimitImage>,
    /// Words.
    pub buckets: Arc<Buckets>,
    /// Which of them this program charges, held as long as it can.
    pub held: Arc<pool::Held>,
    /// What it counts for them, if it does.
    pub counted: Option<Counted>,
}
