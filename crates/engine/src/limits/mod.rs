//! The buckets of limiters, which outlive the policies that charge them.
//!
//! The rates of a policy are in a constant image ([`weir_tables::LimitImage`]). Its buckets are words of one array that
//! all workers and all generations share ([`Buckets`]). The [`pool`] assigns the words. A change of a rate or a list is
//! a new image, and remaining buckets keep their state. The counts of each bucket are beside them ([`counts`]).

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
    /// The rates and tickets.
    pub image: Arc<LimitImage>,
    /// The words of all buckets.
    pub buckets: Arc<Buckets>,
    /// The buckets that this program charges. They stay assigned while this value lives.
    pub held: Arc<pool::Held>,
    /// The counts of the program, if it counts.
    pub counted: Option<Counted>,
}
