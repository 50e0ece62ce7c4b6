//! Counts for each bucket: packets that it had no room for and, on request, packets that were charged to it.
//!
//! The words are arrays beside the buckets, with the same indices, and outlive policies like them. They are allocated
//! for the first program whose limiters count, so that other programs pay nothing. Counts start at 0 when a bucket is
//! assigned ([`super::limit_store`]).

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use weir_abi::each::PACKETS_MASK;
use weir_tables::limit_image::Logged;

use crate::StateError;
use crate::words::Words;

/// The names of the maps.
const EXCEEDED: &str = "weir_exceeded";
const PASSED: &str = "weir_passed";

/// Packets of one bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitCount {
    /// Packets that the bucket had no room for.
    pub exceeded: u64,
    /// Packets that were charged to the bucket; 0 if its limiter does not count them.
    pub passed: u64,
}

/// One kind of count for all buckets.
#[derive(Default)]
pub(super) struct Counter {
    words: OnceLock<Words>,
    /// The counts that [`Counter::take_new`] returned last, from [`Counter::remember`] on.
    before: OnceLock<Words>,
}

impl Counter {
    /// Allocates the words, beside the words of the buckets.
    fn make(&self, buckets: &Words, name: &str) -> Result<(), StateError> {
        if self.words.get().is_none() {
            // If another thread was faster, its words serve as well.
            let _other = self.words.set(buckets.beside(name)?);
        }
        Ok(())
    }

    fn of(words: Option<Words>) -> Self {
        Counter { words: words.map_or_else(OnceLock::new, OnceLock::from), before: OnceLock::new() }
    }

    /// Allocates the memory of [`Counter::take_new`], if there are counts.
    pub(super) fn remember(&self) -> Result<(), StateError> {
        if let (Some(words), None) = (self.words.get(), self.before.get()) {
            let _other = self.before.set(Words::reserve(words.all().len())?);
        }
        Ok(())
    }

    pub(super) fn get(&self, slot: u32) -> u64 {
        self.words.get().map_or(0, |words| words.all()[slot as usize].load(Ordering::Relaxed))
    }

    /// The count since the previous call.
    pub(super) fn take_new(&self, slot: u32) -> u64 {
        let (Some(_), Some(before)) = (self.words.get(), self.before.get()) else { return 0 };
        // The first word of a record has a tag above the number of packets. No count is as large as 2^48.
        let (before, now) = (&before.all()[slot as usize], self.get(slot) & PACKETS_MASK);
        let new = now - before.load(Ordering::Relaxed);
        if new > 0 {
            before.store(now, Ordering::Relaxed);
        }
        new
    }

    fn clear(&self, slot: u32) {
        for words in [&self.words, &self.before].into_iter().filter_map(OnceLock::get) {
            words.all()[slot as usize].store(0, Ordering::Relaxed);
        }
    }
}

/// The counts of all buckets.
#[derive(Default)]
pub struct Counts {
    pub(super) exceeded: Counter,
    pub(super) passed: Counter,
}

impl Counts {
    /// Allocates the counts that limiters with this setting need.
    pub(super) fn make(&self, buckets: &Words, logged: Logged) -> Result<(), StateError> {
        if logged >= Logged::Exceeded {
            self.exceeded.make(buckets, EXCEEDED)?;
        }
        if logged >= Logged::All {
            self.passed.make(buckets, PASSED)?;
        }
        Ok(())
    }

    /// Counts in the memory of maps.
    pub(super) fn of_maps(exceeded: Option<Words>, passed: Option<Words>) -> Self {
        Counts { exceeded: Counter::of(exceeded), passed: Counter::of(passed) }
    }

    /// The maps of the counts, if they are in the kernel.
    pub(crate) fn maps(&self) -> [Option<BorrowedFd<'_>>; 2] {
        [&self.exceeded, &self.passed].map(|counter| counter.words.get().and_then(Words::map))
    }

    /// The counts of `count` buckets in maps that were handed over.
    ///
    /// # Errors
    /// They are other maps.
    pub(crate) fn handed([exceeded, passed]: [Option<OwnedFd>; 2], count: usize) -> io::Result<Self> {
        let words = |map: Option<OwnedFd>, name: &str| map.map(|map| Words::handed_block(map, name, count)).transpose();
        let (exceeded, passed) = (words(exceeded, EXCEEDED)?, words(passed, PASSED)?);
        let counts = Counts::of_maps(exceeded, passed);
        for counter in [&counts.exceeded, &counts.passed] {
            counter.remember().map_err(io::Error::other)?;
            (0..count as u32).for_each(|slot| _ = counter.take_new(slot));
        }
        Ok(counts)
    }

    /// Resets the counts of a bucket that no program charges.
    pub(super) fn clear(&self, slot: u32) {
        self.exceeded.clear(slot);
        self.passed.clear(slot);
    }

    /// Packets that each bucket had no room for, if a limiter counts them.
    pub fn exceeded(&self) -> Option<&Words> {
        self.exceeded.words.get()
    }

    /// Packets that were charged to each bucket, if a limiter counts them.
    pub fn passed(&self) -> Option<&Words> {
        self.passed.words.get()
    }
}
