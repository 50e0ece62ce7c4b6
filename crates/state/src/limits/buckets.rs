//! The words of buckets, which packets charge.

use std::io;
use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::MmapRaw;
use weir_abi::limit::{DEBT_MAX, debt, ticks};
use weir_abi::{LimitProfile, each};

use crate::StateError;
use crate::words::Words;

/// One word for each bucket. The first word is never assigned, because a ticket of 0 means no limit.
pub struct Buckets(pub(super) Words);

impl Buckets {
    /// Reserves `count` buckets in the memory of this process. Untouched pages take no memory.
    ///
    /// # Errors
    /// There is not enough memory, or `count` exceeds [`BUCKETS_MAX`](crate::words::BUCKETS_MAX).
    pub fn reserve(count: usize) -> Result<Self, StateError> {
        Words::reserve(count).map(Buckets)
    }

    /// Reserves `count` buckets for programs of all generations in the kernel.
    ///
    /// # Errors
    /// The kernel refuses the memory, or `count` exceeds [`BUCKETS_MAX`](crate::words::BUCKETS_MAX).
    pub fn in_kernel(count: usize) -> Result<Self, StateError> {
        Words::in_kernel("weir_buckets", count).map(Buckets)
    }

    /// Buckets in a map that was handed over.
    ///
    /// # Errors
    /// It is not such a map.
    pub(crate) fn handed(map: OwnedFd, count: usize) -> io::Result<Self> {
        Words::handed_block(map, "weir_buckets", count).map(Buckets)
    }

    /// Buckets in the memory of a map.
    pub fn of_map(memory: MmapRaw) -> Self {
        Buckets(Words::of_map(memory))
    }

    /// The map of the buckets, if programs of all generations in the kernel share it.
    pub fn map(&self) -> Option<BorrowedFd<'_>> {
        self.0.map()
    }

    /// Number of buckets, the first one included.
    pub fn count(&self) -> usize {
        self.0.all().len()
    }

    /// The words for compiled code.
    pub fn as_ptr(&self) -> *mut u64 {
        self.0.as_ptr()
    }

    fn words(&self) -> &[AtomicU64] {
        self.0.all()
    }

    /// The word of a bucket: its theoretical arrival time, in ticks.
    pub fn word(&self, slot: u32) -> u64 {
        self.words()[slot as usize].load(Ordering::Relaxed)
    }

    /// Sets the word of a bucket that no packet charges yet.
    pub(crate) fn set(&self, slot: u32, word: u64) {
        self.words()[slot as usize].store(word, Ordering::Relaxed);
    }

    /// Sets words in the past to the present. Must be called at least every 2.28 years, when a word wraps around and
    /// would be in the future.
    pub(crate) fn refresh(&self, slots: Range<u32>, now_ns: u64) {
        let now = ticks(now_ns);
        self.bring_forward(slots, |word| if word.wrapping_sub(now) > DEBT_MAX { now } else { word });
    }

    /// Like `refresh`, for tables of addresses ([`weir_abi::each`]). Their words wrap around sooner: after nine minutes
    /// if the limit is the highest possible.
    pub(crate) fn refresh_addresses(&self, slots: Range<u32>, now_ns: u64, coarse: u64) {
        let now = each::ticks(now_ns, coarse);
        self.bring_forward(slots, |word| each::refreshed(word, now));
    }

    /// Number of words in a table of addresses whose address is in debt.
    pub(super) fn addresses_in_debt(&self, slots: Range<u32>, now_ns: u64, coarse: u64) -> usize {
        let now = each::ticks(now_ns, coarse);
        let words = self.words()[slots.start as usize..slots.end as usize].iter();
        words.map(|word| word.load(Ordering::Relaxed)).filter(|&word| each::bounded(word, now, 0) != word).count()
    }

    /// Reduces the debts of buckets to `room`. Returns whether there was a larger one. `clock` returns the present
    /// in nanoseconds.
    pub(super) fn bound(&self, slots: Range<u32>, room: u64, clock: &dyn Fn() -> u64) -> bool {
        let bounded = |word: u64, now_ns: u64| {
            let now = ticks(now_ns);
            if debt(word, now) > room { now.wrapping_add(room) } else { word }
        };
        self.reduce(slots, clock, &bounded)
    }

    /// Like `bound`, for tables of addresses.
    pub(super) fn bound_addresses(&self, slots: Range<u32>, profile: LimitProfile, clock: &dyn Fn() -> u64) -> bool {
        let LimitProfile { room, coarse, .. } = profile;
        self.reduce(slots, clock, &|word, now_ns| each::bounded(word, each::ticks(now_ns, coarse), room))
    }

    /// Replaces words while packets charge them. A word that `bounded` changes at an early time may have been charged
    /// since. Therefore the time is read again after the word.
    fn reduce(&self, slots: Range<u32>, clock: &dyn Fn() -> u64, bounded: &dyn Fn(u64, u64) -> u64) -> bool {
        let (begun, mut any) = (clock(), false);
        for word in &self.words()[slots.start as usize..slots.end as usize] {
            let mut found = word.load(Ordering::Relaxed);
            while bounded(found, begun) != found {
                let new = bounded(found, clock());
                if new == found {
                    break;
                }
                match word.compare_exchange(found, new, Ordering::Relaxed, Ordering::Relaxed) {
                    Ok(_) => {
                        any = true;
                        break;
                    }
                    Err(charged) => found = charged,
                }
            }
        }
        any
    }

    fn bring_forward(&self, slots: Range<u32>, refreshed: impl Fn(u64) -> u64) {
        for word in &self.words()[slots.start as usize..slots.end as usize] {
            let found = word.load(Ordering::Relaxed);
            let new = refreshed(found);
            if new != found {
                // If a packet has charged the bucket meanwhile, its word is in the present.
                let _charged = word.compare_exchange(found, new, Ordering::Relaxed, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::BUCKETS_MAX;

    #[test]
    fn a_bucket_nobody_charges_stays_full_for_years() {
        const YEAR_NS: u64 = 365 * 24 * 3600 * 1_000_000_000;
        let buckets = Buckets::reserve(3).expect("it is little");
        buckets.set(1, ticks(0));
        buckets.set(2, ticks(YEAR_NS));
        buckets.refresh(1..3, YEAR_NS / 2);
        // A debt of half a year is impossible, so the second word counts as past too.
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

    #[test]
    fn addresses_are_in_debt_until_the_clock_has_passed_their_words() {
        let (buckets, now_ns, coarse) = (Buckets::reserve(32).expect("there is memory"), 1 << 40, 9);
        let now = each::ticks(now_ns, coarse);
        (8..24).for_each(|slot| buckets.set(slot, each::empty(now)));
        for (slot, word) in [(8, now + 1), (9, now - 1), (10, now + each::ROOM_MAX), (23, now + 5), (24, now + 5)] {
            buckets.set(slot, 3 << each::TIME_BITS | each::empty(word));
        }
        assert_eq!(buckets.addresses_in_debt(8..24, now_ns, coarse), 3);
        // Two of them have debts of at most a few ticks.
        assert_eq!(buckets.addresses_in_debt(8..24, now_ns + 1_000_000, coarse), 1);
    }
}
