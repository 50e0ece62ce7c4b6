//! Tables whose entries are numbered, against a model: lookups return the number of the longest prefix, which leads to
//! its label, and no number is used again while a reader may still hold it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use proptest::prelude::*;
use weir_abi::{Family, Layout};
use weir_tables::live::{Change, LiveError, LiveTable, NumberedMemory, PublishedImage, Readers};
use weir_tables::{Entries, Kind, Table};

/// Labels and counts by number, as the state of tables keeps them.
struct Memory {
    labels: Vec<AtomicU32>,
    counts: Vec<AtomicU64>,
    /// Numbers that must not begin: readers still hold them.
    held: Mutex<HashSet<u32>>,
    /// Numbers of hits that a reader has noted and not counted.
    noted: Mutex<HashSet<u32>>,
}

impl Memory {
    fn new(capacity: usize) -> Arc<Self> {
        let labels = (0..capacity).map(|_| AtomicU32::new(0)).collect();
        let counts = (0..capacity).map(|_| AtomicU64::new(0)).collect();
        Arc::new(Memory { labels, counts, held: Mutex::default(), noted: Mutex::default() })
    }

    fn held(&self) -> MutexGuard<'_, HashSet<u32>> {
        self.held.lock().expect("nobody panics with the lock")
    }

    fn noted(&self) -> MutexGuard<'_, HashSet<u32>> {
        self.noted.lock().expect("nobody panics with the lock")
    }

    fn label(&self, number: u32) -> u32 {
        self.labels[number as usize].load(Ordering::Relaxed)
    }

    fn hit(&self, number: u32) {
        self.counts[number as usize].fetch_add(1, Ordering::Relaxed);
    }

    fn count(&self, number: u32) -> u64 {
        self.counts[number as usize].load(Ordering::Relaxed)
    }
}

impl NumberedMemory for Memory {
    fn capacity(&self) -> usize {
        self.labels.len()
    }

    fn begin(&self, number: u32, label: u32) {
        assert!(!self.held().contains(&number), "number {number} is used again too early");
        assert!(!self.noted().contains(&number), "a hit of number {number} is not counted yet");
        self.counts[number as usize].store(0, Ordering::Relaxed);
        self.labels[number as usize].store(label, Ordering::Relaxed);
    }

    fn carry(&self, from: u32, to: u32, label: u32) {
        self.begin(to, label);
        self.counts[to as usize].store(self.count(from), Ordering::Relaxed);
    }

    fn forget(&self, numbers: &[u32]) -> Vec<u32> {
        let mut noted = self.noted();
        numbers.iter().copied().filter(|number| noted.remove(number)).collect()
    }

    fn set_label(&self, number: u32, label: u32) {
        self.labels[number as usize].store(label, Ordering::Relaxed);
    }
}

const LABELS: [&str; 3] = ["AA", "BB", "CC"];

fn table(kind: Kind, prefixes: &[(u32, u8, usize)]) -> Table {
    let mut entries = Entries::with_labels(Family::Ipv4, kind, &LABELS.map(Into::into));
    for &(addr, len, label) in prefixes {
        let label = (kind == Kind::Labels).then_some(LABELS[label]);
        entries.insert_prefix(IpAddr::V4(addr.into()), len, label).expect("a prefix");
    }
    entries.settle()
}

fn live(kind: Kind, prefixes: &[(u32, u8, usize)], memory: &Arc<Memory>) -> (Readers, LiveTable) {
    let (readers, table) = (Readers::new(), table(kind, prefixes));
    let image = Arc::new(table.build_numbered(Layout::RankLeaf).expect("rank leaves hold it"));
    for (number, prefix) in (1..).zip(table.prefixes4()) {
        memory.set_label(number, prefix.label);
    }
    let published = PublishedImage::new(&readers, image);
    let live = LiveTable::take_over_numbered(published, &table, Layout::RankLeaf, memory.clone());
    (readers, live)
}

/// A change of the model and of the table.
#[derive(Clone, Debug)]
enum Act {
    Set(u32, u8, usize),
    Remove(u32, u8),
    /// Whether at once.
    Replace(Vec<(u32, u8, usize)>, bool),
    Hit(u32),
    /// Readers begin another burst.
    Pass,
}

fn prefix() -> impl Strategy<Value = (u32, u8, usize)> {
    // Few addresses, so that changes meet.
    (0u32..8, prop_oneof![Just(8u8), Just(16), Just(24), Just(31), Just(32)], 0..LABELS.len()).prop_map(
        |(addr, len, label)| {
            let addr = 0x0a00_0000 | addr << 22 | addr;
            (addr & (u32::MAX << (32 - u32::from(len))), len, label)
        },
    )
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => prefix().prop_map(|(addr, len, label)| Act::Set(addr, len, label)),
        3 => prefix().prop_map(|(addr, len, _)| Act::Remove(addr, len)),
        1 => (prop::collection::vec(prefix(), 0..6), any::<bool>()).prop_map(|(all, at_once)| Act::Replace(all, at_once)),
        4 => prefix().prop_map(|(addr, ..)| Act::Hit(addr)),
        2 => Just(Act::Pass),
    ]
}

/// Label and hits by prefix, longest first.
type Model = BTreeMap<(u8, u32), (u32, u64)>;

fn longest(model: &Model, addr: u32) -> Option<(u8, u32)> {
    let covers = |&&(len, of): &&(u8, u32)| addr & (u32::MAX << (32 - u32::from(len))) == of;
    model.keys().rev().find(covers).copied()
}

/// Checks all entries, and the number that a lookup of each address finds.
fn check(model: &Model, live: &LiveTable, readers: &Readers, memory: &Memory, kind: Kind) {
    let numbers: HashMap<(u8, u32), u32> = live
        .entries(0)
        .map(|entry| {
            let IpAddr::V4(addr) = entry.addr else { panic!("an IPv4 table") };
            ((entry.len, u32::from(addr)), entry.number)
        })
        .collect();
    assert_eq!(numbers.len(), model.len());
    let distinct: HashSet<&u32> = numbers.values().collect();
    assert_eq!(distinct.len(), model.len(), "each entry has its own number");
    let mut reader = readers.register().expect("there are few");
    let (burst, image) = (reader.start_burst(), live.image());
    let view = image.open(&burst);
    for (&key, &(label, hits)) in model {
        let number = numbers[&key];
        assert_eq!((memory.label(number), memory.count(number)), (label, hits), "{key:?}");
        let at = IpAddr::V4(Ipv4Addr::from(key.1));
        let found = longest(model, key.1).map_or(0, |longest| numbers[&longest]);
        assert_eq!(view.find4(key.1), found, "{key:?}");
        if kind == Kind::Labels {
            let entry = live.entries(0).find(|entry| entry.addr == at && entry.len == key.0).expect("it is there");
            assert_eq!(entry.label, Some(LABELS[label as usize - 1]));
        }
    }
}

fn run(kind: Kind, first: &[(u32, u8, usize)], acts: Vec<Act>) {
    let memory = Memory::new(64);
    let (readers, mut live) = live(kind, first, &memory);
    let id = |label: usize| if kind == Kind::Labels { label as u32 + 1 } else { 1 };
    let mut model: Model = first.iter().map(|&(addr, len, label)| ((len, addr), (id(label), 0))).collect();
    // A reader that stays in one burst until `Pass`. It may use every number that was published since.
    let mut reader = readers.register().expect("the first");
    let _burst = reader.start_burst();
    let mut used: HashSet<u32> = live.entries(0).map(|entry| entry.number).collect();
    for act in acts {
        match act {
            Act::Set(addr, len, label) => {
                let text = (kind == Kind::Labels).then_some(LABELS[label]);
                live.change(&[Change::insert(IpAddr::V4(addr.into()), len, text)]).expect("there is room");
                model.entry((len, addr)).or_insert((0, 0)).0 = id(label);
            }
            Act::Remove(addr, len) => {
                live.remove(IpAddr::V4(addr.into()), len).expect("removal needs no room");
                model.remove(&(len, addr));
            }
            Act::Replace(all, at_once) => {
                let list = table(kind, &all);
                match at_once {
                    true => live.at_once(|live| live.replace(0, &list)).map(drop),
                    false => live.replace(0, &list).map(drop),
                }
                .expect("there is room");
                let kept: Model = list
                    .prefixes4()
                    .iter()
                    .map(|prefix| {
                        let key = (prefix.len, prefix.addr);
                        (key, (prefix.label, model.get(&key).map_or(0, |&(_, hits)| hits)))
                    })
                    .collect();
                model = kept;
            }
            Act::Hit(addr) => {
                let mut other = readers.register().expect("there are few");
                let (burst, image) = (other.start_burst(), live.image());
                let number = image.open(&burst).find4(addr);
                let found = longest(&model, addr);
                assert_eq!(number != 0, found.is_some());
                if let Some(key) = found {
                    memory.hit(number);
                    model.get_mut(&key).expect("it was found").1 += 1;
                }
            }
            Act::Pass => {
                let _burst = reader.start_burst();
                memory.held().clear();
                used.clear();
            }
        }
        let now: HashSet<u32> = live.entries(0).map(|entry| entry.number).collect();
        // What is no longer in the table may still be read.
        memory.held().extend(used.difference(&now));
        used.extend(now);
        check(&model, &live, &readers, &memory, kind);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn sets_agree_with_the_model(first in prop::collection::btree_set(prefix(), 0..6), acts in prop::collection::vec(act(), 0..40)) {
        run(Kind::Set, &distinct(first), acts);
    }

    #[test]
    fn maps_agree_with_the_model(first in prop::collection::btree_set(prefix(), 0..6), acts in prop::collection::vec(act(), 0..40)) {
        run(Kind::Labels, &distinct(first), acts);
    }
}

/// One label for each prefix.
fn distinct(prefixes: impl IntoIterator<Item = (u32, u8, usize)>) -> Vec<(u32, u8, usize)> {
    let by_prefix: BTreeMap<(u32, u8), usize> =
        prefixes.into_iter().map(|(addr, len, label)| ((addr, len), label)).collect();
    by_prefix.into_iter().map(|((addr, len), label)| (addr, len, label)).collect()
}

#[test]
fn a_number_with_a_hit_that_is_not_counted_waits_for_readers_once_more() {
    let memory = Memory::new(3);
    let (readers, mut live) = live(Kind::Set, &[(0x0a00_0001, 32, 0), (0x0a00_0002, 32, 0)], &memory);
    let host = |addr: u32| IpAddr::V4((0x0a00_0000 | addr).into());
    let number = live.entries(0).find(|entry| entry.addr == host(1)).expect("it is there").number;
    live.remove(host(1), 32).expect("removal needs no room");
    memory.noted().insert(number);
    let add = |live: &mut LiveTable| live.change(&[Change::insert(host(3), 32, None)]);
    // The hit is found, and a reader may be counting it.
    let mut reader = readers.register().expect("the first");
    let _first = reader.start_burst();
    assert_eq!(add(&mut live).expect_err("there is no other number"), LiveError::NoNumber { entries: 2 });
    assert!(memory.noted().is_empty());
    assert!(add(&mut live).is_err());
    let _second = reader.start_burst();
    add(&mut live).expect("the reader has passed");
    assert!(live.entries(0).any(|entry| entry.addr == host(3) && entry.number == number));
}

#[test]
fn a_table_without_free_numbers_refuses_and_loses_nothing() {
    let memory = Memory::new(5);
    let (readers, mut live) = live(Kind::Set, &[(0x0a00_0001, 32, 0), (0x0a00_0002, 32, 0)], &memory);
    let host = |addr: u32| IpAddr::V4((0x0a00_0000 | addr).into());
    live.change(&[Change::insert(host(3), 32, None), Change::insert(host(4), 32, None)]).expect("numbers 3 and 4");
    let full = LiveError::NoNumber { entries: 4 };
    for _ in 0..3 {
        let changes: Vec<Change<'_>> = (5..8).map(|addr| Change::insert(host(addr), 32, None)).collect();
        assert_eq!(live.change(&changes), Err(full.clone()));
    }
    assert_eq!(live.len(), 4);
    live.remove(host(1), 32).expect("it is there");
    // There are no readers, so the number is free at once.
    live.insert(host(5), 32, None).expect("the number of the removed entry");
    assert_eq!(live.insert(host(6), 32, None), Err(full));
    let mut reader = readers.register().expect("the first");
    let (burst, image) = (reader.start_burst(), live.image());
    assert_eq!(image.open(&burst).find4(0x0a00_0005), 1);
}
