//! Buckets across generations: a kept bucket is the same word, a released one is free again.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashSet;
use std::sync::Arc;

use weir_abi::limit::ticks;
use weir_abi::{Family, each};
use weir_state::Declared;
use weir_state::limits::{Buckets, BucketsDeclared, EntryNames, LimitBinding, LimitStore, WordFormat};
use weir_tables::{BadLines, LimitTable, PrefixLimits};

fn list(text: &str) -> Arc<LimitTable> {
    let mut limits = PrefixLimits::default();
    limits.read("l.csv", text.as_bytes(), BadLines::Refuse).unwrap();
    Arc::new(limits.settle().unwrap())
}

fn prefixes(name: &str, text: &str) -> Declared<BucketsDeclared> {
    let entries = EntryNames::Prefixes(list(text), Family::Ipv4);
    declared(name, BucketsDeclared { entries, width: 1, format: WordFormat::Buckets })
}

fn declared(name: &str, declaration: BucketsDeclared) -> Declared<BucketsDeclared> {
    Declared { name: name.to_owned(), declaration }
}

fn store(count: usize) -> LimitStore {
    LimitStore::new(7, Buckets::reserve(count).unwrap())
}

fn slots(binding: &LimitBinding, limiter: usize) -> Vec<u32> {
    binding.object(limiter).slots().to_vec()
}

#[test]
fn a_prefix_that_stays_keeps_its_bucket_whatever_its_rate() {
    let store = store(100);
    let first =
        store.bind(vec![prefixes("customers/upstream/0", "10.0.0.0/8,5\n10.1.0.0/16,5\n192.0.2.0/24,9\n")], 7).unwrap();
    let old = slots(&first, 0);
    assert_eq!(old.iter().collect::<HashSet<_>>().len(), 4, "one each, and one for all others");
    assert!(!old.contains(&0), "a ticket of 0 is no limit");
    assert!(old.iter().all(|&slot| store.buckets().word(slot) == ticks(7)), "they are full");

    let changed = "10.0.0.0/9,5\n10.1.0.0/16,20kpps\n192.0.2.0/24,1mbit\n203.0.113.0/24,3\n";
    let second = store.bind(vec![prefixes("customers/upstream/0", changed)], 9).unwrap();
    let new = slots(&second, 0);
    assert_eq!((new[0], new[2], new[3]), (old[0], old[2], old[3]));
    assert!(![new[1], new[4]].iter().any(|slot| old.contains(slot)), "a longer prefix is another");
    assert_eq!((store.buckets().word(new[1]), store.buckets().word(new[2])), (ticks(9), ticks(7)));

    // Another statement, direction or list has its own buckets.
    let third = store.bind(vec![prefixes("customers/downstream/0", changed)], 9).unwrap();
    assert!(slots(&third, 0).iter().all(|slot| !old.contains(slot) && !new.contains(slot)));
}

#[test]
fn a_bucket_is_free_when_nobody_holds_it() {
    // The unused bucket, and five others.
    let store = store(6);
    let text = "10.0.0.0/8,5\n11.0.0.0/8,5\n";
    let first = store.bind(vec![prefixes("a", text)], 1).unwrap();
    let again = store.bind(vec![prefixes("a", text)], 2).unwrap();
    assert_eq!(slots(&first, 0), slots(&again, 0));
    let more = "12.0.0.0/8,5\n13.0.0.0/8,5\n";
    let refused = store.bind(vec![prefixes("b", more)], 3).err().unwrap().to_string();
    assert_eq!(refused, "6 buckets: 2 are left, 3 more are needed");
    drop(first);
    assert!(store.bind(vec![prefixes("b", more)], 3).is_err(), "the other still holds them");
    let kept = slots(&again, 0);
    drop(again);
    let other = store.bind(vec![prefixes("b", more)], 4).unwrap();
    assert_eq!(other.object(0).slots().len(), 3);
    // Reused buckets are full.
    assert!(other.object(0).slots().iter().all(|&slot| store.buckets().word(slot) == ticks(4)), "{kept:?}");
}

#[test]
fn labels_keep_their_buckets_when_their_table_changes() {
    let store = store(100);
    let labels = |all: &[&str]| {
        let names = all.iter().map(|label| Box::from(*label)).collect::<Vec<_>>();
        let entries = EntryNames::Labels(names.into());
        vec![declared("countries", BucketsDeclared { entries, width: 1, format: WordFormat::Buckets })]
    };
    let first = store.bind(labels(&["HR", "SI", "AT"]), 0).unwrap();
    let second = store.bind(labels(&["AT", "DE", "HR"]), 0).unwrap();
    let (old, new) = (slots(&first, 0), slots(&second, 0));
    assert_eq!((new[1], new[3]), (old[3], old[1]));
    assert!(!old.contains(&new[2]));
}

#[test]
fn a_hundred_thousand_changed_limits_leave_the_others_alone() {
    let text = |changed: u32| -> String {
        (0..300_000u32)
            .map(|net| {
                let rate = if net < changed { 77 } else { 5 };
                format!("{}.{}.{}.0/24,{rate}\n", 1 + (net >> 16), net >> 8 & 255, net & 255)
            })
            .collect()
    };
    let store = store(1 << 20);
    let first = store.bind(vec![prefixes("customers", &text(0))], 0).unwrap();
    let second = store.bind(vec![prefixes("customers", &text(100_000))], 1).unwrap();
    assert_eq!(first.object(0).slots(), second.object(0).slots());
}

#[test]
fn limiters_of_one_list_have_neighbouring_buckets() {
    let store = store(100);
    let both = |text: &str| {
        let one = prefixes("customers/ipv4", text);
        declared(&one.name, BucketsDeclared { width: 2, ..one.declaration })
    };
    let first = store.bind(vec![both("10.0.0.0/8,5\n11.0.0.0/8,5\n")], 3).unwrap();
    let slots: Vec<u32> = first.object(0).slots().to_vec();
    let all: HashSet<u32> = slots.iter().flat_map(|&slot| [slot, slot + 1]).collect();
    assert_eq!(all.len(), 6);
    assert!(all.iter().all(|&slot| store.buckets().word(slot) == ticks(3)));
    let second = store.bind(vec![both("11.0.0.0/8,7\n")], 4).unwrap();
    assert_eq!(second.object(0).slots(), [slots[0], slots[2]]);
    assert_eq!(store.addresses(4), None, "no bucket is an address's");
    // One limiter less is another arrangement.
    let alone = store.bind(vec![prefixes("customers/ipv4", "11.0.0.0/8,7\n")], 5).unwrap();
    assert!(alone.object(0).slots().iter().all(|slot| !all.contains(slot)));
}

/// Alignment between tables of addresses leaves single buckets unused. A request is refused or fulfilled completely,
/// for every size of the store.
#[test]
fn room_that_alignment_takes_is_counted() {
    let one = |name: String, width: u32, format: WordFormat| {
        declared(&name, BucketsDeclared { entries: EntryNames::One, width, format })
    };
    let table = |nth: usize| one(format!("each {nth}"), 1024, WordFormat::AddressTable { coarse: 0 });
    let single = |nth: usize| one(format!("rate {nth}"), 1, WordFormat::Buckets);
    let wanted = || (0..3).flat_map(|nth| [single(nth), table(nth)]).collect::<Vec<_>>();
    let held = (3000..3200).map(|count| store(count).bind(wanted(), 0).is_ok()).collect::<Vec<_>>();
    assert!(held.is_sorted() && !held[0] && held[199], "{held:?}");
}

/// Seats are names of flows, not times.
#[test]
fn seats_are_kept_as_they_are_while_their_number_stays() {
    let store = store(9000);
    let table = |seats: u16| {
        let width = weir_abi::seats::table_words(1024, seats) as u32;
        declared("each", BucketsDeclared { entries: EntryNames::One, width, format: WordFormat::Seats(seats) })
    };
    let held = store.bind(vec![prefixes("l", "10.0.0.0/8,5\n"), table(2)], 700).unwrap();
    let first = held.object(1).slots()[0];
    let word = |slot: u32| store.buckets().word(slot);
    assert!(first.is_multiple_of(8) && (first..first + 3072).all(|slot| word(slot) == 0));
    store.refresh(90_000);
    assert!((first..first + 3072).all(|slot| word(slot) == 0));
    assert_eq!(word(held.object(0).slots()[0]), ticks(90_000));
    let again = store.bind(vec![table(2)], 800).unwrap();
    assert_eq!(again.object(0).slots(), [first]);
    let other = store.bind(vec![table(3)], 900).unwrap();
    assert_ne!(other.object(0).slots(), [first], "another number begins without connections");
}

#[test]
fn tables_of_addresses_begin_at_cache_lines_and_are_refreshed_in_their_own_ticks() {
    let store = store(5000);
    let table = |name: &str, coarse| {
        let format = WordFormat::AddressTable { coarse };
        declared(name, BucketsDeclared { entries: EntryNames::One, width: 1024, format })
    };
    let held =
        store.bind(vec![prefixes("l", "10.0.0.0/8,5\n"), table("a", 9), prefixes("m", "10.0.0.0/8,5\n")], 700).unwrap();
    let first = held.object(1).slots()[0];
    assert!(first.is_multiple_of(8));
    let word = |slot: u32| store.buckets().word(slot);
    assert!((first..first + 1024).all(|slot| word(slot) == each::ticks(700, 9)));
    let others: Vec<u32> = [0, 2].iter().flat_map(|&wanted| held.object(wanted).slots().to_vec()).collect();
    assert!(others.iter().all(|slot| !(first..first + 1024).contains(slot) && word(*slot) == ticks(700)));

    assert_eq!(store.addresses(700), Some([0, 1024]));
    assert_eq!(store.addresses(600), Some([1024, 1024]), "their words are in the future");
    store.refresh(90_000);
    assert!((first..first + 1024).all(|slot| word(slot) == each::ticks(90_000, 9)));
    assert!(others.iter().all(|&slot| word(slot) == ticks(90_000)));

    // A table that stays the same is kept. A table with other ticks is new.
    let again = store.bind(vec![table("a", 9), table("a", 10)], 95_000).unwrap();
    assert_eq!(again.object(0).slots()[0], first);
    let other = again.object(1).slots()[0];
    assert!(other.is_multiple_of(8) && word(other) == each::ticks(95_000, 10));
    let refused = store.bind(vec![table("b", 0), table("c", 0), table("d", 0)], 0).err().unwrap().to_string();
    assert!(refused.ends_with("3093 more are needed"), "{refused}");
    // Other tables can use released buckets.
    drop((held, again));
    let last = store.bind(vec![table("e", 3)], 96_000).unwrap().object(0).slots()[0];
    assert!(last == first || last == other);
}
