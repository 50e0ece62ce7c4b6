//! The counts of one generation's limiters.

use std::sync::Arc;

use weir_abi::Family;
use weir_abi::each::{self, EXCEEDER_SETS, PACKETS_MASK, RECORD_WORDS, WAYS};
use weir_tables::limit_image::Logged;

use super::counts::{Counter, Counts, LimitCount};
use super::limit_store::{LimitBinding, LimitStore};
use crate::StateError;
use crate::words::Words;

/// The buckets of a limiter, and what it counts for them.
#[derive(Clone, Debug)]
pub struct LimiterBuckets {
    /// Index of their declaration in the [`LimitBinding`].
    pub declared: usize,
    /// Offset from the first bucket of each entry.
    pub offset: u32,
    /// What the limiter counts.
    pub logged: Logged,
    /// The records of addresses, for a table of addresses.
    pub exceeders: Option<Exceeders>,
    /// The entries without a limit, in order. Their buckets may count for another generation that has a limit there.
    pub unlimited: Arc<[u32]>,
}

/// The records of the addresses that exceeded their limits most ([`weir_abi::each::RECORD_WORDS`]). They are among the
/// counts of packets without room, after the counts of the table's buckets.
#[derive(Clone, Copy, Debug)]
pub struct Exceeders {
    /// The family of the addresses.
    pub family: Family,
    /// Seed of the hash.
    pub seed: u32,
    /// Number of buckets before the records.
    pub buckets: u32,
}

/// The counts of a program's limiters. Holds their buckets.
#[derive(Clone)]
pub struct LimiterCounts {
    counts: Arc<Counts>,
    binding: Arc<LimitBinding>,
    limiters: Arc<[LimiterBuckets]>,
}

impl LimiterCounts {
    /// The counts of these limiters, in the order of their numbers; `None` if no limiter counts.
    ///
    /// # Errors
    /// There is no memory for counts.
    pub fn new(
        store: &LimitStore,
        binding: &Arc<LimitBinding>,
        limiters: Arc<[LimiterBuckets]>,
    ) -> Result<Option<Self>, StateError> {
        let counts = store.counts().clone();
        let counted = LimiterCounts { counts, binding: binding.clone(), limiters };
        if counted.logged() == Logged::Nothing {
            return Ok(None);
        }
        counted.counts.make(&store.buckets().0, counted.logged())?;
        Ok(Some(counted))
    }

    /// These limiters with counts in the memory of maps.
    pub fn in_maps(&self, exceeded: Option<Words>, passed: Option<Words>) -> Self {
        LimiterCounts { counts: Arc::new(Counts::of_maps(exceeded, passed)), ..self.clone() }
    }

    /// The words.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The highest setting of any limiter.
    pub fn logged(&self) -> Logged {
        self.limiters.iter().map(|buckets| buckets.logged).max().unwrap_or_default()
    }

    /// Calls `visit` for each entry of a limiter with a nonzero count, in order. Entries of a table of addresses are
    /// the addresses that exceeded most. Does not disturb concurrent charges.
    pub fn each(&self, limiter: usize, visit: &mut dyn FnMut(u128, LimitCount)) {
        let Counts { exceeded, passed } = &*self.counts;
        self.each_by(limiter, Counter::get, (exceeded, passed), visit);
    }

    /// Like [`LimiterCounts::each`], with the counts of the same bucket since the previous call, or since the start.
    /// Only one thread may call this.
    ///
    /// # Errors
    /// There is no memory for the previous counts.
    pub fn each_since(&self, limiter: usize, visit: &mut dyn FnMut(u128, LimitCount)) -> Result<(), StateError> {
        let Counts { exceeded, passed } = &*self.counts;
        exceeded.remember()?;
        passed.remember()?;
        self.each_by(limiter, Counter::take_new, (exceeded, passed), visit);
        Ok(())
    }

    fn each_by(
        &self,
        limiter: usize,
        read: fn(&Counter, u32) -> u64,
        (exceeded, passed): (&Counter, &Counter),
        visit: &mut dyn FnMut(u128, LimitCount),
    ) {
        let LimiterBuckets { declared, offset, logged, exceeders, ref unlimited } = self.limiters[limiter];
        if logged == Logged::Nothing {
            return;
        }
        if let Some(exceeders) = exceeders {
            let first = self.binding.object(declared).slots()[0] + exceeders.buckets;
            return exceeders.each(exceeded, first, read, visit);
        }
        let mut unlimited = unlimited.iter().peekable();
        for (entry, first) in self.binding.object(declared).slots().iter().enumerate() {
            if unlimited.next_if(|&&none| none as usize == entry).is_some() {
                continue;
            }
            let slot = first + offset;
            let passed = if logged == Logged::All { read(passed, slot) } else { 0 };
            let count = LimitCount { exceeded: read(exceeded, slot), passed };
            if count != LimitCount::default() {
                visit(entry as u128, count);
            }
        }
    }
}

impl Exceeders {
    /// Calls `visit` for each address that has a record with new packets. `first` is the first word of the records.
    fn each(
        self,
        exceeded: &Counter,
        first: u32,
        read: fn(&Counter, u32) -> u64,
        visit: &mut dyn FnMut(u128, LimitCount),
    ) {
        for (number, slot) in (0..).zip((first..).step_by(RECORD_WORDS)).take(EXCEEDER_SETS * WAYS) {
            let record: each::Record = std::array::from_fn(|word| exceeded.get(slot + word as u32));
            let Some(address) = each::exceeder(&record, number / WAYS, self.family, self.seed) else { continue };
            // The number of packets of a record never goes back, whichever address has it.
            let exceeded = read(exceeded, slot) & PACKETS_MASK;
            if exceeded > 0 {
                visit(address, LimitCount { exceeded, passed: 0 });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Buckets, BucketsDeclared, EntryNames, WordFormat};
    use super::*;
    use crate::Declared;
    use std::sync::atomic::Ordering;

    fn store() -> LimitStore {
        LimitStore::new(7, Buckets::reserve(16).expect("it is little"))
    }

    /// A generation with two limiters by these labels. The second one counts. Labels in capitals have no limit.
    fn generation(store: &LimitStore, labels: &[&str], logged: Logged) -> Option<LimiterCounts> {
        let entries = EntryNames::Labels(labels.iter().map(|&label| Box::from(label)).collect());
        let declaration = BucketsDeclared { entries, width: 2, format: WordFormat::Buckets };
        let declared = vec![Declared { name: "l".to_owned(), declaration }];
        let binding = store.bind(declared, 0).expect("there is room");
        let none = (1..).zip(labels).filter(|(_, label)| label.chars().all(char::is_uppercase)).map(|(entry, _)| entry);
        let unlimited: Arc<[u32]> = std::iter::once(0).chain(none).collect();
        let buckets = |offset: u32, logged: Logged| LimiterBuckets {
            declared: 0,
            offset,
            logged,
            exceeders: None,
            unlimited: unlimited.clone(),
        };
        let limiters = [buckets(0, Logged::Nothing), buckets(1, logged)].into();
        LimiterCounts::new(store, &binding, limiters).expect("there is memory")
    }

    /// Counts packets at a bucket of the second limiter, like compiled code.
    fn count(counted: &LimiterCounts, entry: usize, exceeded: u64, passed: u64) {
        let slot = counted.binding.object(0).slots()[entry] as usize + 1;
        for (words, packets) in [(counted.counts.exceeded(), exceeded), (counted.counts.passed(), passed)] {
            words.expect("it logs all").all()[slot].fetch_add(packets, Ordering::Relaxed);
        }
    }

    fn counts(read: impl FnOnce(&mut dyn FnMut(u128, LimitCount))) -> Vec<(u128, u64, u64)> {
        let mut counts = Vec::new();
        read(&mut |entry, LimitCount { exceeded, passed }| counts.push((entry, exceeded, passed)));
        counts
    }

    fn since(counted: &LimiterCounts) -> Vec<(u128, u64, u64)> {
        counts(|visit| counted.each_since(1, visit).expect("there is memory"))
    }

    #[test]
    fn counts_stay_with_names_and_begin_anew_with_others() {
        let store = store();
        let first = generation(&store, &["a", "b"], Logged::All).expect("it logs");
        count(&first, 1, 3, 4);
        count(&first, 2, 5, 6);
        assert_eq!(counts(|visit| first.each(1, visit)), [(1, 3, 4), (2, 5, 6)]);
        assert_eq!(counts(|visit| first.each(0, visit)), [], "it does not log");
        assert_eq!(since(&first).len(), 2);
        // b is removed and c is added, so c gets the bucket of b.
        let second = generation(&store, &["c", "a"], Logged::Exceeded).expect("it logs");
        assert_eq!(counts(|visit| second.each(1, visit)), [(2, 3, 0)], "what passed is not its own");
        let slot_of_b = first.binding.object(0).slots()[2];
        drop(first);
        let third = generation(&store, &["d", "a"], Logged::All).expect("it logs");
        assert_eq!(third.binding.object(0).slots()[1], slot_of_b);
        assert_eq!(counts(|visit| third.each(1, visit)), [(2, 3, 4)]);
        count(&third, 1, 1, 1);
        assert_eq!(since(&third), [(1, 1, 1)], "what was read of b is forgotten too");
    }

    #[test]
    fn what_is_new_is_told_once() {
        let store = store();
        let first = generation(&store, &["a", "b"], Logged::All).expect("it logs");
        count(&first, 1, 3, 4);
        assert_eq!((since(&first), since(&first)), (vec![(1, 3, 4)], vec![]));
        count(&first, 1, 0, 1);
        count(&first, 2, 1, 0);
        let second = generation(&store, &["a"], Logged::All).expect("it logs");
        assert_eq!(since(&second), [(1, 0, 1)]);
        assert_eq!(since(&first), [(2, 1, 0)], "the rest");
        assert_eq!(counts(|visit| first.each(1, visit)), [(1, 3, 5), (2, 1, 0)], "the sums stay");
    }

    #[test]
    fn what_has_no_limit_any_more_is_left_to_who_had_one() {
        let store = store();
        let first = generation(&store, &["a", "B"], Logged::All).expect("it logs");
        let second = generation(&store, &["a", "B"], Logged::All).expect("it logs");
        assert_eq!(first.binding.object(0).slots(), second.binding.object(0).slots());
        count(&first, 1, 1, 1);
        count(&first, 2, 1, 1);
        assert_eq!(counts(|visit| second.each(1, visit)), [(1, 1, 1)]);
        assert_eq!(since(&second), [(1, 1, 1)]);
        let had = LimiterCounts {
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
        let store = store();
        assert!(generation(&store, &["a"], Logged::Nothing).is_none());
        let exceeded = generation(&store, &["a"], Logged::Exceeded).expect("it logs");
        assert!(exceeded.counts.exceeded().is_some() && exceeded.counts.passed().is_none());
        let _all = generation(&store, &["a"], Logged::All).expect("it logs");
        assert!(exceeded.counts.passed().is_some());
    }
}
