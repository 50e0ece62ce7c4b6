//! Values that do not fit into an entry.

use super::*;
use crate::cells::Cells;
use crate::image::ImageView;
use crate::layout::Room;
use crate::prefix::Prefix;
use crate::reference::Reference;

#[test]
fn labels_too_large_for_an_entry_have_a_leaf() {
    let (large, small) = (1 << NUMBER_BITS, (1 << NUMBER_BITS) - 1);
    let parts = (0..8).map(|part| Prefix::new(0x0a01_0000 | part << 12, 20, if part % 3 == 0 { large } else { small }));
    // So many that one leaf does not hold all of them.
    let others = (128..256).map(|part| Prefix::new(0x0a01_0000 | part << 8, 24, 1 + part % 2));
    let prefixes: Vec<_> = parts.chain(others).collect();
    let image = build4(&prefixes, large, Room::None).expect("it is small");
    let (view, reference) = (ImageView::new(image.as_bytes()).expect("it was just built"), Reference::new4(&prefixes));
    for key in prefixes.iter().flat_map(|prefix| [prefix.addr.wrapping_sub(1), prefix.addr, prefix.last()]) {
        assert_eq!(view.find4(key), reference.find4(key), "{key:#010x}");
    }
    let entries: Vec<u32> = (0..16).map(|index| image.as_bytes().u32(Offsets::entry_at(index))).collect();
    assert!(entries.contains(&(small << NUMBER_SHIFT)), "{entries:x?}");
    assert!(entries.iter().any(|&entry| label_of(entry).is_none()), "{entries:x?}");
}
