//! Additions by rules: what a tick collects, in which order it is applied, and what its bounds are.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use weir_abi::addition::{TICK_ADDITIONS_MAX, TICK_NS};
use weir_abi::{Addition, AdditionCounts, Family, Layout};
use weir_state::Declared;
use weir_state::tables::{
    Adders, Additions, DynamicBounds, ImageDeclared, ListedEntries, Member, ProtectedTable, Replay, ReplayedTables,
    TableAdder, TableBinding, TableChange, TableStore,
};
use weir_tables::{Entries, Kind, Table};

const ADD: u32 = 0;
const UPDATE: u32 = 1;
const NET: u32 = 2;
const FOREVER: u32 = 3;

/// Adders of the table `t`: its addresses for 20 ms, and networks.
fn adders(binding: &Arc<TableBinding>) -> Adders {
    let adder = |length, timeout_ms, updates| TableAdder {
        table: "t".to_owned(),
        family: Family::Ipv4,
        length,
        timeout_ms,
        updates,
        protected: [].into(),
    };
    let all =
        [adder(32, Some(20), false), adder(32, Some(20), true), adder(24, Some(20), false), adder(32, None, true)];
    Adders { adders: all.into(), binding: binding.clone() }
}

fn set(text: &[&str]) -> Arc<Table> {
    let mut entries = Entries::new(Family::Ipv4, Kind::Set);
    text.iter().for_each(|text| entries.insert_text(text, None).unwrap());
    Arc::new(entries.settle())
}

fn bound(size: usize, elements: &Arc<Table>) -> (Arc<TableStore>, Adders) {
    let store = Arc::new(TableStore::default());
    let layout = Layout::RankLeaf;
    let image = Arc::new(elements.build(layout).unwrap());
    let dynamic = Some(DynamicBounds { size, timeout_ms: None });
    let members = vec![Member { name: "t".to_owned(), table: elements.clone(), dynamic }];
    let declared =
        Declared { name: "t".to_owned(), declaration: ImageDeclared { members, layout, image, counted: false } };
    let binding = store.bind(vec![declared], 0).unwrap();
    let adders = adders(&binding);
    (store, adders)
}

fn entries(store: &TableStore, adders: &Adders) -> Vec<String> {
    store.read(&adders.binding, "t", |table| table.entries().map(|entry| entry.to_string()).collect()).unwrap()
}

fn addition(adder: u32, low: u64) -> Addition {
    Addition { high: 0, low, adder, packet: 0 }
}

fn replay(size: usize, elements: &[&str]) -> (Replay, Arc<TableStore>, Adders) {
    let elements = set(elements);
    let (store, adders) = bound(size, &elements);
    let listed = vec![ListedEntries { table: "t".to_owned(), entries: elements, timeout_ms: 30 }];
    let tables = ReplayedTables { store: store.clone(), adders: adders.clone(), listed };
    (Replay::new(tables), store, adders)
}

#[test]
fn a_tick_collects_and_its_end_changes_the_table() {
    let (mut replay, store, adders) = replay(10, &["0.0.0.9"]);
    assert_eq!(replay.tick_of(170 * TICK_NS + 1), 170);
    replay.advance(170).unwrap();
    assert_eq!(replay.tick_of(3), 170, "the clock never goes back");
    replay.add(&[addition(ADD, 1), addition(NET, 0x100), addition(ADD, 1), addition(ADD, 9)]);
    replay.advance(170).unwrap();
    assert_eq!(entries(&store, &adders), ["0.0.0.9"]);
    replay.advance(171).unwrap();
    assert_eq!(entries(&store, &adders), ["0.0.0.1", "0.0.0.9", "0.0.1.0/24"]);
    assert_eq!(replay.counts(), AdditionCounts { added: 2, ..AdditionCounts::default() });
    // The timeout of an entry that was there is not touched by `add`, but by `update`.
    replay.add(&[addition(ADD, 1), addition(UPDATE, 9)]);
    replay.advance(173).unwrap();
    assert_eq!(entries(&store, &adders), ["0.0.0.9"]);
    replay.add(&[addition(FOREVER, 9)]);
    replay.advance(174).unwrap();
    replay.advance(1_000_000_000).unwrap();
    assert_eq!(entries(&store, &adders), ["0.0.0.9"]);
    // It had expired at the end of that tick, and was added again.
    assert_eq!(replay.counts(), AdditionCounts { added: 3, updated: 1, overflow: 0, table_full: 0, protected: 0 });
}

#[test]
fn entries_that_expire_make_room_and_the_first_additions_get_it() {
    let (mut replay, store, adders) = replay(2, &["0.0.0.8", "0.0.0.9"]);
    replay.advance(5).unwrap();
    replay.add(&[addition(ADD, 1)]);
    replay.advance(7).unwrap();
    assert_eq!((replay.counts().table_full, store.refused_by("t")), (1, 1));
    // Both entries are over at the end of this tick.
    replay.add(&[addition(ADD, 3), addition(ADD, 2), addition(UPDATE, 3), addition(NET, 0x100), addition(UPDATE, 1)]);
    replay.advance(8).unwrap();
    assert_eq!(entries(&store, &adders), ["0.0.0.2", "0.0.0.3"]);
    // The update finds the deadline that the entry has already.
    assert_eq!(replay.counts(), AdditionCounts { added: 2, updated: 0, overflow: 0, table_full: 3, protected: 0 });
    assert_eq!(store.refused_by("t"), 3);
}

#[test]
fn a_tick_takes_the_first_of_too_many_additions() {
    let (mut replay, store, adders) = replay(1 << 20, &["255.0.0.9"]);
    let all = TICK_ADDITIONS_MAX as u64;
    replay.advance(5).unwrap();
    (0..all + 7).for_each(|low| replay.add(&[addition(ADD, low), addition(ADD, low / 2)]));
    // The halves are known, so only 7 are too many.
    assert_eq!(replay.counts().overflow, 7);
    replay.advance(6).unwrap();
    assert_eq!(replay.counts(), AdditionCounts { added: all, updated: 0, overflow: 7, table_full: 0, protected: 0 });
    let held = entries(&store, &adders);
    assert_eq!((held.len() as u64, held[held.len() - 2].as_str()), (all + 1, "0.0.255.255"));
    // The next tick has room again.
    replay.add(&[addition(ADD, all + 1)]);
    replay.advance(7).unwrap();
    assert_eq!(replay.counts().added, all + 1);
}

#[test]
fn queues_are_collected_while_somebody_has_them_and_once_more() {
    let (store, adders) = bound(3, &set(&["0.0.0.9"]));
    let additions = Additions::new(store.clone());
    assert!(!additions.has_queues());
    let [one, other] = [additions.queue(&adders), additions.queue(&adders)];
    one.push(&addition(ADD, 1));
    one.push(&addition(ADD, 1));
    other.push(&addition(ADD, 1));
    other.push(&addition(ADD, 2));
    additions.collect(50 * TICK_NS);
    assert_eq!(entries(&store, &adders), ["0.0.0.1", "0.0.0.2", "0.0.0.9"]);
    one.push(&addition(ADD, 3));
    other.push(&addition(UPDATE, 2));
    drop(one);
    additions.collect(51 * TICK_NS);
    assert_eq!(additions.counts(), AdditionCounts { added: 2, updated: 1, overflow: 0, table_full: 1, protected: 0 });
    assert!(additions.has_queues());
    store.expire(52 * TICK_NS);
    assert_eq!(entries(&store, &adders), ["0.0.0.2", "0.0.0.9"]);
    drop(other);
    additions.collect(52 * TICK_NS);
    assert!(!additions.has_queues());
}

#[test]
fn additions_that_overlap_a_protected_table_are_refused() {
    let store = Arc::new(TableStore::default());
    let declared = |name: &str, elements: &Arc<Table>| {
        let (layout, dynamic) = (Layout::RankLeaf, Some(DynamicBounds { size: 9, timeout_ms: None }));
        let image = Arc::new(elements.build(layout).unwrap());
        let members = vec![Member { name: name.to_owned(), table: elements.clone(), dynamic }];
        Declared { name: name.to_owned(), declaration: ImageDeclared { members, layout, image, counted: false } }
    };
    let (admin, nobody) = (set(&["10.0.0.0/28"]), set(&[]));
    let binding = store.bind(vec![declared("t", &nobody), declared("admin", &admin)], 0).unwrap();
    let protected =
        |name: &str, listed: &Arc<Table>| ProtectedTable { name: name.to_owned(), listed: listed.coverage() };
    // The second table has no image. The first one has changed since it was listed.
    let unseen = set(&["10.9.0.0/16"]);
    let all: Arc<[ProtectedTable]> = [protected("admin", &admin), protected("unseen", &unseen)].into();
    let adders = adders(&binding);
    let with = |adder: &TableAdder| TableAdder { protected: all.clone(), ..adder.clone() };
    let mut guarded: Vec<TableAdder> = adders.adders.iter().map(with).collect();
    guarded.push(TableAdder { table: "admin".to_owned(), ..adders.adders[FOREVER as usize].clone() });
    let adders = Adders { adders: guarded.into(), ..adders };
    store.change(&binding, "admin", TableChange::Replace(&set(&["10.0.1.0/28", "10.0.2.7"])), 0).unwrap();
    let mut replay = Replay::new(ReplayedTables { store: store.clone(), adders, listed: vec![] });
    let add = |low: [u8; 4], adder: u32| Addition { low: u32::from_be_bytes(low).into(), adder, ..Addition::default() };
    replay.advance(0).unwrap();
    replay.add(&[
        add([10, 0, 0, 1], FOREVER),
        add([10, 0, 1, 15], FOREVER),
        add([10, 0, 1, 16], FOREVER),
        add([10, 0, 2, 0], NET),
        add([10, 0, 3, 0], NET),
        add([10, 9, 9, 9], FOREVER),
        add([10, 0, 2, 7], ADD),
        // What this tick adds to the protected table counts from the next tick on.
        add([10, 0, 5, 5], 4),
        add([10, 0, 5, 5], FOREVER),
    ]);
    replay.advance(1).unwrap();
    let entries = |name: &str| -> Vec<String> {
        store.read(&binding, name, |table| table.entries().map(|entry| entry.to_string()).collect()).unwrap()
    };
    assert_eq!(entries("t"), ["10.0.0.1", "10.0.1.16", "10.0.3.0/24", "10.0.5.5"]);
    assert_eq!(replay.counts(), AdditionCounts { added: 5, protected: 4, ..AdditionCounts::default() });
    replay.add(&[add([10, 0, 5, 5], UPDATE)]);
    replay.advance(2).unwrap();
    assert_eq!(replay.counts(), AdditionCounts { added: 5, protected: 5, ..AdditionCounts::default() });
}
