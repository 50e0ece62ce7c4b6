//! Tables that programs in the kernel read: what happens when their memory is full, and in later generations.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use weir_abi::{Family, Layout};
use weir_state::tables::{
    DynamicBounds, ImageDeclared, KernelImage, Member, Published, TableBinding, TableChange, TableError, TableStore,
    TableView, Visibility,
};
use weir_state::{Declared, Memory};
use weir_tables::live::{LiveError, TwoHalves};
use weir_tables::{Entries, Kind, Table};

const MS: u64 = 1_000_000;

/// Addresses `from..to`, spread over all buckets.
fn addresses(from: u32, to: u32) -> Table {
    let mut entries = Entries::new(Family::Ipv4, Kind::Set);
    for number in from..to {
        let addr = Ipv4Addr::from(number.wrapping_mul(0x9e37_79b1));
        entries.insert_prefix(IpAddr::V4(addr), 32, None).unwrap();
    }
    entries.settle()
}

fn declared(table: &Table, layout: Layout, size: Option<usize>) -> Vec<Declared<ImageDeclared>> {
    vec![named("t", table, layout, size)]
}

fn named(name: &str, table: &Table, layout: Layout, size: Option<usize>) -> Declared<ImageDeclared> {
    let dynamic = size.map(|size| DynamicBounds { size, timeout_ms: None });
    let member = Member { name: name.to_owned(), table: Arc::new(table.clone()), dynamic };
    let image = Arc::new(table.build(layout).unwrap());
    let declaration = ImageDeclared { members: vec![member], layout, image, counted: false };
    Declared { name: name.to_owned(), declaration }
}

fn map(binding: &TableBinding) -> Arc<KernelImage> {
    match binding.object(0).published() {
        Published::Map(map) => map,
        Published::Pointer(_) | Published::Constant => panic!("programs in the kernel read it"),
    }
}

/// Adds all entries or none.
fn add(store: &TableStore, binding: &TableBinding, table: &Table) -> Result<usize, TableError> {
    let change = TableChange::Add { entries: table, timeout_ms: None };
    store.change_by(binding, "t", (change, Visibility::AtOnce), 0).map(|changed| changed.entries)
}

#[test]
fn a_full_image_refuses_entries_and_takes_them_after_others_are_gone() {
    for layout in [Layout::ExactSet, Layout::RankLeaf] {
        let store = TableStore::new(Memory::Kernel);
        let binding = store.bind(declared(&addresses(0, 1), layout, None), 0).unwrap();
        let step = map(&binding).bytes() as u32 / 200;
        let mut held = 1;
        let refused = loop {
            match add(&store, &binding, &addresses(held, held + step)) {
                Ok(entries) => held = entries as u32,
                Err(error) => break error,
            }
        };
        assert!(
            matches!(&refused, TableError::Refused { error: LiveError::NoRoom { room, .. }, .. } if *room == map(&binding).bytes()),
            "{layout:?}: {refused}"
        );
        assert!(held > 4 * step, "{layout:?}: {held}");
        // The next refusal is the same and comes at once, without another image.
        assert_eq!(add(&store, &binding, &addresses(held, held + step)), Err(refused));
        let gone = addresses(1, 1 + 3 * step);
        let removed = store.change(&binding, "t", TableChange::Remove(&gone), 0).unwrap();
        assert_eq!((removed.changed, removed.entries), (3 * step as usize, (held - 3 * step) as usize));
        assert_eq!(add(&store, &binding, &addresses(held, held + step)), Ok((held - 2 * step) as usize), "{layout:?}");
    }
}

#[test]
fn a_later_generation_gets_the_room_that_it_declares() {
    let (store, layout, none) = (TableStore::new(Memory::Kernel), Layout::RankLeaf, addresses(0, 0));
    let small = store.bind(declared(&none, layout, Some(1000)), 0).unwrap();
    assert_eq!(add(&store, &small, &addresses(0, 900)), Ok(900));
    let same = store.bind(declared(&none, layout, Some(2000)), 0).unwrap();
    assert!(Arc::ptr_eq(&map(&small), &map(&same)), "there is room for both");
    let large = store.bind(declared(&none, layout, Some(500_000)), 0).unwrap();
    assert!(map(&large).bytes() > map(&small).bytes());
    assert_eq!(store.read(&large, "t", |table| table.count()), Ok(900), "it continues with the entries");

    // A change that only the large one can hold is made there, and the answer says that the other one lacks it.
    let change = TableChange::Add { entries: &addresses(900, 200_000), timeout_ms: None };
    let changed = store.change(&large, "t", change, 0).unwrap();
    assert_eq!((changed.entries, changed.left_out.images), (200_000, 1));
    assert_eq!(store.read(&small, "t", |table| table.count()), Ok(900));
}

#[test]
fn halves_are_copies_of_an_image_with_room() {
    let table = addresses(0, 5000);
    let store = TableStore::new(Memory::Kernel);
    let binding = store.bind(declared(&table, Layout::ExactSet, None), 0).unwrap();
    let (map, image) = (map(&binding), table.build(Layout::ExactSet).unwrap());
    let bytes = image.as_bytes();
    assert!(map.capacity() >= bytes.len() * 3 / 2 && map.capacity().is_power_of_two());
    // SAFETY: the half has as many bytes, and nothing writes them now.
    let half = unsafe { std::slice::from_raw_parts(map.start(0), bytes.len()) };
    assert_eq!(half, bytes);
}

#[test]
fn nothing_waits_for_another_table_that_waits_for_the_kernel() {
    let (store, layout, none) = (TableStore::new(Memory::Kernel), Layout::RankLeaf, addresses(0, 0));
    let other = || named("other", &none, layout, Some(1000));
    let active = store.bind(vec![named("slow", &none, layout, Some(1000)), other()], 0).unwrap();
    let brief = addresses(0, 10);
    let add = |timeout_ms| TableChange::Add { entries: &brief, timeout_ms: Some(timeout_ms) };
    for name in ["slow", "other"] {
        store.change(&active, name, add(100), 0).unwrap();
    }
    // A program that does not end, so the half of the previous image is not free.
    let mut reader = store.readers().register().unwrap();
    reader.start_burst();
    let at_once = |change: TableChange<'_>| store.change_by(&active, "slow", (change, Visibility::AtOnce), 0);
    at_once(TableChange::Add { entries: &addresses(10, 20), timeout_ms: None }).unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| at_once(TableChange::Remove(&addresses(10, 15))));
        thread::sleep(Duration::from_millis(100));
        let begun = Instant::now();
        let count = |binding: &TableBinding| store.read(binding, "other", |table| table.count()).unwrap();
        assert_eq!(count(&active), 10);
        store.expire(100 * MS);
        assert_eq!(count(&active), 0, "they expired on time");
        store.change(&active, "other", add(1000), 100 * MS).unwrap();
        assert_eq!(store.contents(&active, "other").unwrap().facts().entries, 10);
        let later = store.bind(vec![other()], 100 * MS).unwrap();
        assert_eq!(count(&later), 10);
        let took = begun.elapsed();
        assert!(!waiting.is_finished() && took < Duration::from_millis(500), "{took:?}");
        reader.rest();
        waiting.join().unwrap().unwrap();
    });
    let count = || store.read(&active, "slow", |table| table.count()).unwrap();
    assert_eq!(count(), 15, "they could not expire on time");
    store.change(&active, "slow", TableChange::Remove(&none), 100 * MS).unwrap();
    assert_eq!(count(), 5, "the next change lets them expire");
}

#[test]
fn all_entries_are_replaced_in_all_images_or_in_none() {
    for visibility in [Visibility::Gradual, Visibility::AtOnce] {
        let store = TableStore::new(Memory::Kernel);
        let (old, other) = (addresses(0, 2), addresses(1, 3));
        // As if rules looked the table up with two keys. The first image is fused with another table, and the second
        // one is small.
        let image = Arc::new(weir_tables::fused(&[&old, &other]).unwrap());
        let member =
            |name: &str, table: &Table| Member { name: name.to_owned(), table: Arc::new(table.clone()), dynamic: None };
        let members = vec![member("t", &old), member("other", &other)];
        let fused = ImageDeclared { members, layout: Layout::ExactSets, image, counted: false };
        let fused = Declared { name: "t+other".to_owned(), declaration: fused };
        let active = store.bind(vec![fused, named("t", &old, Layout::RankLeaf, None)], 0).unwrap();
        let brief = TableChange::Add { entries: &addresses(2, 4), timeout_ms: Some(60_000) };
        store.change(&active, "t", brief, 0).unwrap();
        let left = || {
            let of = |table: &TableView<'_>| {
                table.entries().map(|one| (one.to_string(), table.left_ns(&one, 0))).collect::<Vec<_>>()
            };
            store.read(&active, "t", of).unwrap()
        };
        let before = left();
        assert_eq!(before.iter().filter(|(_, left)| *left == Some(60_000 * MS)).count(), 2);
        let replace = |table: &Table| store.change_by(&active, "t", (TableChange::Replace(table), visibility), 0);
        let refused = replace(&addresses(10, 100_000)).unwrap_err();
        assert!(matches!(refused, TableError::Refused { error: LiveError::NoRoom { .. }, .. }), "{refused}");
        assert_eq!(left(), before, "{visibility:?}");
        let again = replace(&other).unwrap();
        assert_eq!((again.changed, again.entries), (2, 2));
    }
}
