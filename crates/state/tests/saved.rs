//! Tables on disk: what is there after a process ended at any moment, and what damage costs.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/process.rs"]
mod process;
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use process::Process;
use support::{image, labels, set};
use weir_abi::limit::ticks;
use weir_abi::{Family, Layout};
use weir_state::limits::{BucketsDeclared, EntryNames, LimitNeeds, SavedDebts, WordFormat};
use weir_state::saved::{Clocks, Folder, restore};
use weir_state::tables::{DynamicBounds, ImageDeclared, TableChange};
use weir_state::{Declared, SharedState, UsedBy};
use weir_tables::{BadLines, LimitTable, PrefixLimits, Table};

const MS: u64 = 1_000_000;

fn declared(name: &str, elements: Arc<Table>, layout: Layout, size: usize) -> Declared<ImageDeclared> {
    image(&[(name, &elements)], layout, Some(DynamicBounds { size, timeout_ms: None }))
}

fn nothing() -> Arc<Table> {
    set::<&str>(&[])
}

fn suspects() -> Declared<ImageDeclared> {
    declared("suspects", nothing(), Layout::RankLeaf, 1 << 20)
}

fn add(entries: &Table, timeout_ms: Option<u64>) -> TableChange<'_> {
    TableChange::Add { entries, timeout_ms }
}

fn files(path: &Path) -> BTreeSet<String> {
    fs::read_dir(path).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap()).collect()
}

fn newest(path: &Path, kind: &str) -> PathBuf {
    let of_kind = files(path).into_iter().filter(|name| name.ends_with(kind));
    path.join(of_kind.max_by_key(|name| name.len() * 1000 + usize::from(name.as_bytes()[7])).unwrap())
}

#[test]
fn tables_continue_with_entries_labels_and_deadlines() {
    let folder = tempfile::tempdir().unwrap();
    let geo = || declared("geo", labels(&[("192.0.2.0/24", "AA"), ("10.0.0.0/8", "BB")]), Layout::RankLeaf, 9);
    let mut first = Process::start(folder.path());
    let active = first.bind(vec![suspects(), geo()]);
    first.save(&active);
    first.change(&active, "suspects", add(&set(&["10.0.0.1", "10.1.0.0/16"]), None));
    first.change(&active, "suspects", add(&set(&["10.0.0.2", "10.0.0.3"]), Some(50_000)));
    first.change(&active, "suspects", add(&set(&["10.0.0.4"]), Some(2000)));
    first.change(&active, "suspects", TableChange::Update { entries: &set(&["10.0.0.3"]), timeout_ms: Some(90_000) });
    first.change(&active, "suspects", TableChange::Remove(&set(&["10.0.0.1"])));
    first.change(&active, "geo", TableChange::Replace(&labels(&[("10.0.0.0/9", "BB"), ("10.2.0.0/16", "AA")])));
    first.save(&active);
    let expected = first.entries(&active, "suspects");
    drop(first);

    // Three seconds later, on a machine that has begun to count anew.
    let clocks = Clocks::now();
    let later = Clocks { day_ns: clocks.day_ns + 3_000 * MS, ..clocks };
    let mut second = Process::start_at(folder.path(), later);
    assert_eq!(second.notices, Vec::<String>::new());
    let active = second.bind(vec![geo(), suspects()]);
    let shown = |process: &Process| {
        let entries = process.entries(&active, "suspects");
        entries.into_iter().map(|(entry, _, left)| (entry, left)).collect::<Vec<_>>()
    };
    let left = |seconds| Some(seconds);
    let now = shown(&second);
    assert_eq!(now.len(), 3, "{now:?} {expected:?}");
    assert_eq!(
        (&now[0].0, &now[1].0, &now[2]),
        (&"10.0.0.2".to_owned(), &"10.0.0.3".to_owned(), &("10.1.0.0/16".to_owned(), None))
    );
    assert!(now[0].1 <= left(48) && now[0].1 > left(40) && now[1].1 <= left(88) && now[1].1 > left(80), "{now:?}");
    let of_geo = |one: &str, label: &str| (one.to_owned(), Some(label.to_owned()), None);
    assert_eq!(second.entries(&active, "geo"), [of_geo("10.0.0.0/9", "BB"), of_geo("10.2.0.0/16", "AA")]);
    second.change(&active, "geo", TableChange::Flush);
    second.save(&active);
    drop((second, active));
    let third = Process::start(folder.path());
    let active = third.bind(vec![geo()]);
    assert_eq!(third.entries(&active, "geo"), []);
    let active = third.bind(vec![suspects()]);
    assert_eq!(third.names(&active, "suspects").len(), 3, "a later policy declares it");
}

#[test]
fn tables_wait_for_a_policy_that_declares_them() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = Process::start(folder.path());
    let active = first.bind(vec![suspects()]);
    first.change(&active, "suspects", add(&set(&["10.0.0.1"]), None));
    // The next policy does not have the table, and the one after it does.
    let without = first.bind(vec![declared("other", set(&["10.9.0.1"]), Layout::RankLeaf, 9)]);
    drop(active);
    first.save(&without);
    let again = first.bind(vec![suspects()]);
    assert_eq!(first.names(&again, "suspects"), ["10.0.0.1"]);
    drop((again, first));
    let mut second = Process::start(folder.path());
    let without = second.bind(vec![declared("other", set(&["10.9.0.7"]), Layout::RankLeaf, 9)]);
    assert_eq!(second.names(&without, "other"), ["10.9.0.1"], "as in a policy that is loaded later");
    second.save(&without);
    drop((without, second));
    // Other labels, another size, another type, and a layout that cannot hold the entries.
    let third = Process::start(folder.path());
    let map = third.bind(vec![declared("suspects", labels(&[("10.0.0.0/8", "AA")]), Layout::RankLeaf, 9)]);
    assert_eq!(third.names(&map, "suspects"), ["10.0.0.0/8"]);
    let set = third.bind(vec![suspects()]);
    assert_eq!(third.names(&set, "suspects"), ["10.0.0.1"]);
    assert_eq!(third.store.take_notices(), Vec::<String>::new());
}

#[test]
fn entries_that_a_policy_cannot_take_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = Process::start(folder.path());
    let map = labels(&[("10.0.0.1", "AA"), ("10.0.0.2", "BB"), ("10.0.0.3", "BB"), ("10.0.0.0/9", "BB")]);
    let nets = set(&["10.0.0.0/8"]);
    let active =
        first.bind(vec![declared("geo", map, Layout::RankLeaf, 9), declared("nets", nets, Layout::RankLeaf, 9)]);
    first.save(&active);
    drop((first, active));
    let second = Process::start(folder.path());
    let geo = declared("geo", labels(&[("10.7.0.1", "BB")]), Layout::RankLeaf, 2);
    let active = second.bind(vec![geo, declared("nets", set(&["10.7.0.1"]), Layout::ExactSet, 9)]);
    let left =
        [("10.0.0.0/9".to_owned(), Some("BB".to_owned()), None), ("10.0.0.2".to_owned(), Some("BB".to_owned()), None)];
    assert_eq!(second.entries(&active, "geo"), left);
    assert_eq!(second.names(&active, "nets"), ["10.7.0.1"]);
    let notices = second.store.take_notices();
    assert_eq!(
        notices[0],
        "table geo: 2 saved entries are left out: the policy does not know their labels, or the table is full"
    );
    assert!(notices[1].starts_with("table nets: the saved entries are lost: "), "{notices:?}");
}

#[test]
fn a_policy_that_never_decides_packets_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = Process::start(folder.path());
    let map = || labels(&[("10.0.0.1", "AA"), ("10.0.0.2", "BB"), ("10.0.0.3", "BB")]);
    let geo = |elements: Arc<Table>, size: usize| declared("geo", elements, Layout::RankLeaf, size);
    let active = first.bind(vec![geo(map(), 9), suspects()]);
    first.change(&active, "suspects", add(&set(&["10.0.0.1", "10.1.0.0/16"]), Some(60_000)));
    first.save(&active);
    drop((first, active));

    let mut second = Process::start(folder.path());
    let small = || vec![geo(labels(&[("10.7.0.1", "BB")]), 1), declared("suspects", nothing(), Layout::ExactSet, 9)];
    let failed = second.load([small(), vec![declared("new", set(&["10.9.0.9"]), Layout::RankLeaf, 9)]].concat());
    assert_eq!((second.names(&failed, "geo").len(), second.names(&failed, "suspects").len()), (1, 0));
    let other = second.bind(vec![declared("other", nothing(), Layout::RankLeaf, 9)]);
    // A snapshot meanwhile has the tables as they were.
    second.save(&other);
    let copied = tempfile::tempdir().unwrap();
    for name in files(folder.path()).into_iter().filter(|name| name != "lock") {
        fs::copy(folder.path().join(&name), copied.path().join(&name)).unwrap();
    }
    let meanwhile = Process::start(copied.path());
    let restored = meanwhile.bind(vec![geo(map(), 9), suspects()]);
    assert_eq!((meanwhile.names(&restored, "geo").len(), meanwhile.names(&restored, "suspects").len()), (3, 2));
    // Another policy with more room does not continue with what the first could take.
    let larger = second.load(vec![geo(map(), 2)]);
    assert_eq!(second.names(&larger, "geo").len(), 2);
    drop((failed, larger));
    assert_eq!(second.store.take_notices(), Vec::<String>::new());
    let active = second.bind(vec![geo(map(), 9), suspects(), declared("new", set(&["10.9.0.1"]), Layout::RankLeaf, 9)]);
    assert_eq!(second.names(&active, "geo"), ["10.0.0.1", "10.0.0.2", "10.0.0.3"]);
    let left = second.entries(&active, "suspects").into_iter().map(|(_, _, left)| left);
    assert!(left.clone().count() == 2 && left.flatten().count() == 2, "with their timeouts");
    assert_eq!(second.names(&active, "new"), ["10.9.0.1"], "nobody has seen the elements of the policy that failed");

    // The entries also stay if the table was in effect and is gone with its generation, and another policy has other
    // labels.
    let failed = second.load(vec![geo(labels(&[("10.8.0.1", "CC")]), 9)]);
    drop(active);
    drop(failed);
    let active = second.bind(vec![geo(map(), 9)]);
    assert_eq!(second.names(&active, "geo").len(), 3);
    assert_eq!(second.store.take_notices(), Vec::<String>::new());
    drop(active);
    second.bind(small());
    assert_eq!(second.store.take_notices().len(), 2, "it is told when the policy decides packets");
}

#[test]
fn damage_is_told_and_costs_as_little_as_possible() {
    let made = tempfile::tempdir().unwrap();
    let mut process = Process::start(made.path());
    let active = process.bind(vec![suspects()]);
    process.save(&active);
    process.change(&active, "suspects", add(&set(&["10.0.0.1"]), None));
    process.save(&active);
    drop((process, active));
    let mut process = Process::start(made.path());
    let active = process.bind(vec![suspects()]);
    process.save(&active);
    process.change(&active, "suspects", add(&set(&["10.0.0.2"]), None));
    process.change(&active, "suspects", TableChange::Replace(&set(&["10.0.0.3", "10.0.0.4"])));
    process.save(&active);
    drop((process, active));
    assert_eq!(
        files(made.path()).into_iter().collect::<Vec<_>>(),
        ["lock", "tables-2.journal", "tables-2.snapshot", "tables-3.journal", "tables-4.journal", "tables-4.snapshot"]
    );
    let journal = fs::read(newest(made.path(), "journal")).unwrap();
    let snapshot = fs::read(newest(made.path(), "snapshot")).unwrap();

    let after = |file: &str, bytes: &[u8]| {
        let folder = tempfile::tempdir().unwrap();
        files(made.path())
            .iter()
            .for_each(|name| _ = fs::copy(made.path().join(name), folder.path().join(name)).unwrap());
        fs::write(folder.path().join(file), bytes).unwrap();
        let process = Process::start(folder.path());
        let active = process.bind(vec![suspects()]);
        let entries = process.names(&active, "suspects");
        (
            entries.iter().map(|entry| entry.rsplit('.').next().unwrap().parse().unwrap()).collect::<Vec<u32>>(),
            process.notices,
        )
    };
    // The journal at every length: each change is there whole or not at all.
    for cut in 0..=journal.len() {
        let (entries, notices) = after("tables-4.journal", &journal[..cut]);
        assert!([&[1][..], &[1, 2], &[3, 4]].contains(&&*entries), "cut at {cut}: {entries:?}");
        let is_end = entries == [3, 4] || cut == 0 || notices.is_empty();
        assert_eq!(is_end, notices.is_empty(), "cut at {cut}: {notices:?}");
    }
    for at in (0..journal.len()).step_by(3) {
        let mut damaged = journal.clone();
        damaged[at] ^= 0x10;
        let (entries, notices) = after("tables-4.journal", &damaged);
        assert!(entries == [1] || entries == [1, 2], "byte {at}: {entries:?}");
        assert!(notices.len() == 1 && notices[0].contains("tables-4.journal: "), "{notices:?}");
    }
    // A damaged snapshot: the previous one and the journals since then have everything too.
    for at in 0..snapshot.len() {
        let mut damaged = snapshot.clone();
        damaged[at] ^= 0x10;
        let (entries, notices) = after("tables-4.snapshot", &damaged);
        assert_eq!(entries, [3, 4], "byte {at}");
        assert!(notices.len() == 1 && notices[0].ends_with("; an earlier snapshot is used"), "{notices:?}");
        let (entries, _) = after("tables-4.snapshot", &snapshot[..at]);
        assert_eq!(entries, [3, 4], "cut at {at}");
    }
}

#[test]
fn a_folder_stays_small_and_belongs_to_one_process() {
    let folder = tempfile::tempdir().unwrap();
    let mut process = Process::start(folder.path());
    let in_use = Folder::open(folder.path()).err().unwrap();
    assert_eq!(in_use.to_string(), "another weir uses it");
    let active = process.bind(vec![suspects()]);
    let many: Vec<String> = (0..20_000).map(|n| format!("10.0.{}.{}", n >> 8, n & 255)).collect();
    let (all, half) = (set(&many), set(&many[..10_000]));
    for _ in 0..40 {
        process.change(&active, "suspects", add(&all, Some(1_000_000)));
        process.change(&active, "suspects", TableChange::Remove(&half));
        process.save(&active);
    }
    let bytes: u64 =
        files(folder.path()).iter().map(|name| fs::metadata(folder.path().join(name)).unwrap().len()).sum();
    assert!(bytes < 12 << 20, "{bytes} bytes");
    assert!(files(folder.path()).len() <= 6, "{:?}", files(folder.path()));
    drop((process, active));
    let process = Process::start(folder.path());
    let active = process.bind(vec![suspects()]);
    assert_eq!(process.names(&active, "suspects").len(), 10_000);
}

/// As when a process that was killed is replaced at once, or a child process has not yet begun its own program.
#[test]
fn a_folder_that_is_used_for_a_moment_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let other = Folder::open(folder.path()).unwrap();
    let waiting = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| Folder::open(folder.path()).map(|_| ()));
        std::thread::sleep(std::time::Duration::from_millis(100));
        assert!(!waiting.is_finished());
        drop(other);
        waiting.join().unwrap()
    });
    assert!(waiting.is_ok(), "{waiting:?}");
}

#[test]
fn an_error_of_the_disk_is_made_good() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("state");
    let mut process = Process::start(&path);
    let active = process.bind(vec![suspects()]);
    process.save(&active);
    fs::remove_dir_all(&path).unwrap();
    // The journal is still open. The next snapshot finds no folder.
    let many: Vec<String> = (0..200_000).map(|n| format!("10.{}.{}.{}", n >> 16, n >> 8 & 255, n & 255)).collect();
    process.change(&active, "suspects", add(&set(&many), None));
    process.change(&active, "suspects", add(&set(&many), None));
    assert!(process.saver.step(&process.store, Some(&active)).is_err() && process.saver.has_failed());
    fs::create_dir(&path).unwrap();
    process.change(&active, "suspects", TableChange::Replace(&set(&["10.0.0.9"])));
    process.saver.step(&process.store, Some(&active)).unwrap();
    assert!(process.saver.has_failed(), "it waits before it tries again");
    std::thread::sleep(std::time::Duration::from_millis(2100));
    process.save(&active);
    assert!(!process.saver.has_failed());
    drop((process, active));
    let process = Process::start(&path);
    let active = process.bind(vec![suspects()]);
    assert_eq!(process.names(&active, "suspects"), ["10.0.0.9"]);
}

#[test]
fn later_changes_are_never_there_without_earlier_ones() {
    let folder = tempfile::tempdir().unwrap();
    let new = folder.path().join("tables.new");
    let mut process = Process::start(folder.path());
    let active = process.bind(vec![suspects()]);
    // The first snapshot cannot be made. The journal that was begun at the start has the change.
    fs::create_dir(&new).unwrap();
    process.change(&active, "suspects", add(&set(&["10.0.0.1"]), None));
    assert!(process.saver.step(&process.store, Some(&active)).is_err());
    std::thread::sleep(std::time::Duration::from_millis(2100));
    process.change(&active, "suspects", add(&set(&["10.0.0.2"]), None));
    assert!(process.saver.step(&process.store, Some(&active)).is_err());
    process.change(&active, "suspects", add(&set(&["10.0.0.3"]), None));
    drop((process, active));
    fs::remove_dir(&new).unwrap();
    let process = Process::start(folder.path());
    let active = process.bind(vec![suspects()]);
    // The error was not in writing changes.
    assert_eq!(process.names(&active, "suspects"), ["10.0.0.1", "10.0.0.2"]);
}

#[test]
fn random_changes_are_there_after_every_step() {
    let folder = tempfile::tempdir().unwrap();
    let mut random = 7u64;
    let mut below = |end: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % end
    };
    let mut model: BTreeMap<String, bool> = BTreeMap::new();
    for _ in 0..30 {
        let mut process = Process::start(folder.path());
        assert_eq!(process.notices, Vec::<String>::new());
        let active = process.bind(vec![suspects()]);
        assert_eq!(process.names(&active, "suspects"), model.keys().cloned().collect::<Vec<_>>());
        for _ in 0..below(20) {
            let chosen: Vec<String> = (0..1 + below(5)).map(|_| format!("10.0.0.{}", 10 + below(30))).collect();
            let table = set(&chosen);
            match below(4) {
                0 => {
                    chosen.iter().for_each(|one| _ = model.remove(one));
                    process.change(&active, "suspects", TableChange::Remove(&table));
                }
                1 => {
                    model = chosen.into_iter().map(|one| (one, true)).collect();
                    process.change(&active, "suspects", TableChange::Replace(&table));
                }
                _ => {
                    chosen.into_iter().for_each(|one| _ = model.insert(one, true));
                    process.change(&active, "suspects", add(&table, Some(3_600_000)));
                }
            }
            if below(3) == 0 {
                process.save(&active);
            }
        }
        process.save(&active);
    }
}

fn list(text: &str) -> Arc<LimitTable> {
    let mut limits = PrefixLimits::default();
    limits.read("l.csv", text.as_bytes(), BadLines::Refuse).unwrap();
    Arc::new(limits.settle().unwrap())
}

#[test]
fn debts_of_limits_continue_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let declared = |name: &str, entries: EntryNames, width: u32| Declared {
        name: name.to_owned(),
        declaration: BucketsDeclared { entries, width, format: WordFormat::Buckets },
    };
    let customers = |text: &str| declared("customers/upstream/0", EntryNames::Prefixes(list(text), Family::Ipv4), 2);
    let geo = || declared("geo", EntryNames::Labels(["AA".into(), "BB".into()].into()), 1);
    let one = || declared("rule", EntryNames::One, 1);
    const NEEDS: LimitNeeds = LimitNeeds { buckets: 100, largest_address_table: 0 };
    let first = SharedState::new(UsedBy::Workers);
    let limits = first.limits(NEEDS).unwrap();
    let binding =
        limits.bind(vec![customers("10.0.0.0/8,5\n10.1.0.0/16,5\n192.0.2.0/24,9\n"), geo(), one()], 0).unwrap();
    // The time is the time of the tests: 100 s. Debts of 10, 20, ... seconds.
    let now = 100_000 * MS;
    limits.refresh(now);
    let debt = |slot: u32, seconds: u64| {
        // A charge, as packets make it.
        let words = limits.buckets().as_ptr();
        // SAFETY: the slot is one of the binding, and no other thread uses the words.
        unsafe { words.add(slot as usize).write(ticks(now + seconds * 1000 * MS)) };
    };
    let slots = |object: usize| binding.object(object).slots().to_vec();
    debt(slots(0)[0], 10);
    debt(slots(0)[2] + 1, 20);
    debt(slots(0)[3], 30);
    debt(slots(1)[2], 40);
    debt(slots(2)[0], 50);
    let saved = limits.debts(now);
    assert_eq!(saved.iter().map(|list| list.debts.len()).sum::<usize>(), 5);

    // A process with an empty table, whose saver writes these debts.
    let (mut process, clocks) = (Process::start(folder.path()), Clocks::now());
    let active = process.bind(vec![suspects()]);
    process.save(&active);
    let shifted = first_debts(saved, now, clocks.now_ns);
    let again = SharedState::new(UsedBy::Workers);
    again.keep_debts(shifted);
    process.saver.debts().step(again.limits(NEEDS).unwrap()).unwrap();
    drop((process, active));

    let later = Clocks { day_ns: clocks.day_ns + 15_000 * MS, now_ns: 7_000 * MS };
    let second = SharedState::new(UsedBy::Workers);
    let read = restore(&Folder::open(folder.path()).unwrap(), later).unwrap();
    assert_eq!(read.notices, Vec::<String>::new());
    second.keep_debts(read.debts);
    let limits = second.limits(NEEDS).unwrap();
    // Another order and another list.
    let text = "10.1.0.0/16,7\n192.0.2.0/24,9\n203.0.113.0/24,9\n";
    let binding = limits.bind(vec![geo(), customers(text)], later.now_ns).unwrap();
    let left = |object: usize, entry: usize, limiter: u32| {
        let word = limits.buckets().word(binding.object(object).slots()[entry] + limiter);
        (word - ticks(later.now_ns)) / ticks(1000 * MS)
    };
    let of_customers: Vec<u64> = (0..4).flat_map(|entry| [left(1, entry, 0), left(1, entry, 1)]).collect();
    let is_near = |found: u64, seconds: u64| found == seconds || found + 1 == seconds;
    assert!(is_near(of_customers[3], 5) && is_near(of_customers[4], 15), "{of_customers:?}");
    assert_eq!(of_customers.iter().filter(|&&left| left > 0).count(), 2, "the first was paid meanwhile");
    assert!(is_near(left(0, 2, 0), 25) && left(0, 1, 0) == 0);
    assert_eq!(limits.debts(later.now_ns).len(), 3, "that of the rule waits for a policy with it");

    damaged_debts_are_none(folder.path(), later);
}

/// Damages each byte of the file of debts, and cuts it there.
fn damaged_debts_are_none(folder: &Path, later: Clocks) {
    let file = folder.join("debts");
    let whole = fs::read(&file).unwrap();
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x10;
        for bytes in [&damaged[..], &whole[..at]] {
            fs::write(&file, bytes).unwrap();
            let read = restore(&Folder::open(folder).unwrap(), later).unwrap();
            assert!(read.debts.is_empty() && read.notices.len() == 1, "byte {at}");
            assert!(read.notices[0].ends_with("; limits begin with full buckets"), "{:?}", read.notices);
        }
    }
}

/// Debts at another time.
fn first_debts(mut all: Vec<SavedDebts>, from_ns: u64, to_ns: u64) -> Vec<SavedDebts> {
    all.iter_mut().flat_map(|list| &mut list.debts).for_each(|debt| debt.until_ns = debt.until_ns - from_ns + to_ns);
    all
}
