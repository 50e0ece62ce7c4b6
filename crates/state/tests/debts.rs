//! Debts of buckets when another limit charges them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use weir_abi::limit::{ROOM_MAX, charge, ticks};
use weir_abi::{Family, Limit, LimitEntries, LimitEntry, LimitProfile, Rate, each};
use weir_state::limits::{
    Buckets, BucketsDeclared, EntryName, EntryNames, LimitBinding, LimitStore, LimiterBuckets, Limits, SavedDebt,
    SavedDebts, WordFormat,
};
use weir_state::{Declared, now_ns};
use weir_tables::limit_image::{Found, LimitImage, Limiter, Logged};
use weir_tables::{BadLines, PrefixLimits};

const SECOND: u64 = 1_000_000_000;

fn profile(rate: &str, burst: &str) -> LimitProfile {
    limit(rate, burst).profile()
}

fn limit(rate: &str, burst: &str) -> Limit {
    Limit::new(Rate::parse(rate).unwrap(), Some(burst)).unwrap()
}

/// The limits of a generation with one list of /24s, which has two limiters.
fn generation(store: &LimitStore, limits: &[Option<LimitProfile>]) -> Limits {
    let mut list = PrefixLimits::default();
    let text: String = (0..limits.len()).map(|net| format!("10.0.{net}.0/24,1\n")).collect();
    list.read("l.csv", text.as_bytes(), BadLines::Refuse).unwrap();
    let names = EntryNames::Prefixes(Arc::new(list.settle().unwrap()), Family::Ipv4);
    let entry = |index: u32| LimitEntry { profile: index, parent: 0 };
    let mut entries = LimitEntries { profiles: vec![LimitProfile::default()], entries: vec![entry(0)] };
    for (limit, number) in limits.iter().zip(1..) {
        entries.profiles.push(limit.unwrap_or_default());
        entries.entries.push(entry(if limit.is_some() { number } else { 0 }));
    }
    let declaration = BucketsDeclared { entries: names, width: 2, format: WordFormat::Buckets };
    bound(store, declaration, &entries, 2, Found::ByTicket)
}

fn bound(
    store: &LimitStore,
    declaration: BucketsDeclared,
    entries: &LimitEntries,
    limiters: u32,
    found: Found,
) -> Limits {
    let binding: Arc<LimitBinding> = store.bind(vec![Declared { name: "l".to_owned(), declaration }], 0).unwrap();
    let slots = binding.object(0).slots();
    let limiter = |offset| Limiter { limits: entries, slots, offset, found, logged: Logged::Nothing };
    let image = LimitImage::build(&(0..limiters).map(limiter).collect::<Vec<_>>()).unwrap();
    let buckets =
        |offset| LimiterBuckets { declared: 0, offset, logged: Logged::Nothing, exceeders: None, unlimited: [].into() };
    Limits {
        image: Arc::new(image),
        buckets: store.buckets().clone(),
        limiters: (0..limiters).map(buckets).collect(),
        binding,
        counted: None,
    }
}

fn word(limits: &Limits, slot: u32) -> &AtomicU64 {
    // SAFETY: the bucket exists as long as the limits, and all accesses are atomic.
    unsafe { AtomicU64::from_ptr(limits.buckets.as_ptr().add(slot as usize)) }
}

fn set(limits: &Limits, slot: u32, value: u64) {
    word(limits, slot).store(value, Ordering::Relaxed);
}

#[test]
fn a_raised_limit_is_not_shut_for_the_old_debt() {
    let store = LimitStore::new(7, Buckets::reserve(100).unwrap());
    let (slow, fast, closed) = (profile("1", "10"), profile("10kpps", "100"), profile("0", "10"));
    let first = generation(&store, &[Some(slow); 5]);
    let slots = first.binding.object(0).slots().to_vec();
    let now = 50 * SECOND;
    // Ten packets at once: a debt of ten seconds.
    let full = (0..10).fold(ticks(now), |word, _| charge(word, ticks(now), slow.cost(60), slow.room).unwrap());
    assert_eq!(full, ticks(now + 10 * SECOND));
    let second = generation(&store, &[Some(fast), Some(fast), Some(slow), Some(closed), None]);
    assert_eq!(second.binding.object(0).slots(), slots);
    let small = ticks(now) + fast.room / 2;
    for (entry, word) in [(1, full), (2, small), (3, full), (4, full), (5, full)] {
        // The second limiter has the second of the neighbouring buckets.
        set(&first, slots[entry], word);
        set(&first, slots[entry] + 1, word);
    }
    // Without this the limit of 10,000 packets a second is shut for almost ten seconds.
    let shut = |now: u64| charge(store.buckets().word(slots[1] + 1), ticks(now), fast.cost(60), fast.room).is_none();
    assert!(shut(now + 9 * SECOND + 989_999_999));

    assert!(second.bound_debts(&|| now));
    for limiter in [0, 1] {
        let word = |entry: usize| store.buckets().word(slots[entry] + limiter);
        assert_eq!(word(1), ticks(now) + fast.room, "the bucket is empty");
        assert_eq!([2, 3, 4, 5].map(word), [small, full, full, full], "no other bucket changes");
    }
    assert!(shut(now + 99_999) && !shut(now + 100_000), "the first packet passes when the new rate has earned it");
    assert!(!second.bound_debts(&|| now), "once");
    assert!(!first.bound_debts(&|| now), "after a rollback the debt is that of the fast limit");
}

#[test]
fn a_kept_debt_is_saved_until_it_is_paid_and_restored_within_the_largest_room() {
    let store = LimitStore::new(7, Buckets::reserve(100).unwrap());
    let keep = |until_ns: u64| {
        let debts = vec![SavedDebt { entry: EntryName::First, limiter: 0, until_ns }];
        store.keep_debts(vec![SavedDebts { name: "l".to_owned(), debts }]);
    };
    keep(10 * SECOND);
    assert_eq!([10 * SECOND - 1, 10 * SECOND].map(|now| store.debts(now).len()), [1, 0]);
    keep(u64::MAX);
    let limits = generation(&store, &[Some(profile("1", "10"))]);
    assert_eq!(store.buckets().word(limits.binding.object(0).slots()[0]), ROOM_MAX);
}

#[test]
fn addresses_keep_their_words_with_less_debt() {
    let store = LimitStore::new(7, Buckets::reserve(5000).unwrap());
    let generation = |limit: Limit| {
        let profile = each::profile(limit).unwrap();
        let format = WordFormat::AddressTable { coarse: profile.coarse };
        let declaration = BucketsDeclared { entries: EntryNames::One, width: 1024, format };
        let found = Found::ByHash { set_bits: each::set_bits(1024), seed: 7, seats: 0 };
        (profile, bound(&store, declaration, &LimitEntries::single(profile), 1, found))
    };
    let (old, first) = generation(limit("100", "3000"));
    let (new, second) = generation(limit("110", "10"));
    assert_eq!(old.coarse, new.coarse, "the table is kept");
    let slot = first.binding.object(0).slots()[0] + 1000;
    let now = each::ticks(50 * SECOND, old.coarse);
    let word = |debt: u64| 0xabcd << each::TIME_BITS | (now + debt);
    set(&first, slot, word(old.room));
    set(&first, slot + 1, word(new.room));
    assert!(second.bound_debts(&|| 50 * SECOND));
    assert_eq!([slot, slot + 1].map(|slot| store.buckets().word(slot)), [word(new.room); 2]);
}

/// A bucket is charged at full speed while debts are bounded again and again. The first reading of the clock is old, as
/// in a scan of many buckets. The bucket passes no packet more than its limit.
#[test]
fn packets_that_pass_meanwhile_are_never_refunded() {
    let store = LimitStore::new(7, Buckets::reserve(100).unwrap());
    let limit = profile("100kpps", "2000");
    let generation = generation(&store, &[Some(limit)]);
    let slot = generation.binding.object(0).slots()[1];
    let word = word(&generation, slot);
    let begun = now_ns();
    word.store(ticks(begun), Ordering::Relaxed);
    let ended = AtomicBool::new(false);
    let passed = thread::scope(|scope| {
        let charging = scope.spawn(|| {
            let mut passed = 0u64;
            while !ended.load(Ordering::Relaxed) {
                let found = word.load(Ordering::Relaxed);
                let Some(new) = charge(found, ticks(now_ns()), limit.cost(60), limit.room) else { continue };
                let exchanged = word.compare_exchange(found, new, Ordering::Relaxed, Ordering::Relaxed);
                passed += u64::from(exchanged.is_ok());
            }
            passed
        });
        while now_ns() < begun + SECOND / 2 {
            let old = Cell::new(Some(now_ns() - 1_000_000));
            generation.bound_debts(&|| old.take().unwrap_or_else(now_ns));
        }
        ended.store(true, Ordering::Relaxed);
        charging.join().unwrap()
    });
    let most = 2000 + (now_ns() - begun) / 10_000 + 1;
    assert!(passed <= most, "{passed} packets, at most {most}");
    assert!(passed > most / 10, "{passed} packets of {most}");
}
