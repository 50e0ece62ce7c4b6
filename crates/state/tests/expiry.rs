//! Entries that expire: beside a model of deadlines, across generations, in every layout.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;

use support::{entries, image, labels, set};
use weir_abi::Layout;
use weir_state::Declared;
use weir_state::tables::{
    Changed, DynamicBounds, EXPIRE_BATCH, ImageDeclared, NotTaken, TICK_NS, TIMEOUT_MS_MAX, TableBinding, TableChange,
    TableError, TableStore,
};
use weir_tables::{SplitMix, Table};

const MS: u64 = 1_000_000;

fn dynamic(elements: &Arc<Table>, layout: Layout, timeout_ms: Option<u64>) -> Declared<ImageDeclared> {
    image(&[("t", elements)], layout, Some(DynamicBounds { size: 1 << 20, timeout_ms }))
}

/// The entries of a table, each with the milliseconds that it has left.
fn left(store: &TableStore, binding: &TableBinding, name: &str, now_ns: u64) -> Vec<(String, Option<u64>)> {
    let of = |table: &weir_state::tables::TableView<'_>| {
        let left = |entry: weir_tables::live::LiveEntry<'_>| {
            (entry.to_string(), table.left_ns(&entry, now_ns).map(|ns| ns / MS))
        };
        table.entries().map(left).collect()
    };
    store.read(binding, name, of).unwrap()
}

fn add(entries: &Table, timeout_ms: Option<u64>) -> TableChange<'_> {
    TableChange::Add { entries, timeout_ms }
}

fn update(entries: &Table, timeout_ms: Option<u64>) -> TableChange<'_> {
    TableChange::Update { entries, timeout_ms }
}

#[test]
fn entries_expire_at_the_tick_of_their_deadline() {
    for layout in [Layout::ExactSet, Layout::RankLeaf, Layout::Dxr16x4] {
        let store = TableStore::default();
        let binding = store.bind(vec![dynamic(&set(&["192.0.2.1"]), layout, Some(2000))], 5 * MS).unwrap();
        // An element of the policy has the timeout too, and (5 + 2000) ms are rounded up to 201 ticks.
        assert_eq!(left(&store, &binding, "t", 5 * MS), [("192.0.2.1".to_owned(), Some(2005))]);
        let one = set(&["192.0.2.2"]);
        let done = store.change(&binding, "t", add(&one, Some(500)), 10 * MS).unwrap();
        assert_eq!(done, Changed { changed: 1, refreshed: 0, entries: 2, left_out: NotTaken::default() });
        store.change(&binding, "t", add(&set(&["192.0.2.3"]), Some(0)), 10 * MS).unwrap();
        store.expire(510 * MS - 1);
        assert_eq!(entries(&store, &binding, "t").len(), 3);
        store.expire(510 * MS);
        assert_eq!(entries(&store, &binding, "t"), ["192.0.2.1", "192.0.2.3"]);
        store.expire(2010 * MS - 1);
        assert_eq!(entries(&store, &binding, "t").len(), 2);
        store.expire(2010 * MS);
        assert_eq!(left(&store, &binding, "t", 2010 * MS), [("192.0.2.3".to_owned(), None)], "a timeout of 0 is none");
        assert!(store.can_expire());
        store.expire(2020 * MS);
        assert!(!store.can_expire());
    }
}

#[test]
fn an_addition_keeps_a_timeout_and_an_update_begins_it_anew() {
    let store = TableStore::default();
    let binding = store.bind(vec![dynamic(&set::<&str>(&[]), Layout::RankLeaf, Some(1000))], 0).unwrap();
    let (one, two) = (set(&["10.0.0.1"]), set(&["10.0.0.1", "10.0.0.2"]));
    store.change(&binding, "t", add(&one, None), 0).unwrap();
    let again = store.change(&binding, "t", add(&two, Some(5000)), 400 * MS).unwrap();
    assert_eq!((again.changed, again.refreshed), (1, 0));
    let shown = |now: u64| left(&store, &binding, "t", now).into_iter().map(|(_, left)| left).collect::<Vec<_>>();
    assert_eq!(shown(400 * MS), [Some(600), Some(5000)]);
    let updated = store.change(&binding, "t", update(&two, None), 500 * MS).unwrap();
    assert_eq!((updated.changed, updated.refreshed), (0, 2));
    assert_eq!(shown(500 * MS), [Some(1000), Some(1000)], "a shorter timeout counts too");
    let same = store.change(&binding, "t", update(&two, None), 500 * MS).unwrap();
    assert_eq!((same.changed, same.refreshed), (0, 0));
    store.expire(1490 * MS);
    assert_eq!(shown(1490 * MS).len(), 2);
    // An entry whose time is over is new, although it is still there.
    store.change(&binding, "t", add(&one, Some(3000)), 1500 * MS).unwrap();
    store.expire(1500 * MS);
    assert_eq!(left(&store, &binding, "t", 1500 * MS), [("10.0.0.1".to_owned(), Some(3000))]);
    store.change(&binding, "t", TableChange::Remove(&one), 1600 * MS).unwrap();
    store.change(&binding, "t", add(&one, Some(0)), 1600 * MS).unwrap();
    store.expire(100_000 * MS);
    assert_eq!(shown(100_000 * MS), [None], "the old deadline went with the old entry");
    store.change(&binding, "t", TableChange::Replace(&two), 100_000 * MS).unwrap();
    assert_eq!(shown(100_000 * MS), [Some(1000), Some(1000)]);
    store.change(&binding, "t", TableChange::Flush, 100_000 * MS).unwrap();
    store.change(&binding, "t", add(&two, Some(0)), 100_000 * MS).unwrap();
    store.expire(200_000 * MS);
    assert_eq!(shown(200_000 * MS), [None, None]);
    let long = store.change(&binding, "t", add(&one, Some(TIMEOUT_MS_MAX + 1)), 0).unwrap_err();
    assert_eq!(long, TableError::LongTimeout { name: "t".to_owned() });
    assert_eq!(long.to_string(), "table t: a timeout is at most 365d");
}

#[test]
fn tables_from_files_and_labels_take_timeouts_of_entries() {
    let store = TableStore::default();
    let (bad, admin, geo) = (set(&["192.0.2.1"]), set(&["192.0.2.1"]), labels(&[("192.0.2.0/24", "AA")]));
    let fused = image(&[("bad", &bad), ("admin", &admin)], Layout::ExactSets, None);
    let binding = store.bind(vec![fused, image(&[("geo", &geo)], Layout::RankLeaf, None)], 0).unwrap();
    let brief = set(&["192.0.2.1", "192.0.2.9"]);
    store.change(&binding, "bad", add(&brief, Some(100)), 0).unwrap();
    store.change(&binding, "admin", update(&brief, Some(200)), 0).unwrap();
    let other = labels(&[("192.0.2.0/24", "AA"), ("192.0.2.9", "AA")]);
    store.change(&binding, "geo", add(&other, Some(300)), 0).unwrap();
    let all = |now: u64| {
        store.expire(now);
        ["bad", "admin", "geo"].map(|name| entries(&store, &binding, name).len())
    };
    assert_eq!(all(99 * MS), [2, 2, 2]);
    assert_eq!(all(100 * MS), [1, 2, 2], "an entry of the list stays, and other sets of the image keep theirs");
    assert_eq!(all(200 * MS), [1, 0, 2]);
    assert_eq!(all(300 * MS), [1, 0, 1]);
}

#[test]
fn deadlines_continue_in_other_images_and_generations() {
    let store = TableStore::default();
    let elements = set(&["10.0.0.1"]);
    let first = store.bind(vec![dynamic(&elements, Layout::RankLeaf, Some(1000))], 0).unwrap();
    store.change(&first, "t", add(&set(&["10.0.0.2"]), Some(3000)), 0).unwrap();
    // One generation has the same image. The other has another timeout in the declaration, and another layout.
    let same = store.bind(vec![dynamic(&elements, Layout::RankLeaf, Some(1000))], 500 * MS).unwrap();
    let other = store.bind(vec![dynamic(&elements, Layout::ExactSet, Some(9000))], 500 * MS).unwrap();
    let shown = |binding: &TableBinding| left(&store, binding, "t", 500 * MS);
    assert_eq!(shown(&first), [("10.0.0.1".to_owned(), Some(500)), ("10.0.0.2".to_owned(), Some(2500))]);
    assert!(shown(&first) == shown(&same) && shown(&first) == shown(&other));
    store.change(&other, "t", add(&set(&["10.0.0.3"]), None), 500 * MS).unwrap();
    assert_eq!(shown(&first)[2], ("10.0.0.3".to_owned(), Some(9000)), "the active generation's timeout counts");
    store.expire(1000 * MS);
    for binding in [&first, &same, &other] {
        assert_eq!(entries(&store, binding, "t"), ["10.0.0.2", "10.0.0.3"]);
    }
    drop((first, same));
    store.expire(3000 * MS);
    assert_eq!(entries(&store, &other, "t"), ["10.0.0.3"]);
    let third = store.bind(vec![dynamic(&elements, Layout::RankLeaf, None)], 3000 * MS).unwrap();
    assert_eq!(left(&store, &third, "t", 3000 * MS), [("10.0.0.3".to_owned(), Some(6500))]);
}

/// Compares a table with a map of entries to deadlines in ticks, under random changes.
fn compare(seed: u64, layout: Layout, entry: impl Fn(u64) -> String) {
    let mut random = SplitMix::new(seed);
    let declared_ms = [None, Some(700), Some(90_000)][random.below(3) as usize];
    let store = TableStore::default();
    let empty = set(&[entry(0)]);
    let mut binding = store.bind(vec![dynamic(&empty, layout, declared_ms)], 0).unwrap();
    store.change(&binding, "t", TableChange::Flush, 0).unwrap();
    let mut model: BTreeMap<String, Option<u64>> = BTreeMap::new();
    let mut now = random.below(1 << 40);
    for _ in 0..120 {
        let span = [MS, 40 * MS, 900 * MS, 200_000 * MS][random.below(4) as usize];
        now += random.below(span);
        // Sometimes a change comes before the entries that have expired are removed.
        let is_late = random.below(3) == 0;
        model.retain(|_, until| until.is_none_or(|until| until > now / TICK_NS));
        if !is_late {
            store.expire(now);
        }
        let chosen: Vec<String> = (0..1 + random.below(12)).map(|_| entry(random.below(40))).collect();
        let table = set(&chosen);
        let some_ms = 1 + random.below(100_000);
        let timeout_ms = [None, Some(0), Some(15), Some(some_ms)][random.below(4) as usize];
        let own_ms = timeout_ms.or(declared_ms).filter(|&ms| ms > 0);
        let deadline = |ms: Option<u64>| ms.map(|ms| (now + ms * MS).div_ceil(TICK_NS));
        let change = match random.below(12) {
            0..5 => {
                chosen.into_iter().for_each(|one| _ = model.entry(one).or_insert(deadline(own_ms)));
                add(&table, timeout_ms)
            }
            5..9 => {
                chosen.into_iter().for_each(|one| _ = model.insert(one, deadline(own_ms)));
                update(&table, timeout_ms)
            }
            9 | 10 => {
                chosen.iter().for_each(|one| _ = model.remove(one));
                TableChange::Remove(&table)
            }
            _ => {
                model = chosen.into_iter().map(|one| (one, deadline(declared_ms))).collect();
                TableChange::Replace(&table)
            }
        };
        store.change(&binding, "t", change, now).unwrap();
        store.expire(now);
        let found: BTreeMap<String, Option<u64>> = left(&store, &binding, "t", 0).into_iter().collect();
        let expected = model.iter().map(|(one, until)| (one.clone(), until.map(|until| until * TICK_NS / MS)));
        assert_eq!(found, expected.collect(), "seed {seed}, {layout:?}, {change:?}");
        if random.below(20) == 0 {
            let other = if layout == Layout::RankLeaf { Layout::Dxr16x4 } else { layout };
            binding = store.bind(vec![dynamic(&empty, other, declared_ms)], now).unwrap();
        }
    }
}

#[test]
fn tables_agree_with_a_model_of_deadlines() {
    for seed in 0..15 {
        compare(seed, Layout::ExactSet, |n| format!("10.0.{}.{}", n / 8, n % 8));
        compare(seed, Layout::RankLeaf, |n| match n % 3 {
            0 => format!("10.0.{n}.0/24"),
            _ => format!("10.0.{}.{n}", n / 2),
        });
        compare(seed, Layout::ExactSet6, |n| format!("2001:db8::{:x}", n + 1));
        compare(seed, Layout::RankLeaf6, |n| format!("2001:db8:{:x}::/48", n + 1));
    }
}

#[test]
fn many_entries_expire_at_once_and_changes_pass_between() {
    // Few of many entries expire in batches, and most of few by one rebuild.
    for forever in [0, 20 * 8 * EXPIRE_BATCH] {
        let store = TableStore::default();
        let binding = store.bind(vec![dynamic(&set::<&str>(&[]), Layout::RankLeaf, Some(1000))], 0).unwrap();
        let some = |first: usize, count: usize| {
            let text = |n: usize| format!("10.{}.{}.{}", n >> 16, n >> 8 & 255, n & 255);
            set(&(first..first + count).map(text).collect::<Vec<_>>())
        };
        let many = 20 * EXPIRE_BATCH;
        store.change(&binding, "t", add(&some(many, forever), Some(0)), 0).unwrap();
        store.change(&binding, "t", add(&some(0, many), None), 0).unwrap();
        std::thread::scope(|scope| {
            let expiring = scope.spawn(|| store.expire(1000 * MS));
            for n in 0..100 {
                store.change(&binding, "t", update(&set(&[format!("192.0.2.{n}")]), None), 1000 * MS).unwrap();
            }
            expiring.join().unwrap();
        });
        store.expire(1000 * MS);
        assert_eq!(entries(&store, &binding, "t").len(), forever + 100);
    }
}

#[test]
fn most_of_a_table_expires_and_the_rest_keeps_its_deadlines() {
    for layout in [Layout::ExactSet, Layout::RankLeaf, Layout::Dxr16x4, Layout::ExactSet6, Layout::RankLeaf6] {
        let text = |n: usize| match layout {
            Layout::ExactSet6 | Layout::RankLeaf6 => format!("2001:db8:{n:x}::/64"),
            _ => format!("10.0.{}.{}", n >> 8, n & 255),
        };
        let some = |numbers: &mut dyn Iterator<Item = usize>| set(&numbers.map(text).collect::<Vec<_>>());
        let all = some(&mut (0..9000));
        let store = TableStore::default();
        let binding = store.bind(vec![dynamic(&all, layout, Some(1000))], 0).unwrap();
        store.change(&binding, "t", update(&some(&mut (0..9000).step_by(10)), Some(5000)), 0).unwrap();
        store.change(&binding, "t", update(&some(&mut (1..9000).step_by(10)), Some(0)), 0).unwrap();
        store.change(&binding, "t", update(&some(&mut (2..9000).step_by(10)), Some(500)), 0).unwrap();
        let sum = || {
            let left = left(&store, &binding, "t", 0);
            [None, Some(500), Some(1000), Some(5000)].map(|ms| left.iter().filter(|(_, left)| *left == ms).count())
        };
        store.expire(500 * MS);
        assert_eq!(sum(), [900, 0, 6300, 900], "{layout:?}");
        store.expire(1000 * MS);
        assert_eq!(sum(), [900, 0, 0, 900], "{layout:?}");
        store.expire(5000 * MS);
        assert_eq!(sum(), [900, 0, 0, 0], "{layout:?}");
    }
}

/// The time of a random lookup, the least of several rounds, while another thread ends ticks.
fn lookup_ns(store: &TableStore, binding: &TableBinding, with_ticks: bool) -> f64 {
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while with_ticks && !stop.load(std::sync::atomic::Ordering::Relaxed) {
                store.expire(TICK_NS);
                std::thread::sleep(std::time::Duration::from_nanos(TICK_NS));
            }
        });
        let handle = binding.object(0).handle().unwrap();
        let mut reader = store.readers().register().unwrap();
        let mut random = SplitMix::new(2);
        let keys: Vec<u32> = (0..1 << 20).map(|_| random.below(1 << 32) as u32).collect();
        let mut round = || {
            let start = std::time::Instant::now();
            let mut found = 0;
            for burst in keys.chunks(64) {
                let started = reader.start_burst();
                let view = handle.open(&started);
                found += burst.iter().filter(|&&key| view.find4(key) != 0).count();
            }
            assert!(found < keys.len());
            start.elapsed().as_secs_f64() * 1e9 / keys.len() as f64
        };
        let least = (0..5).map(|_| round()).fold(f64::MAX, f64::min);
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        least
    })
}

/// Resident memory of this process in bytes.
fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    4096 * pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap()
}

/// `cargo test --release -p weir-state --test expiry -- --ignored --nocapture`
#[test]
#[ignore = "prints what a million entries with timeouts cost"]
fn costs_of_a_million_entries() {
    for (layout, name) in [(Layout::ExactSet, "exact-set"), (Layout::RankLeaf, "rank-leaf")] {
        let store = TableStore::default();
        let random: Vec<String> = {
            let mut random = SplitMix::new(1);
            (0..1 << 20).map(|_| std::net::Ipv4Addr::from(random.below(1 << 32) as u32).to_string()).collect()
        };
        let (all, none) = (set(&random), set::<&str>(&[]));
        let binding = store.bind(vec![dynamic(&none, layout, None)], 0).unwrap();
        let entries = all.facts().entries as f64;
        let measure = |what: &str, work: &mut dyn FnMut()| {
            let (start, before) = (std::time::Instant::now(), resident());
            work();
            let (time, bytes) = (start.elapsed().as_secs_f64(), resident() as f64 - before as f64);
            println!(
                "{name}: {what}: {:.1} ms, {:.0} ns an entry, {:.1} bytes an entry",
                time * 1e3,
                time * 1e9 / entries,
                bytes / entries
            );
        };
        measure("replace without timeouts", &mut || {
            store.change(&binding, "t", TableChange::Replace(&all), 0).unwrap();
        });
        measure("timeouts of 10 minutes", &mut || {
            store.change(&binding, "t", update(&all, Some(600_000)), 0).unwrap();
        });
        let (mut without, mut with) = (f64::MAX, f64::MAX);
        for _ in 0..10 {
            without = without.min(lookup_ns(&store, &binding, false));
            with = with.min(lookup_ns(&store, &binding, true));
        }
        println!("{name}: a lookup takes {without:.2} ns, {with:.2} ns while a thread ends ticks");
        measure("1000 ticks without expiry, together", &mut || (1..1000).for_each(|now| store.expire(now * TICK_NS)));
        measure("update", &mut || {
            store.change(&binding, "t", update(&all, Some(600_000)), 1000 * TICK_NS).unwrap();
        });
        measure("copy for a snapshot", &mut || assert_eq!(store.save(Some(&binding), || ()).len(), 1));
        measure("the 59,000 ticks before expiry", &mut || (1001..60_999).for_each(|now| store.expire(now * TICK_NS)));
        measure("expiry of all in one tick", &mut || store.expire(61_000 * TICK_NS));
        assert_eq!(support::entries(&store, &binding, "t").len(), 0);
    }
}
