//! Counts for each bucket: packets that it had no room for and, on request, packets that were charged to it.
//!
//! The words are arrays beside the buckets, with the same indices, and outlive policies like them. They are allocated
//! for the first program whose limiters count, so that other programs pay nothing. Counts start at 0 when a bucket is
//! assigned ([`super::pool`]).

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use weir_tables::limit_image::Logged;

use super::pool::Held;
use super::words::Words;
use crate::EngineError;

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
struct Counter {
    words: OnceLock<Words>,
    /// The counts at the last call of [`Counted::each_since`].
    before: OnceLock<Words>,
}

impl Counter {
    /// Allocates the words, beside those of the buckets.
    fn make(&self, buckets: &Words, name: &str) -> Result<(), EngineError> {
        if self.words.get().is_none() {
            // If another thread was faster, its words serve as well.
            let _other = self.words.set(buckets.beside(name)?);
        }
        Ok(())
    }

    fn of(words: Option<Words>) -> Self {
        Counter { words: words.map_or_else(OnceLock::new, OnceLock::from), before: OnceLock::new() }
    }

    fn get(&self, slot: u32) -> u64 {
        self.words.get().map_or(0, |words| words.all()[slot as usize].load(Ordering::Relaxed))
    }

    /// The count since the previous call.
    fn take_new(&self, slot: u32) -> u64 {
        let (Some(_), Some(before)) = (self.words.get(), self.before.get()) else { return 0 };
        let (before, now) = (&before.all()[slot as usize], self.get(slot));
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
    exceeded: Counter,
    passed: Counter,
}

impl Counts {
    /// Allocates the counts that limiters with this setting need.
    pub(super) fn make(&self, buckets: &Words, logged: Logged) -> Result<(), EngineError> {
        if logged >= Logged::Exceeded {
            self.exceeded.make(buckets, "weir_exceeded")?;
        }
        if logged >= Logged::All {
            self.passed.make(buckets, "weir_passed")?;
        }
        Ok(())
    }

    /// Counts in the memory of maps.
    pub(crate) fn of_maps(exceeded: Option<Words>, passed: Option<Words>) -> Self {
        Counts { exceeded: Counter::of(exceeded), passed: Counter::of(passed) }
    }

    /// Resets the counts of a bucket that no program charges.
    pub(super) fn clear(&self, slot: u32) {
        self.exceeded.clear(slot);
        self.passed.clear(slot);
    }

    /// Packets that each bucket had no room for, if a limiter counts them.
    pub(crate) fn exceeded(&self) -> Option<&Words> {
        self.exceeded.words.get()
    }

    /// Packets that were charged to each bucket, if a limiter counts them.
    pub(crate) fn passed(&self) -> Option<&Words> {
        self.passed.words.get()
    }
}

/// The buckets of a limiter, and what it counts for them.
#[derive(Clone, Debug)]
pub struct LimiterBuckets {
    /// Index among the limiters in [`Held`].
    pub wanted: usize,
    /// Offset from the first bucket of each entry.
    pub offset: u32,
    /// What the limiter counts.
    pub logged: Logged,
    /// The entries without a limit, in order. Their buckets may count for another generation that has a limit there.
    pub unlimited: Arc<[u32]>,
}

/// The counts of a program's limiters. Holds their buckets.
#[derive(Clone)]
pub struct Counted {
    pub(super) counts: Arc<Counts>,
    held: Arc<Held>,
    limiters: Arc<[LimiterBuckets]>,
}

impl Counted {
    /// The counts of these limiters, in the order of their numbers.
    pub(super) fn new(counts: Arc<Counts>, held: Arc<Held>, limiters: Vec<LimiterBuckets>) -> Self {
        Counted { counts, held, limiters: limiters.into() }
    }

    /// The same limiters with counts in the memory of maps.
    pub(crate) fn in_maps(&self, exceeded: Option<Words>, passed: Option<Words>) -> Self {
        Counted { counts: Arc::new(Counts::of_maps(exceeded, passed)), ..self.clone() }
    }

    /// The words.
    pub(crate) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The highest setting of any limiter.
    pub fn logged(&self) -> Logged {
        self.limiters.iter().map(|buckets| buckets.logged).max().unwrap_or_default()
    }

    /// Calls `visit` for each entry of a limiter with a nonzero count, in order. Does not disturb concurrent charges.
    pub fn each(&self, limiter: usize, visit: &mut dyn FnMut(usize, LimitCount)) {
        let Counts { exceeded, passed } = &*self.counts;
        self.each_by(limiter, Counter::get, (exceeded, passed), visit);
    }

    /// The same as [`Counted::each`], with the counts of the same bucket since the previous call, or since the start.
    /// Only one thread may call this.
    ///
    /// # Errors
    /// There is no memory for the previous counts.
    pub fn each_since(&self, limiter: usize, visit: &mut dyn FnMut(usize, LimitCount)) -> Result<(), EngineError> {
        let Counts { exceeded, passed } = &*self.counts;
        for counter in [exceeded, passed] {
            if let (Some(words), None) = (counter.words.get(), counter.before.get()) {
                let _other = counter.before.set(Words::reserve(words.all().len())?);
            }
        }
        self.each_by(limiter, Counter::take_new, (exceeded, passed), visit);
        Ok(())
    }

    fn each_by(
        &self,
        limiter: usize,
        read: fn(&Counter, u32) -> u64,
        (exceeded, passed): (&Counter, &Counter),
        visit: &mut dyn FnMut(usize, LimitCount),
    ) {
        let LimiterBuckets { wanted, offset, logged, ref unlimited } = self.limiters[limiter];
        if logged == Logged::Nothing {
            return;
        }
        let mut unlimited = unlimited.iter().peekable();
        for (entry, first) in self.held.slots(wanted).iter().enumerate() {
            if unlimited.next_if(|&&none| none as usize == entry).is_some() {
                continue;
            }
            let slot = first + offset;
            let passed = if logged == Logged::All { read(passed, slot) } else { 0 };
            let count = LimitCount { exceeded: read(exceeded, slot), passed };
            if count != LimitCount::default() {
                visit(entry, count);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Buckets;
    use super::super::pool::{Kind, Names, Pool, Wanted};
    use super::*;

    fn pool() -> Pool {
        Pool::new(7, Buckets::reserve(16).expect("it is little"))
    }

    /// A generation with two limiters by these labels, of which the second counts. Labels in capitals have no limit.
    fn generation(pool: &Pool, labels: &[&str], logged: Logged) -> Option<Counted> {
        let names = Names::Labels(labels.iter().map(|&label| Box::from(label)).collect());
        let held = pool
            .hold(vec![Wanted { name: "l".to_owned(), names, width: 2, kind: Kind::Buckets }], 0)
            .expect("there is room");
        let none = (1..).zip(labels).filter(|(_, label)| label.chars().all(char::is_uppercase)).map(|(entry, _)| entry);
        let unlimited: Arc<[u32]> = std::iter::once(0).chain(none).collect();
        let buckets =
            |offset: u32, logged: Logged| LimiterBuckets { wanted: 0, offset, logged, unlimited: unlimited.clone() };
        let limiters = vec![buckets(0, Logged::Nothing), buckets(1, logged)];
        pool.count(&held, limiters).expect("there is memory")
    }

    /// Counts packets at a bucket of the second limiter, like compiled code.
    fn count(counted: &Counted, entry: usize, exceeded: u64, passed: u64) {
        let slot = counted.held.slots(0)[entry] as usize + 1;
        for (words, packets) in [(counted.counts.exceeded(), exceeded), (counted.counts.passed(), passed)] {
            words.expect("it logs all").all()[slot].fetch_add(packets, Ordering::Relaxed);
        }
    }

    fn counts(read: impl FnOnce(&mut dyn FnMut(usize, LimitCount))) -> Vec<(usize, u64, u64)> {
        let mut counts = Vec::new();
        read(&mut |entry, LimitCount { exceeded, passed }| counts.push((entry, exceeded, passed)));
        counts
    }

    fn since(counted: &Counted) -> Vec<(usize, u64, u64)> {
        counts(|visit| counted.each_since(1, visit).expect("there is memory"))
    }

    #[test]
    fn counts_stay_with_names_and_begin_anew_with_others() {
        let pool = pool();
        let first = generation(&pool, &["a", "b"], Logged::All).expect("it logs");
        count(&first, 1, 3, 4);
        count(&first, 2, 5, 6);
        assert_eq!(counts(|visit| first.each(1, visit)), [(1, 3, 4), (2, 5, 6)]);
        assert_eq!(counts(|visit| first.each(0, visit)), [], "it does not log");
        assert_eq!(since(&first).len(), 2);
        // b is removed and c is added, so c gets the bucket of b.
        let second = generation(&pool, &["c", "a"], Logged::Exceeded).expect("it logs");
        assert_eq!(counts(|visit| second.each(1, visit)), [(2, 3, 0)], "what passed is not its own");
        let slot_of_b = first.held.slots(0)[2];
        drop(first);
        let third = generation(&pool, &["d", "a"], Logged::All).expect("it logs");
        assert_eq!(third.held.slots(0)[1], slot_of_b);
        assert_eq!(counts(|visit| third.each(1, visit)), [(2, 3, 4)]);
        count(&third, 1, 1, 1);
        assert_eq!(since(&third), [(1, 1, 1)], "what was read of b is forgotten too");
    }

    #[test]
    fn what_is_new_is_told_once() {
        let pool = pool();
        let first = generation(&pool, &["a", "b"], Logged::All).expect("it logs");
        count(&first, 1, 3, 4);
        assert_eq!((since(&first), since(&first)), (vec![(1, 3, 4)], vec![]));
        count(&first, 1, 0, 1);
        count(&first, 2, 1, 0);
        let second = generation(&pool, &["a"], Logged::All).expect("it logs");
        assert_eq!(since(&second), [(1, 0, 1)]);
        assert_eq!(since(&first), [(2, 1, 0)], "the rest");
        assert_eq!(counts(|visit| first.each(1, visit)), [(1, 3, 5), (2, 1, 0)], "the sums stay");
    }

    #[test]
    fn what_has_no_limit_any_more_is_left_to_who_had_one() {
        let pool = pool();
        let first = generation(&pool, &["a", "B"], Logged::All).expect("it logs");
        let second = generation(&pool, &["a", "B"], Logged::All).expect("it logs");
        assert_eq!(first.held.slots(0), second.held.slots(0));
        count(&first, 1, 1, 1);
        count(&first, 2, 1, 1);
        assert_eq!(counts(|visit| second.each(1, visit)), [(1, 1, 1)]);
        assert_eq!(since(&second), [(1, 1, 1)]);
        let had = Counted {
            limiters: Arc::new([
                first.limiters[0].clone(),
                LimiterBuckets { unlimited: [].into(), ..first.limiters[1].clone() },
            ]),
            ..first
        };
        assert_eq!(since(&had), [(2, 1, 1)]);
    }

    #[test]
    fn who_does_not_log_has_no_counts() {
        let pool = pool();
        assert!(generation(&pool, &["a"], Logged::Nothing).is_none());
        let exceeded = generation(&pool, &["a"], Logged::Exceeded).expect("it logs");
        assert!(exceeded.counts.exceeded().is_some() && exceeded.counts.passed().is_none());
        let _all = generation(&pool, &["a"], Logged::All).expect("it logs");
        assert!(exceeded.counts.passed().is_some());
    }
}
