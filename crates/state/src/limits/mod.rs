//! The buckets of limits, a kind of shared state.
//!
//! The rates of a policy are in a constant image ([`weir_tables::LimitImage`]). Its buckets are words of one array that
//! all workers and all generations share ([`Buckets`]). A [`LimitStore`] assigns the words. A change of a rate or a
//! list is a new image, and remaining buckets keep their state. The counts of each bucket are beside them ([`counts`]).

mod bounded_debts;
mod buckets;
mod counted;
pub mod counts;
mod debt_by_name;
mod entry_names;
mod limit_store;
mod saved_debts;

use std::sync::Arc;

use weir_tables::LimitImage;

pub use buckets::Buckets;
pub use counted::{Counted, Exceeders, LimiterBuckets};
pub use counts::LimitCount;
pub use debt_by_name::{EntryName, SavedDebt, SavedDebts};
pub use entry_names::EntryNames;
pub use limit_store::{AssignedBuckets, BucketsDeclared, LimitBinding, LimitStore, WordFormat};

/// What the limits of a policy take.
#[derive(Clone, Copy, Debug)]
pub struct LimitNeeds {
    /// Number of buckets, with the first one, which is never assigned.
    pub buckets: usize,
    /// Number of words of the largest table of addresses (`limit each`); 0 if there is none.
    pub largest_address_table: usize,
}

/// The limits of a program: its rates, and the buckets that packets charge.
#[derive(Clone)]
pub struct Limits {
    /// The rates and tickets.
    pub image: Arc<LimitImage>,
    /// The words of all buckets.
    pub buckets: Arc<Buckets>,
    /// The buckets that this program charges. They stay assigned while this value lives.
    pub binding: Arc<LimitBinding>,
    /// The buckets of each limiter, in the order of their numbers.
    pub limiters: Arc<[LimiterBuckets]>,
    /// The counts of the program, if it counts.
    pub counted: Option<Counted>,
}
