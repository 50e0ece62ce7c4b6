//! Changes that take effect at once: readers see all of a change or nothing.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use weir_abi::{Family, Layout};
use weir_state::Declared;
use weir_state::tables::{
    DynamicBounds, ImageDeclared, Member, TableBinding, TableChange, TableError, TableStore, Visibility,
};
use weir_tables::{Entries, Kind, Table};

fn set(text: impl IntoIterator<Item = String>) -> Arc<Table> {
    let mut entries = Entries::new(Family::Ipv4, Kind::Set);
    text.into_iter().for_each(|text| entries.insert_text(&text, None).unwrap());
    Arc::new(entries.settle())
}

fn store(entries: &Arc<Table>, layout: Layout, size: usize) -> (TableStore, Arc<TableBinding>) {
    let dynamic = Some(DynamicBounds { size, timeout_ms: None });
    let member = Member { name: "t".to_owned(), table: entries.clone(), dynamic };
    let image = Arc::new(entries.build(layout).unwrap());
    let store = TableStore::default();
    let declaration = ImageDeclared { members: vec![member], layout, image, counted: false };
    let binding = store.bind(vec![Declared { name: "t".to_owned(), declaration }], 0).unwrap();
    (store, binding)
}

/// Addresses of one kind, all over the address space.
fn addresses(kind: u32) -> impl Iterator<Item = Ipv4Addr> {
    (0..200).map(move |n| Ipv4Addr::from(n * 20_000_003 + kind))
}

#[test]
fn no_burst_sees_a_part_of_a_change() {
    for layout in [Layout::ExactSet, Layout::RankLeaf, Layout::Dxr16x4] {
        let [left, right] = [1, 2].map(|kind| set(addresses(kind).map(|addr| addr.to_string())));
        let both = set(addresses(1).chain(addresses(2)).map(|addr| addr.to_string()));
        let (store, binding) = store(&left, layout, 1000);
        let handle = binding.object(0).handle().expect("threads read it");
        let (stop, bursts, states) = (AtomicBool::new(false), AtomicU64::new(0), [(); 4].map(|()| AtomicU64::new(0)));
        std::thread::scope(|scope| {
            let read = || {
                let mut reader = store.readers().register().unwrap();
                while !stop.load(Ordering::Relaxed) {
                    let burst = reader.start_burst();
                    let view = handle.open(&burst);
                    let found = [1, 2].map(|kind| addresses(kind).filter(|&addr| view.find4(addr.into()) != 0).count());
                    assert!(found.iter().all(|&found| found == 0 || found == 200), "{layout:?}: {found:?}");
                    states[found[0] / 200 + 2 * (found[1] / 200)].fetch_add(1, Ordering::Relaxed);
                    bursts.fetch_add(1, Ordering::Relaxed);
                }
            };
            let reading = scope.spawn(read);
            let change = |change: TableChange<'_>| {
                let before = bursts.load(Ordering::Relaxed);
                store.change_by(&binding, "t", (change, Visibility::AtOnce), 0).unwrap();
                while bursts.load(Ordering::Relaxed) < before + 2 && !reading.is_finished() {
                    std::thread::yield_now();
                }
            };
            for _ in 0..30 {
                change(TableChange::Add { entries: &right, timeout_ms: None });
                change(TableChange::Remove(&left));
                change(TableChange::Replace(&left));
                change(TableChange::Update { entries: &both, timeout_ms: Some(1000) });
                change(TableChange::Replace(&right));
                change(TableChange::Flush);
                change(TableChange::Replace(&left));
            }
            stop.store(true, Ordering::Relaxed);
            reading.join().unwrap();
        });
        assert!(states.iter().all(|seen| seen.load(Ordering::Relaxed) > 0), "{layout:?}: {states:?}");
    }
}

#[test]
fn a_full_table_counts_what_it_refused() {
    let (store, binding) = store(&set(["10.0.0.1".to_owned()]), Layout::RankLeaf, 3);
    let many = set((1..6).map(|n| format!("10.0.0.{n}")));
    let change = |change: TableChange<'_>| store.change(&binding, "t", change, 0);
    let refused = change(TableChange::Add { entries: &many, timeout_ms: None }).unwrap_err();
    assert_eq!(refused, TableError::Full { name: "t".to_owned(), entries: 1, more: 4, size: 3 });
    assert_eq!(store.refused_by("t"), 4);
    change(TableChange::Update { entries: &many, timeout_ms: None }).unwrap_err();
    change(TableChange::Replace(&many)).unwrap_err();
    assert_eq!((store.refused_by("t"), store.refused_by("u")), (13, 0));
}
