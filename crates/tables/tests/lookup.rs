//! Every layout against the reference: random nested prefixes, and tables that reach each case of each layout.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use proptest::prelude::*;
use support::*;
use weir_abi::{Family, Layout};
use weir_tables::{BuildError, Entries, Image, ImageView, Kind};

fn check4(entries: Entries, layout: Layout, keys: impl IntoIterator<Item = u32>) -> Image {
    let reference = entries.reference();
    let image = entries.settle().build(layout).unwrap();
    let view = ImageView::new(image.as_bytes()).unwrap();
    for key in keys {
        assert_eq!(view.find4(key), reference.find4(key), "{} at {key:#010x}", layout.name());
        if let Some(stages) = view.stages() {
            let label = stages.finish(stages.begin(key), key as u16 & 0xfff);
            assert_eq!(label, reference.find4(key), "in two halves at {key:#010x}");
        }
    }
    assert_eq!(view.stages().is_some(), layout == Layout::Dxr16x4);
    assert_eq!(view.find6(1), 0, "of the other family");
    image
}

fn check6(entries: Entries, keys: impl IntoIterator<Item = u128>) -> Image {
    let keys: Vec<u128> = keys.into_iter().collect();
    check6_in(entries.clone(), Layout::RankLeaf6, &keys);
    check6_in(entries, Layout::Range6, &keys)
}

fn check6_in(entries: Entries, layout: Layout, keys: &[u128]) -> Image {
    let reference = entries.reference();
    let image = entries.settle().build(layout).unwrap();
    let view = ImageView::new(image.as_bytes()).unwrap();
    for &key in keys {
        assert_eq!(view.find6(key), reference.find6(key), "{} at {key:#034x}", layout.name());
    }
    assert_eq!(view.find4(1), 0, "of the other family");
    image
}

/// Bit `m` of what a fused image says is what table `m` says.
fn check_fused(lists: &[Vec<Entry<u32>>], keys: impl IntoIterator<Item = u32>) -> Image {
    let image = fused(lists);
    let references: Vec<_> = lists.iter().map(|list| table(Family::Ipv4, Kind::Set, list).reference()).collect();
    let view = ImageView::new(image.as_bytes()).unwrap();
    assert_eq!((view.labels(), view.find6(1)), ((1 << lists.len()) - 1, 0));
    for key in keys {
        let bits = references.iter().enumerate().map(|(member, reference)| reference.find4(key) << member);
        assert_eq!(view.find4(key), bits.sum(), "{key:#010x}");
    }
    image
}

/// As [`check_fused`].
fn check_fused6(lists: &[Vec<Entry<u128>>], keys: impl IntoIterator<Item = u128>) -> Image {
    let image = fused6(lists);
    let references: Vec<_> = lists.iter().map(|list| table(Family::Ipv6, Kind::Set, list).reference()).collect();
    let view = ImageView::new(image.as_bytes()).unwrap();
    assert_eq!((view.labels(), view.find4(1)), ((1 << lists.len()) - 1, 0));
    for key in keys {
        let bits = references.iter().enumerate().map(|(member, reference)| reference.find6(key) << member);
        assert_eq!(view.find6(key), bits.sum(), "{key:#034x}");
    }
    image
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn d16x4r_finds_the_longest_prefix(list in entries4(), keys in proptest::collection::vec(any::<u32>(), 100)) {
        check4(table(Family::Ipv4, Kind::Labels, &list), Layout::Dxr16x4, edges4(&list).into_iter().chain(keys));
    }

    #[test]
    fn rank_leaf_finds_the_longest_prefix(list in entries4(), keys in proptest::collection::vec(any::<u32>(), 100)) {
        check4(table(Family::Ipv4, Kind::Labels, &list), Layout::RankLeaf, edges4(&list).into_iter().chain(keys));
    }

    #[test]
    fn d16x4r_holds_sets(list in entries4()) {
        check4(table(Family::Ipv4, Kind::Set, &list), Layout::Dxr16x4, edges4(&list));
    }

    #[test]
    fn exact_set_is_exact(list in addresses4(), keys in proptest::collection::vec(any::<u32>(), 100)) {
        check4(table(Family::Ipv4, Kind::Set, &list), Layout::ExactSet, edges4(&list).into_iter().chain(keys));
    }

    #[test]
    fn fused_sets_answer_for_each(lists in proptest::collection::vec(addresses4(), 1..=4), keys in proptest::collection::vec(any::<u32>(), 100)) {
        check_fused(&lists, lists.iter().flat_map(|list| edges4(list)).chain(keys));
    }

    #[test]
    fn exact_set6_is_exact(list in exact6(), keys in proptest::collection::vec(any::<u128>(), 100)) {
        let keys: Vec<_> = edges6(&list).into_iter().chain(keys).collect();
        check6_in(table(Family::Ipv6, Kind::Set, &list), Layout::ExactSet6, &keys);
    }

    #[test]
    fn fused_sets_of_ipv6_answer_for_each(lists in proptest::collection::vec(exact6(), 1..=4), keys in proptest::collection::vec(any::<u128>(), 100)) {
        check_fused6(&lists, lists.iter().flat_map(|list| edges6(list)).chain(keys));
    }

    #[test]
    fn exact_leaf_holds_sets(list in entries4(), hosts in addresses4(), keys in proptest::collection::vec(any::<u32>(), 100)) {
        let list = [list, hosts].concat();
        check4(table(Family::Ipv4, Kind::Set, &list), Layout::ExactLeaf, edges4(&list).into_iter().chain(keys));
    }

    #[test]
    fn exact_leaf6_holds_sets(list in entries6(), hosts in exact6(), keys in proptest::collection::vec(any::<u128>(), 100)) {
        let list = [list, hosts].concat();
        let keys: Vec<_> = edges6(&list).into_iter().chain(keys).collect();
        check6_in(table(Family::Ipv6, Kind::Set, &list), Layout::ExactLeaf6, &keys);
    }

    #[test]
    fn both_ipv6_layouts_find_the_longest_prefix(list in entries6(), keys in proptest::collection::vec(any::<u128>(), 100)) {
        check6(table(Family::Ipv6, Kind::Labels, &list), edges6(&list).into_iter().chain(keys));
    }
}

#[test]
fn every_address_around_a_comb() {
    let list = comb4();
    let image = check4(table(Family::Ipv4, Kind::Labels, &list), Layout::Dxr16x4, 0x0a00_f000..0x0a01_3000);
    // Two blocks of 4096 ranges, each with its head.
    assert_eq!(image.sections()[3], ("ranges", 2 * 4097 * 4));
}

#[test]
fn equal_blocks_are_stored_once() {
    let list: Vec<_> = (0..=255).map(|net| (net << 24 | 0x0001_0203, 32, 1)).collect();
    let image = check4(table(Family::Ipv4, Kind::Set, &list), Layout::Dxr16x4, edges4(&list));
    assert_eq!(image.sections(), [("header", 64), ("direct", 131_072), ("extension", 2 * 64), ("ranges", 3 * 4)]);
}

#[test]
fn rank_leaves_of_every_size() {
    // Every count of runs up to and beyond a leaf and two, in parts that start with a run and in ones that do not.
    let mut list = Vec::new();
    for net in 0..150u32 {
        let first = 0x0a00_0000 + (net << 16);
        list.extend((0..net).map(|index| (first + 37 + index * 5, 32, 1 + index % 7)));
        list.extend((0..net % 40).map(|index| (first + 0x8000 + index, 32, 1 + index % 3)));
    }
    check4(table(Family::Ipv4, Kind::Labels, &list), Layout::RankLeaf, edges4(&list));
}

#[test]
fn rank_leaf_divides_what_is_dense_once_more() {
    // A /16 that is sparse but for a comb: one block with X small, nested blocks for the comb.
    let mut list = comb4();
    list.extend((0..64).map(|index| (0x0a01_0000 + (index << 10), 26, 6)));
    let image = check4(table(Family::Ipv4, Kind::Labels, &list), Layout::RankLeaf, 0x0a00_ff00..0x0a02_0100);
    assert_eq!(image.sections()[1], ("root", 1 << 18));
    // Two hundred hosts in one /24 of an else empty /16.
    let list: Vec<_> = (0..200).map(|index| (0x0a01_4200 + index, 32, 1 + index % 5)).collect();
    check4(table(Family::Ipv4, Kind::Labels, &list), Layout::RankLeaf, 0x0a00_fff0..0x0a02_0010);
}

#[test]
fn rank_leaf_values_of_every_width() {
    for labels in [255, 256, 0xffff, 0x1_0000, (1 << 20) - 1] {
        let list: Vec<_> = (1..=labels).map(|index| (index << 12, 20, index)).collect();
        let image =
            check4(table(Family::Ipv4, Kind::Labels, &list), Layout::RankLeaf, edges4(&list[list.len() - 99..]));
        let lanes = image.sections()[3].1 / 2;
        let width = if labels < 1 << 8 {
            1
        } else if labels < 1 << 16 {
            2
        } else {
            3
        };
        assert_eq!(image.sections()[4], ("values", lanes * width + 3), "{labels} labels");
    }
}

#[test]
fn counted_leaves_of_all_kinds() {
    let (list, special) = counting4();
    let keys = edges4(&list[..special + 2000]).into_iter().chain(edges4(&list[list.len() - 500..]));
    let image = check4(table(Family::Ipv4, Kind::Labels, &list), Layout::CountedLeaf, keys);
    assert_eq!(image.layout(), Layout::CountedLeaf);
    assert!(image.sections()[4].1 > 3 * 32, "leaves of both kinds");
    let few = check4(table(Family::Ipv4, Kind::Labels, &list[..2000]), Layout::CountedLeaf, edges4(&list[..2000]));
    assert_eq!(few.layout(), Layout::RankLeaf, "few are smaller so");
}

#[test]
fn exact_sets_of_all_bucket_sizes() {
    // Bytes of the buckets that each count of random addresses is expected to need.
    for (count, buckets) in
        [(0, 512 << 10), (20_000, 512 << 10), (150_000, 1 << 20), (400_000, 2 << 20), (1_100_000, 4 << 20)]
    {
        let mut random = Random(count as u64 + 1);
        let list: Vec<_> = (0..count).map(|_| ((random.next() >> 20) as u32, 32, 1)).collect();
        let keys = edges4(&list[..list.len().min(20_000)]);
        let image = check4(table(Family::Ipv4, Kind::Set, &list), Layout::ExactSet, keys);
        assert_eq!(image.sections()[1], ("buckets", buckets), "{count} addresses");
        assert!(image.sections()[2].1 <= count / 500 * 64 + 256, "{count} addresses: {:?}", image.sections());
    }
}

#[test]
fn an_exact_set_whose_buckets_overflow() {
    let list = crowd4(300_000, 7);
    let image = check4(table(Family::Ipv4, Kind::Set, &list), Layout::ExactSet, edges4(&list));
    assert!(image.sections()[2].1 > 128, "more than the two groups that there are always");
}

#[test]
fn fused_sets_of_all_shapes() {
    // Members' sizes and bytes of the buckets.
    let shapes: [(&[usize], usize); 6] = [
        (&[0, 0], 1 << 20),
        (&[100_000, 170_000], 2 << 20),
        (&[10_000, 170_000, 30_000], 2 << 20),
        (&[1_000_000, 90_000], 4 << 20),
        (&[30_000; 4], 2 << 20),
        (&[20_000], 512 << 10),
    ];
    for (sizes, bytes) in shapes {
        let mut random = Random(9);
        let mut list = |&size: &usize| (0..size).map(|_| ((random.next() >> 20) as u32, 32, 1)).collect::<Vec<_>>();
        let lists: Vec<_> = sizes.iter().map(&mut list).collect();
        let keys = lists.iter().flat_map(|list| edges4(&list[..list.len().min(5000)]));
        let image = check_fused(&lists, keys.collect::<Vec<_>>());
        assert_eq!(image.sections()[1], ("buckets", bytes), "{sizes:?}");
    }
}

#[test]
fn fused_sets_that_overflow_in_each_member() {
    for crowded in 0..3 {
        let lists: Vec<_> = (0..3).map(|member| crowd4(if member == crowded { 300_000 } else { 3000 }, 7)).collect();
        let image = check_fused(&lists, lists.iter().flat_map(|list| edges4(&list[..3000])));
        assert!(image.sections()[2].1 > 128, "{:?}", image.sections());
    }
}

#[test]
fn exact_set6_of_either_kind_and_both() {
    for (nets, hosts) in [(0, 0), (1, 0), (0, 1), (30_000, 0), (0, 30_000), (50_000, 50_000)] {
        let list = nets_and_hosts6(nets, hosts, 5);
        let image = check6_in(table(Family::Ipv6, Kind::Set, &list), Layout::ExactSet6, &edges6(&list));
        let sections = image.sections();
        // A kind has at least 64 buckets.
        let least = |count: usize| if count == 0 { 0 } else { 64 * 64 };
        assert!(sections[1].1 <= (nets * 32 / 3 + 64).max(least(nets)), "{sections:?}");
        assert!(sections[2].1 <= (hosts * 64 / 3 + 64).max(least(hosts)), "{sections:?}");
        // One host in 150 has the network of free pairs, as on no real list: these are in the overflow.
        assert!(sections[3].1 <= hosts * 4 + 256, "{sections:?}");
    }
}

#[test]
fn fused_sets_of_ipv6_share_most_and_least_keys() {
    for (first, second) in [(5, 5), (5, 6)] {
        let lists = [nets_and_hosts6(20_000, 30_000, first), nets_and_hosts6(10_000, 30_000, second), vec![]];
        let image = check_fused6(&lists, lists.iter().flat_map(|list| edges6(list)));
        // A key has one word, whichever members have it.
        let distinct = |len: u8| {
            let prefix = |&(addr, of, _): &Entry<u128>| (of == len).then_some(addr >> (128 - len));
            lists.iter().flatten().filter_map(prefix).collect::<std::collections::BTreeSet<_>>().len()
        };
        let sections = image.sections();
        assert!(sections[1].1 <= (distinct(64) * 32 / 3 + 64).max(1024 * 64), "{sections:?}");
        assert!(sections[2].1 <= (distinct(128) * 64 / 3 + 64).max(1024 * 64), "{sections:?}");
        assert!(sections[3].1 <= distinct(128) * 4 + 256, "{sections:?}");
    }
    assert_eq!(fused6(&[nets_and_hosts6(1, 0, 1)]).sections()[1], ("nets", 1024 * 64), "the least");
}

#[test]
fn nodes_and_heads_of_range6() {
    let list = crowd6();
    let image = check6(table(Family::Ipv6, Kind::Labels, &list), edges6(&list));
    assert!(image.sections()[2].1 > 0, "nodes: {:?}", image.sections());
}

#[test]
fn empty_tables_are_legal() {
    for kind in [Kind::Set, Kind::Labels] {
        check4(Entries::new(Family::Ipv4, kind), Layout::Dxr16x4, [0, 1, u32::MAX]);
        check4(Entries::new(Family::Ipv4, kind), Layout::RankLeaf, [0, 1, u32::MAX]);
        check4(Entries::new(Family::Ipv4, kind), Layout::CountedLeaf, [0, 1, u32::MAX]);
        check6(Entries::new(Family::Ipv6, kind), [0, 1, u128::MAX]);
    }
    check4(Entries::new(Family::Ipv4, Kind::Set), Layout::ExactSet, [0, 1, u32::MAX]);
    check4(Entries::new(Family::Ipv4, Kind::Set), Layout::ExactSets, [0, 1, u32::MAX]);
    check6_in(Entries::new(Family::Ipv6, Kind::Set), Layout::ExactSet6, &[0, 1, u128::MAX]);
    check6_in(Entries::new(Family::Ipv6, Kind::Set), Layout::ExactSets6, &[0, 1, u128::MAX]);
    check4(Entries::new(Family::Ipv4, Kind::Set), Layout::ExactLeaf, [0, 1, u32::MAX]);
    check6_in(Entries::new(Family::Ipv6, Kind::Set), Layout::ExactLeaf6, &[0, 1, u128::MAX]);
}

#[test]
fn default_routes_are_legal() {
    check4(table(Family::Ipv4, Kind::Set, &[(0u32, 0, 1)]), Layout::Dxr16x4, [0, 1, u32::MAX]);
    check4(table(Family::Ipv4, Kind::Set, &[(0u32, 0, 1)]), Layout::RankLeaf, [0, 1, u32::MAX]);
    check4(table(Family::Ipv4, Kind::Set, &[(0u32, 0, 1)]), Layout::ExactLeaf, [0, 1, u32::MAX]);
    check6(table(Family::Ipv6, Kind::Set, &[(0u128, 0, 1)]), [0, 1, u128::MAX]);
    check6_in(table(Family::Ipv6, Kind::Set, &[(0u128, 0, 1)]), Layout::ExactLeaf6, &[0, 1, u128::MAX]);
}

#[test]
fn the_later_of_equal_prefixes_wins() {
    let list = [(0x0a00_0000u32, 8, 1), (0x0a01_0000, 16, 3), (0x0aff_ffff, 8, 2), (0x0a01_0000, 16, 3)];
    let entries = table(Family::Ipv4, Kind::Labels, &list);
    let reference = entries.reference();
    let table = entries.settle();
    let facts = table.facts();
    assert_eq!((facts.entries, facts.repeated, facts.relabelled), (2, 1, 1));
    assert_eq!((facts.by_length.len(), facts.by_length[8], facts.by_length[16]), (33, 1, 1));
    assert_eq!(table.labels().iter().map(|label| &**label).collect::<Vec<_>>(), ["L1", "L3", "L2"]);
    assert_eq!((reference.find4(0x0a02_0000), table.reference().find4(0x0a02_0000)), (3, 3), "L2 is the third label");
}

#[test]
fn layouts_refuse_what_they_cannot_hold() {
    let labelled = table(Family::Ipv4, Kind::Labels, &[(1u32, 32, 1)]).settle();
    assert_eq!(labelled.build(Layout::ExactSet).unwrap_err(), BuildError::Labelled { layout: Layout::ExactSet });
    let nets = table(Family::Ipv4, Kind::Set, &[(0x0a00_0000u32, 8, 1)]).settle();
    let error = nets.build(Layout::ExactSet).unwrap_err();
    assert_eq!(error.to_string(), "layout exact-set holds /32 addresses only, the table has 10.0.0.0/8");
    assert_eq!(nets.build(Layout::Range6).unwrap_err().to_string(), "layout range6 does not hold IPv4 prefixes");
    assert_eq!(labelled.build(Layout::ExactSets).unwrap_err(), BuildError::Labelled { layout: Layout::ExactSets });
    let error = weir_tables::fused(&[&nets; 5]).unwrap_err();
    assert_eq!(error.to_string(), "layout exact-sets holds at most 4 sets, and at least one");
    let error = weir_tables::fused(&[&nets]).unwrap_err();
    assert_eq!(error.to_string(), "layout exact-sets holds /32 addresses only, the table has 10.0.0.0/8");
    let subnet = table(Family::Ipv6, Kind::Set, &[(1u128, 127, 1)]).settle();
    let error = subnet.build(Layout::ExactSet6).unwrap_err();
    assert_eq!(error.to_string(), "layout exact-set6 holds /64 and /128 prefixes only, the table has ::/127");
    let v6 = table(Family::Ipv6, Kind::Set, &[(1u128, 128, 1)]).settle();
    let error = weir_tables::fused(&[&v6, &nets]).unwrap_err();
    assert_eq!(error.to_string(), "layout exact-sets6 does not hold IPv4 prefixes");
    let error = weir_tables::fused(&[&v6, &subnet]).unwrap_err();
    assert_eq!(error.to_string(), "layout exact-sets6 holds /64 and /128 prefixes only, the table has ::/127");
    assert_eq!(v6.build(Layout::ExactSets).unwrap_err().to_string(), "layout exact-sets does not hold IPv6 prefixes");
    assert_eq!(v6.build(Layout::Dxr16x4).unwrap_err().to_string(), "layout d16x4r does not hold IPv6 prefixes");
}

#[test]
fn limits_are_named() {
    let list: Vec<_> = (1..=1u32 << 20).map(|index| (index << 4, 32, index)).collect();
    let error = table(Family::Ipv4, Kind::Labels, &list).settle().build(Layout::Dxr16x4).unwrap_err();
    assert_eq!(error.to_string(), "layout d16x4r holds at most 1048575 labels");
    let mut random = Random(1);
    let mut list: Vec<_> = (0..2_200_000u32).map(|index| (index << 10 | random.next() as u32 >> 22, 32, 1)).collect();
    let error = table(Family::Ipv4, Kind::Set, &list).settle().build(Layout::Dxr16x4).unwrap_err();
    assert_eq!(error.to_string(), "layout d16x4r holds at most 4194304 ranges");
    list.truncate(1_000_000);
    assert!(table(Family::Ipv4, Kind::Set, &list).settle().build(Layout::Dxr16x4).is_ok());
}

#[test]
fn as_many_labels_as_d16x4r_has() {
    let list: Vec<_> = (1..1u32 << 20).map(|index| (index << 12, 20, index)).collect();
    let keys = [0, 1 << 12, 77 << 12, u32::MAX];
    check4(table(Family::Ipv4, Kind::Labels, &list), Layout::Dxr16x4, keys);
}

#[test]
fn parts_whose_only_value_is_a_block() {
    let list = alike6();
    check6(table(Family::Ipv6, Kind::Labels, &list), edges6(&list));
}
