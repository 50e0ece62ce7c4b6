//! The buckets of limiters, which outlive the policies that charge them.
//!
//! The rates of a policy are in a constant image ([`weir_tables::LimitImage`]). Its buckets are words of one array that
//! all workers and all generations share ([`Buckets`]). The [`pool`] assigns the words. A change of a rate or a list is
//! a new image, and remaining buckets keep their state. The counts of each bucket are beside them ([`counts`]).

pub mod counts;
pub mod pool;
mod words;

use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::MmapRaw;
use weir_abi::each;
use weir_abi::limit::{DEBT_MAX, ticks};
use weir_tables::LimitImage;

use crate::EngineError;
use counts::Counted;
pub(crate) use words::Words;

/// Maximum number of buckets: 512 MiB.
pub const BUCKETS_MAX: usize = 1 << 26;

/// The clock of limits on interfaces, the same as in programs in the kernel.
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The words of all buckets. The first is unused, because a ticket of 0 means no limit.
pub struct Buckets(Words);

impl Buckets {
    /// Reserves `count` words in the memory of this process. Untouched pages take no memory.
    ///
    /// # Errors
    /// There is not enough memory, or `count` exceeds [`BUCKETS_MAX`].
    pub fn reserve(count: usize) -> Result<Self, EngineError> {
        Words::reserve(count).map(Buckets)
    }

    /// Reserves `count` words for programs of all generations in the kernel.
    ///
    /// # Errors
    /// The kernel refuses the memory, or `count` exceeds [`BUCKETS_MAX`].
    pub fn in_kernel(count: usize) -> Result<Self, EngineError> {
        Words::in_kernel("weir_buckets", count).map(Buckets)
    }

    /// Buckets in the memory of a map.
    pub(crate) fn of_map(memory: MmapRaw) -> Self {
        Buckets(Words::of_map(memory))
    }

    /// The map of the buckets, if programs of all generations in the kernel share it.
    pub(crate) fn map(&self) -> Option<BorrowedFd<'_>> {
        self.0.map()
    }

    /// Number of words.
    pub fn count(&self) -> usize {
        self.0.all().len()
    }

    /// The words for compiled code.
    pub(crate) fn as_ptr(&self) -> *mut u64 {
        self.0.as_ptr()
    }

    fn words(&self) -> &[AtomicU64] {
        self.0.all()
    }

    /// The word of a bucket: its theoretical arrival time, in ticks.
    pub fn word(&self, slot: u32) -> u64 {
        self.words()[slot as usize].load(Ordering::Relaxed)
    }

    /// Sets the word of a bucket that no program charges yet.
    pub(crate) fn set(&self, slot: u32, word: u64) {
        self.words()[slot as usize].store(word, Ordering::Relaxed);
    }

    /// Sets words in the past to the present, so that none wraps around. It must be called regularly: a word wraps
    /// around after 2.28 years.
    pub(crate) fn refresh(&self, slots: Range<u32>, now_ns: u64) {
        let now = ticks(now_ns);
        self.bring_forward(slots, |word| if word.wrapping_sub(now) > DEBT_MAX { now } else { word });
    }

    /// The same for tables of addresses ([`weir_abi::each`]). Their words wrap around sooner: after nine minutes at the
    /// highest limit.
    pub(crate) fn refresh_addresses(&self, slots: Range<u32>, now_ns: u64, coarse: u64) {
        let now = each::ticks(now_ns, coarse);
        self.bring_forward(slots, |word| each::refreshed(word, now));
    }

    fn bring_forward(&self, slots: Range<u32>, refreshed: impl Fn(u64) -> u64) {
        for word in &self.words()[slots.start as usize..slots.end as usize] {
            let found = word.load(Ordering::Relaxed);
            let new = refreshed(found);
            if new != found {
                // If the word was charged meanwhile, it is not in the past any more.
                let _charged = word.compare_exchange(found, new, Ordering::Relaxed, Ordering::Relaxed);
            }
        }
    }
}

/// The rates and buckets of a program.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_nobody_charges_stays_full_for_years() {
        const YEAR_NS: u64 = 365 * 24 * 3600 * 1_000_000_000;
        let buckets = Buckets::reserve(3).expect("it is little");
        buckets.set(1, ticks(0));
        buckets.set(2, ticks(YEAR_NS));
        buckets.refresh(1..3, YEAR_NS / 2);
        // A debt of half a year is impossible, so the word was taken for past and set to the present like the other.
        assert_eq!([1, 2].map(|slot| buckets.word(slot)), [ticks(YEAR_NS / 2); 2]);
        buckets.set(2, ticks(YEAR_NS / 2 + 1000));
        buckets.refresh(1..3, YEAR_NS / 2);
        assert_eq!(buckets.word(2), ticks(YEAR_NS / 2 + 1000), "a debt stays");
    }

    #[test]
    fn memory_that_nobody_touches_is_not_taken() {
        let buckets = Buckets::reserve(BUCKETS_MAX).expect("it is only set aside");
        assert_eq!(buckets.word(BUCKETS_MAX as u32 - 1), 0);
        let refused = Buckets::reserve(BUCKETS_MAX + 1).err().map(|error| error.to_string());
        assert_eq!(refused.as_deref(), Some("67108865 buckets: there are at most 67108864"));
    }
}
