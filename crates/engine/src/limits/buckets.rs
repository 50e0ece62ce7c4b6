//! Buckets: what limits charge.

use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::MmapRaw;
use weir_abi::each;
use weir_abi::limit::{DEBT_MAX, ticks};

use super::words::Words;
use crate::EngineError;

/// Words, one a bucket. The first is nobody's: a ticket of 0 is no limit.
pub struct Buckets(pub(super) Words);

impl Buckets {
    /// Room for so many in memory of this process; what is not touched takes none.
    ///
    /// # Errors
    /// There is no such memory, or more than [`BUCKETS_MAX`] are asked for.
    pub fn reserve(count: usize) -> Result<Self, EngineError> {
        Words::reserve(count).map(Buckets)
    }

    /// Room for so many that programs of all generations in the kernel charge.
    ///
    /// # Errors
    /// The kernel has no such memory for us, or more than [`BUCKETS_MAX`] are asked for.
    pub fn in_kernel(count: usize) -> Result<Self, EngineError> {
        Words::in_kernel("weir_buckets", count).map(Buckets)
    }

    /// Those in the memory of a map.
    pub(crate) fn of_map(memory: MmapRaw) -> Self {
        Buckets(Words::of_map(memory))
    }

    /// The map that they are in, if it is one for programs of all generations.
    pub(crate) fn map(&self) -> Option<BorrowedFd<'_>> {
        self.0.map()
    }

    /// How many there is room for.
    pub fn count(&self) -> usize {
        self.0.all().len()
    }

    /// What compiled code charges.
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

    /// Sets the word of a bucket that nobody charges yet.
    pub(crate) fn set(&self, slot: u32, word: u64) {
        self.words()[slot as usize].store(word, Ordering::Relaxed);
    }

    /// Brings words that the clock has passed to the present, so that none comes round: to be done now and then, within the 2.28 years that
    /// a word takes to.
    pub(crate) fn refresh(&self, slots: Range<u32>, now_ns: u64) {
        let now = ticks(now_ns);
        self.bring_forward(slots, |word| if word.wrapping_sub(now) > DEBT_MAX { now } else { word });
    }

    /// The same for tables of addresses ([`weir_abi::each`]), whose words come round sooner: within nine minutes, if their limit is the highest
    /// that there is.
    pub(crate) fn refresh_addresses(&self, slots: Range<u32>, now_ns: u64, coarse: u64) {
        let now = each::ticks(now_ns, coarse);
        self.bring_forward(slots, |word| each::refreshed(word, now));
    }

    fn bring_forward(&self, slots: Range<u32>, refreshed: impl Fn(u64) -> u64) {
        for word in &self.words()[slots.start as usize..slots.end as usize] {
            let found = word.load(Ordering::Relaxed);
            let new = refreshed(found);
            if new != found {
                // Whoever charged it meanwhile has done it.
                let _charged = word.compare_exchange(found, new, Ordering::Relaxed, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::BUCKETS_MAX;

    #[test]
    fn a_bucket_nobody_charges_stays_full_for_years() {
        const YEAR_NS: u64 = 365 * 24 * 3600 * 1_000_000_000;
        let buckets = Buckets::reserve(3).expect("it is little");
        buckets.set(1, ticks(0));
        buckets.set(2, ticks(YEAR_NS));
        buckets.refresh(1..3, YEAR_NS / 2);
        // In debt by half a year is impossible, so that was taken for past; brought to the present like the other.
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
