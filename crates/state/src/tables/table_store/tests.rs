//! Tables whose images are too large to change in the kernel.

use super::*;
use crate::tables::{DynamicBounds, Member, Published};
use weir_abi::Layout;
use weir_tables::Entries;

/// Images of exact sets have 512 KiB, images of rank leaves less.
const HALF_MAX: usize = 1 << 19;

fn set(last: u8) -> Table {
    let mut entries = Entries::new(Family::Ipv4, Kind::Set);
    (0..=last).for_each(|n| entries.insert_prefix([192, 0, 2, n].into(), 32, None).expect("it is an address"));
    entries.settle()
}

fn declared(layout: Layout, dynamic: Option<DynamicBounds>) -> Vec<Declared<ImageDeclared>> {
    let table = Arc::new(set(0));
    let image = Arc::new(table.build(layout).expect("it is a set of addresses"));
    let members = vec![Member { name: "t".to_owned(), table, dynamic }];
    vec![Declared { name: "t".to_owned(), declaration: ImageDeclared { members, layout, image, counted: false } }]
}

#[test]
fn a_table_that_was_changed_is_not_loaded_as_declared() {
    let store = TableStore::read_by(ReadBy::Kernel { half_max: HALF_MAX });
    let (small, large) = (Layout::RankLeaf, Layout::ExactSet);
    let first = store.bind(declared(small, None), 0).expect("two images have room");
    let constant = store.bind(declared(large, None), 0).expect("it is as declared");
    assert!(matches!(constant.object(0).published(), Published::Constant));
    drop(constant);
    let refused = |dynamic| store.bind(declared(large, dynamic), 0).err().map(|error| error.to_string());
    let expected = |bytes: usize| {
        Some(format!(
            "table t: its image has {bytes} bytes; a table that is dynamic, or was changed while packets passed, has at \
             most 524288 in the kernel"
        ))
    };
    let bytes = set(0).build(large).expect("it is a set of addresses").as_bytes().len();
    assert_eq!(refused(Some(DynamicBounds { size: 9, timeout_ms: None })), expected(bytes));

    // The entries are as declared, but one expires.
    let change = |change: TableChange<'_>| store.change(&first, "t", change, 0).expect("there is room");
    change(TableChange::Update { entries: &set(0), timeout_ms: Some(50) });
    assert_eq!(refused(None), expected(bytes));
    change(TableChange::Add { entries: &set(1), timeout_ms: Some(0) });
    store.expire(50_000_000);
    let bytes = set(1).build(large).expect("it is a set of addresses").as_bytes().len();
    assert_eq!(refused(None), expected(bytes));
    assert_eq!(store.read(&first, "t", |table| table.count()), Ok(1), "the refused policies changed nothing");
    change(TableChange::Replace(&set(0)));
    assert!(store.bind(declared(large, None), 0).is_ok(), "it is as declared again");
}
