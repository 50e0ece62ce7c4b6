//! Images from elsewhere: refused with a reason, or safe to look up in.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use support::*;
use weir_abi::{Family, Layout};
use weir_tables::{Entries, Image, ImageError, ImageView, Kind};

fn images() -> [Image; 12] {
    let build = |entries: Entries, layout| entries.settle().build(layout).unwrap();
    [
        build(table(Family::Ipv4, Kind::Labels, &comb4()), Layout::Dxr16x4),
        build(table(Family::Ipv4, Kind::Set, &crowd4(30_000, 5)), Layout::ExactSet),
        build(table(Family::Ipv6, Kind::Labels, &crowd6()), Layout::Range6),
        build(Entries::new(Family::Ipv6, Kind::Set), Layout::Range6),
        build(table(Family::Ipv4, Kind::Labels, &comb4()), Layout::RankLeaf),
        build(table(Family::Ipv6, Kind::Labels, &crowd6()), Layout::RankLeaf6),
        fused(&[crowd4(30_000, 5), crowd4(3000, 6), comb4()]),
        build(table(Family::Ipv6, Kind::Set, &nets_and_hosts6(2000, 2000, 5)), Layout::ExactSet6),
        build(table(Family::Ipv4, Kind::Labels, &counting4().0), Layout::CountedLeaf),
        build(table(Family::Ipv4, Kind::Set, &[comb4(), crowd4(3000, 5)].concat()), Layout::ExactLeaf),
        build(table(Family::Ipv6, Kind::Set, &[crowd6(), nets_and_hosts6(200, 200, 5)].concat()), Layout::ExactLeaf6),
        fused6(&[nets_and_hosts6(2000, 2000, 5), nets_and_hosts6(200, 3000, 6), nets_and_hosts6(9, 9, 7)]),
    ]
}

/// Writes a header word (0 the magic, 6 the first section field).
fn with_word(image: &Image, word: usize, value: u32) -> Vec<u8> {
    let mut bytes = image.as_bytes().to_vec();
    bytes[4 * word..4 * word + 4].copy_from_slice(&value.to_le_bytes());
    bytes
}

fn error(bytes: &[u8]) -> String {
    ImageView::new(bytes).map(|view| view.layout()).unwrap_err().to_string()
}

#[test]
fn lookups_in_mutated_images_stay_inside() {
    let images = images();
    let mut random = Random(2024);
    let (mut accepted, mut refused) = (0, 0);
    for _ in 0..1500 {
        let mut bytes = images[random.below(images.len())].as_bytes().to_vec();
        mutate(&mut bytes, &mut random);
        let Ok(view) = ImageView::new(&bytes) else {
            refused += 1;
            continue;
        };
        accepted += 1;
        for _ in 0..200 {
            // A lookup outside panics; a label above the count would be used as an index by others.
            let key = random.next();
            let labels = [
                view.find4(key as u32),
                view.find4(0x0a01_0000 | key as u32 & 0x1fff),
                view.find6(u128::from(key) << 64),
                view.find6(0x2001_0db8_0001 << 80 | u128::from(key % 4000)),
            ];
            assert!(labels.iter().all(|&label| label <= view.labels()), "{labels:?} above {}", view.labels());
        }
    }
    assert!(accepted > 100 && refused > 100, "{accepted} accepted, {refused} refused");
}

#[test]
fn every_truncation_is_refused() {
    for image in images() {
        let bytes = image.as_bytes();
        for len in (0..64).chain((64..bytes.len()).step_by(4093)).chain([bytes.len() - 1]) {
            assert!(ImageView::new(&bytes[..len]).is_err(), "{len} of {} bytes", bytes.len());
        }
        let longer = [bytes, &[0]].concat();
        assert!(matches!(ImageView::new(&longer), Err(ImageError::Length { .. })));
    }
}

#[test]
fn an_image_survives_a_copy() {
    for image in images() {
        let copy = Image::from_bytes(image.as_bytes()).unwrap();
        assert_eq!(copy.as_bytes(), image.as_bytes());
        assert_eq!(copy.as_bytes().as_ptr().align_offset(4096), 0);
        // A view needs no alignment.
        let shifted = [&[0], image.as_bytes()].concat();
        assert_eq!(ImageView::new(&shifted[1..]).unwrap().entries(), image.view().entries());
    }
}

#[test]
fn reasons_are_named() {
    let [dxr, set, range6, _, _, _, sets, set6, _, leaf, leaf6, sets6] = images();
    assert_eq!(error(b"WEIR"), "table image of 4 bytes is shorter than its header");
    assert_eq!(error(&with_word(&dxr, 0, 0x1234)), "not a table image: starts with 0x00001234");
    assert_eq!(error(&with_word(&dxr, 1, 99)), "table image of unknown layout 99");
    assert_eq!(error(&with_word(&dxr, 3, 1 << 20)), "corrupt d16x4r image: section `header`: bad label count");
    assert_eq!(error(&with_word(&dxr, 3, 0)), "corrupt d16x4r image: section `ranges`: bad label");
    assert_eq!(error(&with_word(&dxr, 6, 128)), "corrupt d16x4r image: section `direct`: bad section offset");
    assert_eq!(error(&with_word(&dxr, 9, 64)), "corrupt d16x4r image: section `direct`: bad block number");
    assert_eq!(error(&with_word(&dxr, 11, 64)), "corrupt d16x4r image: section `extension`: bad range block");
    assert_eq!(error(&with_word(&dxr, 10, 3)), "corrupt d16x4r image: section `ranges`: bad section offset");
    assert_eq!(error(&with_word(&dxr, 11, u32::MAX)), "corrupt d16x4r image: section `ranges`: bad section bounds");
    assert_eq!(error(&with_word(&set, 10, 3)), "corrupt exact-set image: section `buckets`: bad dimension");
    assert_eq!(error(&with_word(&set, 11, 4)), "corrupt exact-set image: section `buckets`: bad dimension");
    assert_eq!(error(&with_word(&set, 12, 32)), "corrupt exact-set image: section `overflow`: bad section size");
    assert_eq!(error(&with_word(&set, 12, 7)), "corrupt exact-set image: section `overflow`: bad section size");
    assert_eq!(
        error(&with_word(&set, set.as_bytes().len() / 4 - 1, 2)),
        "corrupt exact-set image: section `overflow`: bad member"
    );
    assert_eq!(error(&with_word(&set, 3, 2)), "corrupt exact-set image: section `header`: bad label count");
    for (word, value) in [(14, 0x0808_0808), (14, 0x0201_0304), (14, 0xff08_0403), (15, 2)] {
        let named = error(&with_word(&sets, word, value));
        let expected = [
            "corrupt exact-sets image: section `buckets`: bad dimension",
            "corrupt exact-sets image: section `header`: bad label count",
        ];
        assert!(expected.contains(&&*named), "{word} {value:#x}: {named}");
    }
    assert_eq!(error(&with_word(&sets, 3, 15)), "corrupt exact-sets image: section `header`: bad label count");
    assert_eq!(error(&with_word(&set6, 3, 3)), "corrupt exact-set6 image: section `header`: bad label count");
    assert_eq!(error(&with_word(&set6, 7, 8)), "corrupt exact-set6 image: section `nets`: bad section size");
    assert_eq!(error(&with_word(&set6, 11, 64)), "corrupt exact-set6 image: section `overflow`: bad section size");
    assert_eq!(error(&with_word(&set6, 11, 0)), "corrupt exact-set6 image: section `overflow`: bad section size");
    assert_eq!(error(&with_word(&sets6, 3, 5)), "corrupt exact-sets6 image: section `header`: bad label count");
    assert_eq!(error(&with_word(&sets6, 3, 31)), "corrupt exact-sets6 image: section `header`: bad label count");
    assert_eq!(error(&with_word(&sets6, 3, 3)), "corrupt exact-sets6 image: section `buckets`: bad label");
    assert_eq!(error(&with_word(&sets6, 7, 64 * 64)), "corrupt exact-sets6 image: section `nets`: bad section size");
    let inside = leaf.as_bytes()[56..60].try_into().map(u32::from_le_bytes).unwrap() as usize / 4;
    assert_eq!(error(&with_word(&leaf, 14, 65)), "corrupt exact-leaf image: section `prefixes`: bad section offset");
    assert_eq!(error(&with_word(&leaf, 14, 64)), "not a table image: starts with 0xffffffff");
    assert_eq!(error(&with_word(&leaf, 3, 0)), "corrupt exact-leaf image: section `header`: bad label count");
    assert_eq!(error(&with_word(&leaf, inside + 1, 6)), "corrupt exact-leaf image: section `prefixes`: bad header");
    assert_eq!(error(&with_word(&leaf, inside + 16, 17)), "corrupt rank-leaf image: section `root`: bad label");
    assert_eq!(
        error(&with_word(&leaf, inside + 16, 1 << 31 | 17)),
        "corrupt rank-leaf image: section `root`: bad width"
    );
    assert_eq!(error(&with_word(&leaf6, 6, 65)), "corrupt exact-leaf6 image: section `nets`: bad section offset");
    assert_eq!(error(&with_word(&range6, 16, 3 << 30)), "corrupt range6 image: section `root`: bad entry kind");
    assert_eq!(error(&with_word(&range6, 16, 1 << 30 | 999)), "corrupt range6 image: section `root`: bad node number");
    assert_eq!(
        error(&with_word(&range6, 16, 2 << 30 | 0xff_ffff)),
        "corrupt range6 image: section `root`: bad range block"
    );
    assert_eq!(error(&with_word(&range6, 16, 6)), "corrupt range6 image: section `root`: bad label");
    assert_eq!(error(&with_word(&range6, 13, 4)), "corrupt range6 image: section `labels`: bad section size");
}
