//! The buckets of limits, a kind of shared state.
//!
//! The rates of a policy are in a constant image ([`weir_tables::LimitImage`]). Its buckets are words of one array that
//! all workers and all generations share ([`Buckets`]). A [`LimitStore`] assigns the words. A change of a rate or a
//! list is a new image, and remaining buckets keep their state. The counts of each bucket are beside them ([`counts`]).

mod bounded_debts;
mod buckets;
pub mod counts;
mod debt_by_name;
mod entry_names;
mod handed;
mod limit_store;
mod limiter_counts;
mod saved_debts;

use std::any::Any;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr;
use std::sync::Arc;

use weir_abi::{Burst, burst};
use weir_tables::LimitImage;

use crate::bound_kind::{BoundKind, StateShape, Worker, expect};
use crate::words::Words;
pub(crate) use counts::Counts;

pub use buckets::Buckets;
pub use counts::LimitCount;
pub use debt_by_name::{EntryName, SavedDebt, SavedDebts};
pub use entry_names::EntryNames;
pub(crate) use handed::HandedAssignment;
pub use limit_store::{AssignedBuckets, BucketsDeclared, LimitBinding, LimitStore, WordFormat};
pub use limiter_counts::{Exceeders, LimiterBuckets, LimiterCounts};

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
    pub counted: Option<LimiterCounts>,
}

/// Names of the maps of buckets, and of their counts.
pub const BUCKETS: &str = ".bss.buckets";
/// See [`BUCKETS`].
pub const EXCEEDED: &str = ".bss.exceeded";
/// See [`BUCKETS`].
pub const PASSED: &str = ".bss.passed";

impl Limits {
    /// The maps of buckets and counts, if they are in the kernel.
    pub fn maps(&self) -> Vec<(String, BorrowedFd<'_>)> {
        let [exceeded, passed] = self.counts();
        let maps = [
            (BUCKETS, self.buckets.map()),
            (EXCEEDED, exceeded.and_then(Words::map)),
            (PASSED, passed.and_then(Words::map)),
        ];
        maps.into_iter().filter_map(|(name, map)| Some((name.to_owned(), map?))).collect()
    }

    /// The counts of packets that exceeded limits, and of those that passed.
    fn counts(&self) -> [Option<&Words>; 2] {
        let counts = self.counted.as_ref().map(LimiterCounts::counts);
        [counts.and_then(Counts::exceeded), counts.and_then(Counts::passed)]
    }
}

impl BoundKind for Option<Limits> {
    fn check(&self, expected: &StateShape) -> Result<(), String> {
        let found = self.as_ref().map_or(0, |limits| limits.image.limiters());
        expect("limiters", found, expected.limiters)
    }

    fn maps(&self) -> Vec<(String, BorrowedFd<'_>)> {
        self.as_ref().map(Limits::maps).unwrap_or_default()
    }

    fn point(&self, worker: Worker, burst: &mut Burst) -> io::Result<Box<dyn Any>> {
        if let Some(limits) = self {
            let [exceeded, passed] = limits.counts().map(|words| words.map_or(ptr::null_mut(), Words::as_ptr));
            let (image, buckets) = (limits.image.as_bytes().as_ptr(), limits.buckets.as_ptr());
            burst.limits = burst::Limits { image, buckets, shared: worker.shared(), exceeded, passed };
        }
        Ok(Box::new(()))
    }

    fn needs_times(&self) -> bool {
        self.is_some()
    }

    fn fill(&self, now_ns: u64) {
        self.iter().for_each(|limits| limits.binding.fill(&limits.buckets, now_ns));
    }
}
