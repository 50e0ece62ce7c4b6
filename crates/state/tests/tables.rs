//! Tables from generation to generation: what changes reach, what begins anew, what is refused.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use support::{entries, image, labels, set};
use weir_abi::{Family, Layout};
use weir_state::tables::{
    Changed, DynamicBounds, ImageDeclared, NotTaken, TableBinding, TableChange, TableError, TableStore, Visibility,
};
use weir_state::{Declared, StateError};
use weir_tables::{Entries, Kind, Table};

/// What a reader finds in the images of a generation.
fn find(store: &TableStore, binding: &TableBinding, addr: [u8; 4]) -> Vec<u32> {
    let mut reader = store.readers().register().unwrap();
    let burst = reader.start_burst();
    binding
        .objects()
        .map(|image| image.handle().expect("threads read it").open(&burst).find4(Ipv4Addr::from(addr).into()))
        .collect()
}

fn bind(store: &TableStore, declared: Vec<Declared<ImageDeclared>>) -> Result<Arc<TableBinding>, StateError> {
    store.bind(declared, 0)
}

fn change(
    store: &TableStore,
    active: &TableBinding,
    name: &str,
    change: TableChange<'_>,
) -> Result<Changed, TableError> {
    store.change(active, name, change, 0)
}

fn add(entries: &Table) -> TableChange<'_> {
    TableChange::Add { entries, timeout_ms: None }
}

fn changed(changed: usize, entries: usize) -> Changed {
    Changed { changed, refreshed: 0, entries, left_out: NotTaken::default() }
}

#[test]
fn a_change_reaches_every_image_of_every_generation() {
    let store = TableStore::default();
    let (bad, admin) = (set(&["192.0.2.1"]), set(&["192.0.2.2"]));
    let fused = || image(&[("bad", &bad), ("admin", &admin)], Layout::ExactSets, None);
    let alone = || image(&[("bad", &bad)], Layout::RankLeaf, None);
    let first = bind(&store, vec![fused()]).unwrap();
    let second = bind(&store, vec![alone(), fused()]).unwrap();
    let added = set(&["198.51.100.7"]);
    let done = change(&store, &second, "bad", add(&added)).unwrap();
    assert_eq!(done, changed(1, 2));
    assert_eq!(find(&store, &first, [198, 51, 100, 7]), [1]);
    assert_eq!(find(&store, &second, [198, 51, 100, 7]), [1, 1]);
    // A third policy has these lists and is loaded later.
    let third = bind(&store, vec![alone(), fused()]).unwrap();
    assert_eq!(find(&store, &third, [198, 51, 100, 7]), [1, 1]);
    // `admin` is in fused images only.
    change(&store, &third, "admin", add(&added)).unwrap();
    assert_eq!(
        (find(&store, &first, [198, 51, 100, 7]), find(&store, &third, [198, 51, 100, 7])),
        (vec![3], vec![1, 3])
    );
    change(&store, &first, "bad", TableChange::Flush).unwrap();
    assert_eq!(find(&store, &second, [192, 0, 2, 1]), [0, 0]);
    assert_eq!(entries(&store, &second, "admin"), ["192.0.2.2", "198.51.100.7"]);
}

#[test]
fn another_list_begins_anew_and_the_old_generation_keeps_its_changes() {
    let store = TableStore::default();
    let old = bind(&store, vec![image(&[("bad", &set(&["192.0.2.1"]))], Layout::ExactSet, None)]).unwrap();
    change(&store, &old, "bad", add(&set(&["192.0.2.9"]))).unwrap();
    let new = bind(&store, vec![image(&[("bad", &set(&["192.0.2.2"]))], Layout::ExactSet, None)]).unwrap();
    assert_eq!(entries(&store, &new, "bad"), ["192.0.2.2"]);
    change(&store, &new, "bad", add(&set(&["192.0.2.3"]))).unwrap();
    assert_eq!(entries(&store, &old, "bad"), ["192.0.2.1", "192.0.2.3", "192.0.2.9"]);
    let same = bind(&store, vec![image(&[("bad", &set(&["192.0.2.1"]))], Layout::ExactSet, None)]).unwrap();
    assert_eq!(entries(&store, &same, "bad").len(), 3, "the same list");
    drop((old, same));
    let later = bind(&store, vec![image(&[("bad", &set(&["192.0.2.1"]))], Layout::ExactSet, None)]).unwrap();
    assert_eq!(entries(&store, &later, "bad"), ["192.0.2.1"], "no generation had it any more");
}

#[test]
fn a_dynamic_table_keeps_its_entries_and_takes_the_newest_bounds() {
    let store = TableStore::default();
    let declared = |elements: &[&str], size: usize| {
        image(&[("suspects", &set(elements))], Layout::RankLeaf, Some(DynamicBounds { size, timeout_ms: None }))
    };
    let first = bind(&store, vec![declared(&[], 2)]).unwrap();
    let two = set(&["192.0.2.0/25", "192.0.2.128/26"]);
    change(&store, &first, "suspects", add(&two)).unwrap();
    let more = set(&["192.0.2.0/25", "198.51.100.1"]);
    let full = TableError::Full { name: "suspects".to_owned(), entries: 2, more: 1, size: 2 };
    assert_eq!(change(&store, &first, "suspects", add(&more)), Err(full));
    let second = bind(&store, vec![declared(&["203.0.113.1"], 3)]).unwrap();
    assert_eq!(entries(&store, &second, "suspects").len(), 2);
    assert!(change(&store, &first, "suspects", add(&more)).is_err(), "the active generation decides");
    change(&store, &second, "suspects", add(&more)).unwrap();
    assert_eq!(entries(&store, &first, "suspects").len(), 3);
    // What a table has already is no more.
    change(&store, &first, "suspects", add(&two)).unwrap();
    let replaced = change(&store, &second, "suspects", TableChange::Replace(&set(&["10.0.0.0-10.0.0.6"]))).unwrap();
    assert_eq!(replaced, changed(6, 3));
    let address = IpAddr::from([10, 0, 0, 5]);
    let found = store.read(&second, "suspects", |table| table.longest(address).map(|entry| entry.to_string()));
    assert_eq!(found.unwrap().as_deref(), Some("10.0.0.4/31"));
}

#[test]
fn what_does_not_fit_changes_nothing() {
    let store = TableStore::default();
    let geo = labels(&[("192.0.2.0/24", "AA")]);
    let binding = bind(
        &store,
        vec![
            image(&[("bad", &set(&["192.0.2.1"]))], Layout::ExactSet, None),
            image(&[("geo", &geo)], Layout::RankLeaf, None),
        ],
    )
    .unwrap();
    let refused = |name: &str, table: &Table| change(&store, &binding, name, add(table)).unwrap_err().to_string();
    assert_eq!(refused("none", &geo), "the active policy has no table none; it has bad, geo");
    assert_eq!(refused("bad", &geo), "table bad has entries without labels");
    assert_eq!(refused("bad", &Entries::new(Family::Ipv6, Kind::Set).settle()), "table bad has IPv4 entries");
    assert!(refused("bad", &set(&["10.0.0.1", "10.1.0.0/16"])).contains("10.1.0.0/16"));
    let new = refused("geo", &labels(&[("10.0.0.1", "AA"), ("10.0.0.2", "BB")]));
    assert!(new.starts_with("table geo: no entry had the label BB when the policy was loaded"), "{new}");
    assert_eq!((entries(&store, &binding, "bad").len(), entries(&store, &binding, "geo").len()), (1, 1));
    // A removal needs no label, and what is not there is ignored.
    let removed = change(&store, &binding, "geo", TableChange::Remove(&set(&["192.0.2.0/24", "10.0.0.0/8"]))).unwrap();
    assert_eq!(removed, changed(1, 0));
    assert_eq!(find(&store, &binding, [192, 0, 2, 1]), [1, 0]);
}

#[test]
fn tables_continue_in_other_images() {
    let store = TableStore::default();
    let (bad, admin) = (set(&["192.0.2.1"]), set(&["192.0.2.2"]));
    let first = bind(&store, vec![image(&[("bad", &bad), ("admin", &admin)], Layout::ExactSets, None)]).unwrap();
    change(&store, &first, "bad", add(&set(&["192.0.2.9"]))).unwrap();
    // Another order, alone, and another layout: as other rules or another `layout` give it.
    let turned = bind(&store, vec![image(&[("admin", &admin), ("bad", &bad)], Layout::ExactSets, None)]).unwrap();
    assert_eq!(find(&store, &turned, [192, 0, 2, 9]), [2]);
    let alone = bind(&store, vec![image(&[("bad", &bad)], Layout::ExactSet, None)]).unwrap();
    let general = bind(&store, vec![image(&[("bad", &bad)], Layout::RankLeaf, None)]).unwrap();
    for binding in [&alone, &general] {
        assert_eq!(entries(&store, binding, "bad"), ["192.0.2.1", "192.0.2.9"]);
        assert_eq!(find(&store, binding, [192, 0, 2, 9]), [1]);
    }
    // A policy whose layout cannot hold the entries is refused.
    change(&store, &general, "bad", add(&set(&["10.0.0.0/8"]))).unwrap();
    drop((first, turned, alone));
    let refused = bind(&store, vec![image(&[("bad", &bad)], Layout::ExactSet, None)]).err().unwrap().to_string();
    assert!(
        refused.starts_with("table bad: its entries, which were changed while packets passed, do not fit"),
        "{refused}"
    );
}

#[test]
fn generations_that_cannot_hold_a_change_are_left_out_and_counted() {
    let store = TableStore::default();
    let old = bind(
        &store,
        vec![
            image(&[("bad", &set(&["192.0.2.1"]))], Layout::ExactSet, None),
            image(&[("geo", &labels(&[("192.0.2.0/24", "AA")]))], Layout::RankLeaf, None),
            image(&[("turned", &set(&["192.0.2.1"]))], Layout::ExactSet, None),
        ],
    )
    .unwrap();
    let new = bind(
        &store,
        vec![
            image(&[("bad", &set(&["192.0.2.2"]))], Layout::RankLeaf, None),
            image(&[("geo", &labels(&[("192.0.2.0/24", "AA"), ("10.0.0.0/8", "BB")]))], Layout::RankLeaf, None),
            image(&[("turned", &labels(&[("192.0.2.1", "AA")]))], Layout::RankLeaf, None),
        ],
    )
    .unwrap();
    let left_out = |name: &str, table: &Table| change(&store, &new, name, add(table)).unwrap().left_out.images;
    assert_eq!((left_out("bad", &set(&["10.0.0.0/8"])), left_out("bad", &set(&["10.0.0.1"]))), (1, 0));
    assert_eq!(entries(&store, &old, "bad"), ["10.0.0.1", "192.0.2.1"]);
    // Code that was compiled for one label never meets another.
    assert_eq!(left_out("geo", &labels(&[("198.51.100.1", "BB"), ("198.51.100.2", "AA")])), 1);
    assert_eq!(find(&store, &old, [198, 51, 100, 1]), [0, 0, 0]);
    assert_eq!(left_out("geo", &labels(&[("198.51.100.2", "AA")])), 0);
    assert_eq!(find(&store, &old, [198, 51, 100, 2]), [0, 1, 0]);
    // A table of the same name and another type is another table.
    let removed = change(&store, &new, "turned", TableChange::Remove(&set(&["192.0.2.1"]))).unwrap();
    assert_eq!((removed, entries(&store, &old, "turned").len()), (changed(1, 0), 1));
}

#[test]
fn a_list_that_was_read_again_counts_for_later_generations() {
    let store = TableStore::default();
    let (old, new) = (set(&["192.0.2.1"]), set(&["192.0.2.7", "192.0.2.8"]));
    let declared = |list: &Arc<Table>| vec![image(&[("bad", list)], Layout::RankLeaf, None)];
    let first = bind(&store, declared(&old)).unwrap();
    change(&store, &first, "bad", TableChange::Replace(&new)).unwrap();
    store.set_listed(&first, "bad", &new);
    assert_eq!(store.listed(&first, "bad").unwrap(), new);
    change(&store, &first, "bad", add(&set(&["203.0.113.1"]))).unwrap();
    let current = ["192.0.2.7", "192.0.2.8", "203.0.113.1"];
    let same = bind(&store, declared(&new)).unwrap();
    assert_eq!(entries(&store, &same, "bad"), current, "it continues with the change by hand");
    change(&store, &same, "bad", add(&set(&["203.0.113.2"]))).unwrap();
    assert_eq!(entries(&store, &first, "bad").len(), 4, "both have one image");
    let other = bind(&store, declared(&old)).unwrap();
    assert_eq!(entries(&store, &other, "bad"), ["192.0.2.1"], "the list of the first generation is another one now");
    assert_eq!(store.contents(&other, "bad").unwrap(), old);
    assert!(matches!(store.listed(&other, "none"), Err(TableError::NoTable { .. })));

    // The code of a later generation knows labels by their order in its list.
    let store = TableStore::default();
    let (old, new) =
        (labels(&[("10.0.0.0/8", "AA"), ("11.0.0.0/8", "BB")]), labels(&[("10.0.0.0/8", "BB"), ("11.0.0.0/8", "AA")]));
    let declared = |list: &Arc<Table>| vec![image(&[("geo", list)], Layout::RankLeaf, None)];
    let first = bind(&store, declared(&old)).unwrap();
    change(&store, &first, "geo", TableChange::Replace(&new)).unwrap();
    store.set_listed(&first, "geo", &new);
    let second = bind(&store, declared(&new)).unwrap();
    assert_eq!(find(&store, &first, [10, 0, 0, 1]), [2], "BB is the second label of the first generation");
    assert_eq!(find(&store, &second, [10, 0, 0, 1]), [1], "and the first label of the second");
}

#[test]
fn a_new_list_reaches_only_generations_with_the_same_list() {
    let store = TableStore::default();
    let (old, new, other) = (set(&["192.0.2.1"]), set(&["192.0.2.7", "192.0.2.8"]), set(&["198.51.100.1"]));
    let declared = |list: &Arc<Table>, layout| vec![image(&[("bad", list)], layout, None)];
    let same = bind(&store, declared(&old, Layout::ExactSet)).unwrap();
    let active = bind(&store, declared(&old, Layout::RankLeaf)).unwrap();
    let another = bind(&store, declared(&other, Layout::RankLeaf)).unwrap();
    let replace = |list: &Arc<Table>| store.replace_lists(&active, &[("bad", list)], 0).unwrap();
    // By hand: all generations.
    change(&store, &active, "bad", add(&set(&["203.0.113.1"]))).unwrap();
    assert_eq!(entries(&store, &another, "bad"), ["198.51.100.1", "203.0.113.1"]);

    assert_eq!(replace(&new), [NotTaken::default()]);
    for binding in [&same, &active] {
        assert_eq!(entries(&store, binding, "bad"), ["192.0.2.7", "192.0.2.8"]);
        assert_eq!(store.listed(binding, "bad").unwrap(), new);
    }
    assert_eq!(entries(&store, &another, "bad"), ["198.51.100.1", "203.0.113.1"]);
    assert_eq!(store.listed(&another, "bad").unwrap(), other);

    // A layout that cannot hold the list: the generation keeps its list, and is another one from then on.
    assert_eq!(replace(&set(&["192.0.2.0/24"])), [NotTaken { images: 1, partial: 0 }]);
    assert_eq!(replace(&old), [NotTaken::default()]);
    assert_eq!(entries(&store, &same, "bad"), ["192.0.2.7", "192.0.2.8"]);
    assert_eq!(store.listed(&same, "bad").unwrap(), new);
    assert_eq!(entries(&store, &active, "bad"), ["192.0.2.1"]);
}

#[test]
fn lists_are_replaced_all_or_none() {
    const NOW_NS: u64 = 1_000_000_000;
    let store = TableStore::default();
    let (old, new) = (set(&["192.0.2.1"]), set(&["192.0.2.7", "192.0.2.8"]));
    let layout = Layout::RankLeaf;
    let declared = || vec![image(&[("one", &old)], layout, None), image(&[("two", &old)], layout, None)];
    let active = bind(&store, declared()).unwrap();
    let other = bind(&store, vec![image(&[("one", &old)], Layout::ExactSet, None)]).unwrap();
    let brief = TableChange::Add { entries: &set(&["203.0.113.1"]), timeout_ms: Some(60_000) };
    store.change(&active, "one", brief, NOW_NS).unwrap();
    let lists = [("one", &new), ("two", &new)];
    let mut reader = store.readers().register().unwrap();
    let _burst = reader.start_burst();
    // The reader holds as many replaced images of the second table as it may.
    let at_once =
        |list: &Table| store.change_by(&active, "two", (TableChange::Replace(list), Visibility::AtOnce), NOW_NS);
    while at_once(&new).and_then(|_| at_once(&set(&["192.0.2.1", "192.0.2.2"]))).is_ok() {}
    let two = entries(&store, &active, "two");

    let many: Vec<String> = (0..4000).map(|n| format!("10.0.{}.{}", n >> 8, n & 255)).collect();
    let many = set(&many.iter().map(String::as_str).collect::<Vec<_>>());
    let not_replaced = store.replace_lists(&active, &[("one", &new), ("two", &many)], NOW_NS).unwrap_err();
    assert_eq!((not_replaced.name.as_str(), not_replaced.not_restored.len()), ("two", 0));
    assert!(not_replaced.may_succeed_later());
    assert!(not_replaced.to_string().starts_with("table two: readers still hold "), "{not_replaced}");
    for binding in [&active, &other] {
        assert_eq!(entries(&store, binding, "one"), ["192.0.2.1", "203.0.113.1"]);
        assert_eq!(store.listed(binding, "one").unwrap(), old);
    }
    assert_eq!(entries(&store, &active, "two"), two);
    let left = |binding| {
        store
            .read(binding, "one", |table| table.entries().filter_map(|one| table.left_ns(&one, NOW_NS)).count())
            .unwrap()
    };
    assert_eq!((left(&active), left(&other)), (1, 1), "the deadline is there again");

    drop(reader);
    store.replace_lists(&active, &lists, NOW_NS).unwrap();
    assert_eq!((entries(&store, &active, "two").len(), entries(&store, &other, "one").len()), (2, 2));
    assert_eq!((left(&active), left(&other)), (0, 0));
}

#[test]
fn a_check_changes_nothing() {
    let store = TableStore::default();
    let bad = set(&["192.0.2.1"]);
    let active = bind(&store, vec![image(&[("bad", &bad)], Layout::ExactSet, None)]).unwrap();
    let (hosts, nets) = (set(&["192.0.2.2"]), set(&["192.0.2.0/24"]));
    store.check(&active, "bad", TableChange::Replace(&hosts)).unwrap();
    let refused = store.check(&active, "bad", TableChange::Replace(&nets)).unwrap_err();
    assert_eq!(Err(refused), change(&store, &active, "bad", TableChange::Replace(&nets)));
    assert_eq!(entries(&store, &active, "bad"), ["192.0.2.1"]);
    let found =
        store.read(&active, "bad", |table| table.overlap(&set(&["10.0.0.1", "192.0.2.0/31"])).unwrap()).unwrap();
    assert_eq!((found.entry.as_str(), found.other.as_str(), found.count), ("192.0.2.0/31", "192.0.2.1", 1));
    assert_eq!(store.read(&active, "bad", |table| table.overlap(&hosts)).unwrap(), None);
}
