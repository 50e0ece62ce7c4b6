//! The schemes that Weir's layouts are raced against: every one against the reference, and its limits to the letter.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../../crates/tables/tests/support/mod.rs"]
mod support;

use proptest::prelude::*;
use support::*;
use weir_abi::{Family, Layout};
use weir_schemes::{Characteristics, Scheme, SchemeError};
use weir_tables::{Entries, ImageView, Kind, Table};

/// Builds and checks the entries in a scheme.
fn check(scheme: Scheme, entries: Entries, keys: impl IntoIterator<Item = u32>) {
    let reference = entries.reference();
    let image = scheme.build(&entries.settle()).unwrap();
    assert_eq!((image.scheme(), image.as_bytes().as_ptr().align_offset(64)), (scheme, 0));
    let view = image.view();
    for key in keys {
        assert_eq!(view.find(key), reference.find4(key), "{scheme} at {key:#010x}");
    }
}

fn check_all(kind: Kind, list: &[Entry<u32>], keys: &[u32]) {
    for scheme in Scheme::ALL {
        check(scheme, table(Family::Ipv4, kind, list), keys.iter().copied());
    }
}

/// The schemes whose images are small enough to build many.
const SMALL: [Scheme; 6] =
    [Scheme::D20R, Scheme::D16X2R, Scheme::D16X4R, Scheme::Poptrie18, Scheme::SailL, Scheme::Radix];

proptest! {
    #![proptest_config(ProptestConfig { cases: 80, ..ProptestConfig::default() })]

    #[test]
    fn schemes_find_the_longest_prefix(list in entries4(), keys in proptest::collection::vec(any::<u32>(), 100)) {
        let keys: Vec<u32> = edges4(&list).into_iter().chain(keys).collect();
        for scheme in SMALL {
            check(scheme, table(Family::Ipv4, Kind::Labels, &list), keys.iter().copied());
        }
    }

    #[test]
    fn schemes_hold_sets(list in entries4()) {
        for scheme in SMALL {
            check(scheme, table(Family::Ipv4, Kind::Set, &list), edges4(&list));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    #[test]
    fn dir24_8_finds_the_longest_prefix(list in entries4(), keys in proptest::collection::vec(any::<u32>(), 100)) {
        check(Scheme::Dir24_8, table(Family::Ipv4, Kind::Labels, &list), edges4(&list).into_iter().chain(keys));
    }
}

/// Prefixes of all lengths all over the address space, nested by chance.
fn nested(count: usize, labels: u32, seed: u64) -> Vec<Entry<u32>> {
    let mut random = Random(seed);
    let mut entry = || {
        let word = random.next();
        ((word >> 20) as u32, 8 + (word % 25) as u8, 1 + (word >> 8) as u32 % labels)
    };
    (0..count).map(|_| entry()).collect()
}

#[test]
fn large_tables_of_all_lengths() {
    let list = nested(20_000, 250, 3);
    check_all(Kind::Labels, &list, &edges4(&list));
    check_all(Kind::Set, &list, &edges4(&list));
}

#[test]
fn crowds_of_addresses() {
    let list = crowd4(20_000, 5);
    check_all(Kind::Set, &list, &edges4(&list));
}

#[test]
fn every_address_around_a_comb() {
    // One short of a comb of 4096 teeth, which D20R does not hold.
    let list = &comb4()[..2040];
    let keys: Vec<u32> = (0x0a00_f000..0x0a01_3000).collect();
    check_all(Kind::Labels, list, &keys);
    for scheme in [Scheme::D16X2R, Scheme::D16X4R, Scheme::Poptrie18, Scheme::Radix] {
        check(scheme, table(Family::Ipv4, Kind::Labels, &comb4()), keys.iter().copied());
    }
}

#[test]
fn empty_tables_and_default_routes() {
    let keys = [0, 1, 0x7fff_ffff, 0x8000_0000, u32::MAX];
    for kind in [Kind::Set, Kind::Labels] {
        check_all(kind, &[], &keys);
        check_all(kind, &[(0, 0, 1)], &keys);
        check_all(kind, &[(0, 0, 1), (0, 32, 2), (u32::MAX, 32, 3), (0x8000_0000, 1, 4)], &keys);
    }
}

/// A label for each of the first /20s.
fn labelled(labels: u32) -> Vec<Entry<u32>> {
    (0..labels).map(|index| (index << 12, 20, 1 + index)).collect()
}

fn build(scheme: Scheme, kind: Kind, list: &[Entry<u32>]) -> Result<(), String> {
    let settled = table(Family::Ipv4, kind, list).settle();
    scheme.build(&settled).map(|_| ()).map_err(|error| error.to_string())
}

#[test]
fn labels_up_to_the_limit() {
    for (scheme, max) in [
        (Scheme::D20R, 4095),
        (Scheme::D16X2R, (1 << 18) - 1),
        (Scheme::D16X4R, (1 << 20) - 1),
        (Scheme::Poptrie18, 65_535),
        (Scheme::SailL, 254),
        (Scheme::Dir24_8, 32_767),
    ] {
        let list = labelled(max);
        let keys = [0, 77 << 12, (max - 1) << 12, ((max - 1) << 12) + 4095, max.wrapping_shl(12), u32::MAX];
        check(scheme, table(Family::Ipv4, Kind::Labels, &list), keys);
        // Two labels below the last /20, so that the largest of them stand in leaves too.
        let deep = [&list[..max as usize - 2], &[((max - 1) << 12, 32, max - 1), (((max - 1) << 12) + 1, 32, max)]];
        check(
            scheme,
            table(Family::Ipv4, Kind::Labels, &deep.concat()),
            keys.into_iter().chain([((max - 1) << 12) + 1]),
        );
        let more: Vec<_> = (0..=max).map(|index| (index << 11, 32, index)).collect();
        let message = format!("scheme {scheme} holds at most {max} labels");
        assert_eq!(build(scheme, Kind::Labels, &more), Err(message));
    }
    check(Scheme::Radix, table(Family::Ipv4, Kind::Labels, &labelled(1 << 20)), [0, 1 << 12, u32::MAX]);
}

/// A set with one address in each of the first `count` /16s.
fn one_each(count: u32) -> Vec<Entry<u32>> {
    (0..count).map(|index| ((index << 16) + index % 251, 32, 1)).collect()
}

#[test]
fn d20r_holds_4095_ranges_in_a_block() {
    // The whole of a block of 4096 addresses in which every second one has a label: 4096 ranges.
    let comb = &comb4()[..2048];
    assert_eq!(build(Scheme::D20R, Kind::Labels, comb), Err("scheme d20r holds at most 4095 ranges in a block".into()));
    let keys = 0x0a00_fff0..0x0a01_1010;
    check(Scheme::D20R, table(Family::Ipv4, Kind::Labels, &comb[1..]), keys.clone());
    check(Scheme::D16X4R, table(Family::Ipv4, Kind::Labels, comb), keys);
}

#[test]
fn dxr_limits_ranges() {
    let mut random = Random(1);
    let mut scattered = |count: u32, bits: u32| -> Vec<Entry<u32>> {
        (0..count).map(|index| (index << bits | random.next() as u32 >> (32 - bits), 32, 1)).collect()
    };
    // Of 400,000 blocks with one address, at most 4096 differ: they are stored once.
    let mut list = scattered(400_000, 12);
    assert_eq!(build(Scheme::D20R, Kind::Set, &list), Ok(()));
    list.iter_mut().enumerate().for_each(|(index, entry)| entry.2 = 1 + index as u32 / 4096);
    assert_eq!(build(Scheme::D20R, Kind::Labels, &list), Err("scheme d20r holds at most 524288 ranges".into()));
    assert_eq!(build(Scheme::D16X2R, Kind::Labels, &list), Ok(()));
    let list = scattered(2_200_000, 10);
    assert_eq!(build(Scheme::D16X2R, Kind::Set, &list), Err("scheme d16x2r holds at most 4194304 ranges".into()));
    assert_eq!(build(Scheme::D16X4R, Kind::Set, &list), Err("scheme d16x4r holds at most 4194304 ranges".into()));
    assert_eq!(build(Scheme::Poptrie18, Kind::Set, &list), Ok(()));
}

#[test]
fn sail_limits_chunks_of_level_24() {
    assert_eq!(build(Scheme::SailL, Kind::Set, &one_each(65_280)), Ok(()));
    let error = "scheme sail holds at most 65280 chunks of level 24";
    assert_eq!(build(Scheme::SailL, Kind::Set, &one_each(65_281)), Err(error.into()));
}

/// The first `count` /24s, each with three addresses that spell its number: no two alike.
fn different_blocks(count: u32) -> Vec<Entry<u32>> {
    let digits = |index: u32| [index % 100, 100 + index / 100 % 100, 200 + index / 10_000];
    (0..count).flat_map(|index| digits(index).map(|low| (index << 8 | low, 32, 1 + low / 100))).collect()
}

#[test]
fn leaf_blocks_up_to_the_limit() {
    for (scheme, max, bytes, what) in [
        (Scheme::SailL, 65_536u32, 256, "distinct chunks of level 32"),
        (Scheme::Dir24_8, 32_768, 512, "distinct leaf blocks"),
    ] {
        let leaf_blocks = |list: &[Entry<u32>]| {
            let image = scheme.build(&table(Family::Ipv4, Kind::Labels, list).settle()).unwrap();
            image.sections().last().unwrap().1 / bytes
        };
        let list = different_blocks(max);
        assert_eq!(leaf_blocks(&list), max as usize);
        check(scheme, table(Family::Ipv4, Kind::Labels, &list), edges4(&list[list.len() - 30_000..]));
        let more = build(scheme, Kind::Labels, &different_blocks(max + 1));
        assert_eq!(more, Err(format!("scheme {scheme} holds at most {max} {what}")));
        // Equal blocks are stored once, however many there are.
        let equal: Vec<_> = (0..100_000u32).map(|index| (index << 8 | 5, 32, 1)).collect();
        assert_eq!(leaf_blocks(&equal), 1);
    }
}

#[test]
fn other_families_are_refused() {
    let v6: Table = table(Family::Ipv6, Kind::Set, &[(1u128, 128, 1)]).settle();
    for scheme in Scheme::ALL {
        let error = scheme.build(&v6).unwrap_err();
        assert_eq!(error, SchemeError::Family { scheme, family: Family::Ipv6 });
        assert_eq!(error.to_string(), format!("scheme {scheme} does not hold IPv6 prefixes"));
    }
}

#[test]
fn names_are_stable() {
    let names = Scheme::ALL.map(Scheme::name);
    assert_eq!(names, ["d20r", "d16x2r", "d16x4r", "poptrie", "sail", "dir24-8", "radix"]);
    assert_eq!(names.map(Scheme::from_name), Scheme::ALL.map(Some));
    assert_eq!(Scheme::from_name("lulea"), None);
    assert_eq!(Scheme::D16X4R.name(), Layout::Dxr16x4.name());
}

#[test]
fn images_of_schemes_are_no_table_images() {
    let empty = Entries::new(Family::Ipv4, Kind::Set).settle();
    for (place, scheme) in Scheme::ALL.into_iter().enumerate() {
        let image = scheme.build(&empty).unwrap();
        let error = ImageView::new(image.as_bytes()).map(|view| view.layout()).unwrap_err();
        assert_eq!(error.to_string(), format!("table image of unknown layout {}", 256 + place));
    }
}

#[test]
fn d16x4r_is_the_layout_that_policies_get() {
    let settled = table(Family::Ipv4, Kind::Labels, &nested(5000, 100, 9)).settle();
    let (image, scheme) = (settled.build(Layout::Dxr16x4).unwrap(), Scheme::D16X4R.build(&settled).unwrap());
    let (image, scheme) = (image.as_bytes(), scheme.as_bytes());
    // All but the layout word.
    assert_eq!((&image[..4], &image[8..]), (&scheme[..4], &scheme[8..]));
}

#[test]
fn the_private_table_of_the_paper() {
    // RFC 1918 and the like; its sizes in Table 1: 0.13, 0.13, 0.13 (SAIL_L), 1.00 and 32.00 MB.
    let list: [Entry<u32>; 9] = [
        (0x0000_0000, 8, 1),
        (0x0a00_0000, 8, 1),
        (0x6440_0000, 10, 1),
        (0x7f00_0000, 8, 1),
        (0xa9fe_0000, 16, 1),
        (0xac10_0000, 12, 1),
        (0xc0a8_0000, 16, 1),
        (0xe000_0000, 4, 1),
        (0xf000_0000, 4, 1),
    ];
    let settled = table(Family::Ipv4, Kind::Set, &list).settle();
    let of = |scheme: Scheme| Characteristics::of(&settled, &scheme.build(&settled).unwrap());
    for (scheme, bytes) in [
        (Scheme::D20R, 4 << 20),
        (Scheme::D16X2R, (2 << 16) + 2 * 16),
        (Scheme::D16X4R, (2 << 16) + 2 * 64),
        (Scheme::Poptrie18, 1 << 20),
        (Scheme::SailL, 2 << 16),
        (Scheme::Dir24_8, 32 << 20),
    ] {
        assert_eq!(of(scheme).bytes, bytes, "{scheme}");
    }
    let row = of(Scheme::D16X2R);
    assert_eq!((row.prefixes, row.labels, row.ranges, row.hit_ratio), (9, 1, Some(0), Some(1.0)));
    assert_eq!(
        (row.mean_length_bits, row.footprint_ratio),
        (86.0 / 9.0, Some(((2 << 16) + 32) as f64 / (4 << 18) as f64))
    );
    let row = of(Scheme::Poptrie18);
    assert_eq!((row.ranges, row.hit_ratio, row.footprint_ratio), (None, None, None));
}

#[test]
fn characteristics_of_one_address() {
    let settled = table(Family::Ipv4, Kind::Set, &[(0x0a01_0203u32, 32, 1)]).settle();
    let of = |scheme: Scheme| Characteristics::of(&settled, &scheme.build(&settled).unwrap());
    let rows = [Scheme::D20R, Scheme::D16X2R, Scheme::D16X4R].map(of);
    let missed = rows.map(|row| 1.0 - row.hit_ratio.unwrap());
    let entries = [20, 18, 20].map(|bits| (1u32 << bits) as f64);
    assert_eq!(missed, entries.map(|entries| 1.0 / entries));
    assert_eq!(rows.map(|row| row.ranges), [Some(3); 3]);
    assert_eq!(rows[0].footprint_ratio, Some(1.0));
    // The worked examples: 3 nodes and 4 leaves; a chunk of each level; a leaf block; a root and a leaf.
    let sections = |scheme: Scheme| scheme.build(&settled).unwrap().sections();
    assert_eq!(sections(Scheme::Poptrie18), [("direct", 1 << 20), ("nodes", 3 * 24), ("leaves", 4 * 2)]);
    assert_eq!(sections(Scheme::SailL), [("bcn16", 2 << 16), ("bn24", 256), ("c24", 512), ("n32", 256)]);
    assert_eq!(sections(Scheme::Dir24_8), [("tbl24", 32 << 20), ("tbl8", 512)]);
    assert_eq!(sections(Scheme::Radix), [("nodes", 2 * 16)]);
}
