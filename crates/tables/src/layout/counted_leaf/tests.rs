//! Compares small counted images, for which the builder would choose rank leaves, with the reference; checks the choice
//! by size.

use proptest::prelude::*;
use weir_abi::Layout;

use super::build::{build4, counted4};
use crate::image::{Image, ImageView};
use crate::layout::{Room, rank_leaf};
use crate::prefix::{Address, Prefix, Prefix4};
use crate::reference::Reference;

/// A prefix and its label, if the label is out of order.
type Given = (u32, u8, Option<u32>);

const LABELS: u32 = 0x2_0000;

/// Sorts and removes duplicates. Prefixes without a given label get the next one.
fn counting(mut given: Vec<Given>, first: u32) -> Vec<Prefix4> {
    let masked = |addr: u32, len: u8| addr.without(u32::host_mask(len));
    given.iter_mut().for_each(|(addr, len, _)| *addr = masked(*addr, *len));
    given.sort_by_key(|&(addr, len, _)| addr.order(len));
    given.dedup_by_key(|&mut (addr, len, _)| (addr, len));
    let mut next = first;
    let mut label = |out_of_turn: Option<u32>| {
        out_of_turn.unwrap_or_else(|| {
            next += 1;
            next - 1
        })
    };
    given.into_iter().map(|(addr, len, out_of_turn)| Prefix::new(addr, len, label(out_of_turn))).collect()
}

fn given() -> impl Strategy<Value = Vec<Given>> {
    let addr = prop_oneof![
        3 => (0u32..3, any::<u32>()).prop_map(|(top, low)| 0x0a00_0000 | top << 16 | low & 0xffff),
        3 => any::<u16>().prop_map(|low| 0xc0a8_1000 | u32::from(low) & 0xfff),
        1 => any::<u32>(),
        1 => prop_oneof![Just(0), Just(u32::MAX), Just(0xffff_0000), Just(0xfffe_ffff)],
    ];
    let len = prop_oneof![1 => 8u8..=16, 4 => 17u8..=24, 4 => 25u8..=32, 2 => Just(32u8)];
    let label = prop_oneof![12 => Just(None), 1 => (1..LABELS).prop_map(Some)];
    prop::collection::vec((addr, len, label), 0..200)
}

/// The image agrees with the reference at every edge and passes its own check.
fn check(image: &Image, prefixes: &[Prefix4], keys: impl IntoIterator<Item = u32>) {
    let reference = Reference::new4(prefixes);
    let view = ImageView::new(image.as_bytes()).expect("it was just built");
    let edges = prefixes
        .iter()
        .flat_map(|prefix| [prefix.addr.wrapping_sub(1), prefix.addr, prefix.last(), prefix.last().wrapping_add(1)]);
    for key in edges.chain([0, u32::MAX]).chain(keys) {
        assert_eq!(view.find4(key), reference.find4(key), "{key:#010x}");
    }
}

fn bytes(image: &Image, section: usize) -> usize {
    image.sections()[1 + section].1
}

proptest! {
    #[test]
    fn labels_are_found(given in given(), first in 1..0x1_0000u32, keys in prop::collection::vec(any::<u32>(), 50)) {
        let prefixes = counting(given, first);
        let image = counted4(&prefixes, LABELS).expect("it is small");
        assert_eq!(image.layout(), Layout::CountedLeaf);
        check(&image, &prefixes, keys);
        let smaller = build4(&prefixes, LABELS, Room::None).expect("it is small");
        assert_eq!(smaller.layout(), Layout::RankLeaf, "it is smaller");
        check(&smaller, &prefixes, []);
    }
}

#[test]
fn leaves_of_every_size_have_no_labels() {
    // From one prefix to more than two leaves, with neighbours and with gaps, in parts that start with a prefix and
    // parts that do not.
    let mut given = Vec::new();
    for net in 0..130u32 {
        let first = 0x0a00_0000 + (net << 16);
        given.extend((0..net).map(|index| (first + 77 + index, 32, None)));
        given.extend((0..net % 70).map(|index| (first + 0x8000 + 3 * index, 32, None)));
    }
    let prefixes = counting(given, 1);
    let image = counted4(&prefixes, LABELS).expect("it is small");
    check(&image, &prefixes, 0x0a10_0000..0x0a10_0200);
    assert_eq!(bytes(&image, 3), 3, "no leaf lists its labels");
}

#[test]
fn what_is_divided_alike_is_stored_once() {
    let given: Vec<Given> = (0..1 << 20).map(|index| (index << 12, 20, None)).collect();
    let prefixes = counting(given, 1 << 21 | 1);
    let image = build4(&prefixes, 1 << 22, Room::None).expect("it is small");
    assert_eq!(image.sections()[1..], [("root", 1 << 19), ("entries", 4), ("starts", 64), ("values", 3)]);
    for key in [0, 0xfff, 0x1000, 0x0a01_4207, u32::MAX] {
        assert_eq!(image.view().find4(key), (1 << 21 | 1) + (key >> 12));
    }
    assert_eq!(image.view().find4(0x0a01_4207), (1 << 21) + 40_981);
    let before = rank_leaf::build4(&prefixes, 1 << 22, Room::None).expect("it is small");
    assert!(before.as_bytes().len() > 5 << 20, "rank leaves list every label");
}

#[test]
fn a_label_out_of_turn_is_listed_with_its_leaf() {
    let mut given: Vec<Given> = (0..1 << 18).map(|index| (index << 14, 18, None)).collect();
    (0..100).for_each(|index| given[500 * index + index].2 = Some(1 << 19 | index as u32));
    let prefixes = counting(given, 1);
    let image = build4(&prefixes, 1 << 20, Room::None).expect("it is small");
    let view = image.view();
    assert!(prefixes.iter().all(|prefix| [prefix.addr, prefix.last()].map(|key| view.find4(key)) == [prefix.label; 2]));
    assert_eq!((image.layout(), bytes(&image, 3)), (Layout::CountedLeaf, 416 * 3 + 3), "four lanes for each of them");
}

#[test]
fn labels_without_order_are_rank_leaves() {
    let given: Vec<Given> = (0..1u32 << 18)
        .map(|index| (index << 14, 18, Some(1 + (u64::from(index) * 77_777 % (1 << 18)) as u32)))
        .collect();
    let prefixes = counting(given, 1);
    let (image, leaves) = (build4(&prefixes, 1 << 18, Room::None), rank_leaf::build4(&prefixes, 1 << 18, Room::None));
    assert_eq!(image.expect("it is small").as_bytes(), leaves.expect("it is small").as_bytes());
    let counting = counting((0..1 << 18).map(|index| (index << 14, 18, None)).collect(), 1);
    let live = build4(&counting, 1 << 18, Room::Spare).expect("it is small");
    assert_eq!(live.layout(), Layout::RankLeaf, "what changes in place");
}

#[test]
fn hostile_labels_are_refused() {
    let prefixes = counting((0..1 << 16).map(|index| (index << 16 | 0x4000, 19, None)).collect(), 1);
    let image = counted4(&prefixes, 1 << 16).expect("it is small");
    check(&image, &prefixes, []);
    let with = |at: usize, word: u32| {
        let mut bytes = image.as_bytes().to_vec();
        bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
        ImageView::new(&bytes).map(|view| view.labels()).map_err(|error| error.to_string())
    };
    // A label above the maximum in the header, the root and the offset; and a leaf that extends into the bits behind
    // its line's starts.
    assert_eq!(with(12, 0xffff).unwrap_err(), "corrupt counted-leaf image: section `root`: bad label");
    assert_eq!(with(64 + 8 * 7 + 4, 0xffff), Ok(1 << 16));
    assert_eq!(with(64 + 8 * 7 + 4, 0x1_0000).unwrap_err(), "corrupt counted-leaf image: section `root`: bad label");
    assert_eq!(with(64 + 8 * 7 + 4, u32::MAX).unwrap_err(), "corrupt counted-leaf image: section `root`: bad label");
    let starts = 64 + (8 << 16) + 64;
    assert_eq!(with(starts, 0x4000_0001).unwrap_err(), "corrupt counted-leaf image: section `root`: bad label");
    assert_eq!(
        with(64 + (8 << 16), 30).unwrap_err(),
        "corrupt counted-leaf image: section `entries`: bad counted leaf"
    );
    assert_eq!(
        with(24 + 4 * 9, 16).unwrap_err(),
        "corrupt counted-leaf image: section `starts`: bad first lane of counted leaves"
    );
    assert_eq!(with(24 + 4 * 9, 32).unwrap_err(), "corrupt counted-leaf image: section `values`: bad section size");
}
