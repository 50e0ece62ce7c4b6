//! Lists of a loaded policy are read again.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;
use weir_loading::{ListContents, ListId, ListOfLimits, Policy, Text, load};

const POLICY: &str = "
include \"lists.weir\"
table suspects { type ipv4; dynamic; file \"bad.txt\" }
limits each { file \"each.csv\" }
upstream { ip saddr @bad drop; ip saddr @geo { AA } drop; ip saddr @suspects drop; ip saddr limit @each; accept }
downstream { accept }
";
const LISTS: &str = "
table admin { type ipv4; elements = { 192.0.2.0/28 } }
table bad { type ipv4; file \"bad.txt\"; elements = { 203.0.113.1 }; watch; protect @admin; max-change 20% }
table geo { type ipv4 : label; file \"geo.csv\" }
";

fn write(folder: &Path, name: &str, text: &str) {
    fs::write(folder.join(name), text).unwrap();
}

fn loaded(folder: &Path) -> Policy {
    write(folder, "p.weir", POLICY);
    write(folder, "lists.weir", LISTS);
    write(folder, "bad.txt", "192.0.2.1\n198.51.100.1\n");
    write(folder, "geo.csv", "10.0.0.0/8,AA\n");
    write(folder, "each.csv", "10.0.0.0/8,1pps\n");
    load(&folder.join("p.weir")).unwrap()
}

fn id(text: &Text, table: &str) -> ListId {
    ListId::Table(text.checked.tables.iter().position(|known| known.name == table).unwrap())
}

#[test]
fn settings_of_updates_and_a_notice_about_protected_addresses() {
    let folder = tempfile::tempdir().unwrap();
    let policy = loaded(folder.path());
    let text = policy.text().unwrap();
    let (ListId::Table(bad), ListId::Table(admin)) = (id(text, "bad"), id(text, "admin")) else { panic!("tables") };
    let updates = &text.checked.tables[bad].updates;
    assert_eq!((updates.watch, updates.max_change_percent), (true, Some(20)));
    assert_eq!(updates.protected.iter().map(|table| usize::from(table.0)).collect::<Vec<_>>(), [admin]);
    let notice = "table bad: 192.0.2.1 overlaps 192.0.2.0/28 of the protected table admin; only updates are refused";
    assert!(text.notices.iter().any(|known| known == notice), "{:?}", text.notices);
}

#[test]
fn files_are_read_again_and_dynamic_tables_are_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let policy = loaded(folder.path());
    let text = policy.text().unwrap();
    let expected = [
        (id(text, "bad"), vec![at("bad.txt")]),
        (id(text, "geo"), vec![at("geo.csv")]),
        (ListId::Limits(0), vec![at("each.csv")]),
    ];
    assert_eq!(text.file_backed(), expected);
    // The text on disk does not matter any more.
    for name in ["p.weir", "lists.weir"] {
        fs::remove_file(at(name)).unwrap();
    }
    let same = text.read_again(|_| true).unwrap();
    for list in &same {
        let now = match list.id {
            ListId::Table(index) => ListContents::Table(text.tables[index].clone()),
            ListId::Limits(index) => ListContents::Limits(text.limits[index].clone()),
        };
        assert_eq!(list.contents.as_ref().unwrap(), &now);
        assert!(list.stamps.iter().all(|(path, stamp)| text.stamps[path] == *stamp));
    }

    write(folder.path(), "bad.txt", "192.0.2.1\nx\n192.0.2.300\n");
    write(folder.path(), "each.csv", "10.0.0.0/8,2pps\n11.0.0.0/8,1pps\n");
    fs::remove_file(at("geo.csv")).unwrap();
    let read = text.read_again(|_| true).unwrap();
    let errors = |at: usize| read[at].contents.as_ref().unwrap_err();
    assert!(errors(0)[0].starts_with(&format!("{}:2: ", at("bad.txt").display())), "{:?}", errors(0));
    assert_eq!(read[0].file_of(&errors(0)[0]), Some(&at("bad.txt")));
    assert!(errors(1)[0].contains("No such file"), "{:?}", errors(1));
    let Ok(ListContents::Limits(ListOfLimits::Prefixes(_))) = &read[2].contents else { panic!("limits") };
    assert_eq!(text.read_again(|list| list == ListId::Limits(0)).unwrap().len(), 1);
}

#[test]
fn a_policy_with_other_lists_is_checked_again() {
    let folder = tempfile::tempdir().unwrap();
    let policy = loaded(folder.path());
    let text = policy.text().unwrap();
    write(folder.path(), "geo.csv", "10.0.0.0/8,BB\n11.0.0.0/8,AA\n");
    write(folder.path(), "each.csv", "10.0.0.0/8,2pps\n11.0.0.0/8,1pps\n");
    let with = || {
        let read = text.read_again(|list| list != id(text, "bad")).unwrap();
        let stamps = read.iter().flat_map(|list| list.stamps.clone()).collect();
        let lists: Vec<_> = read.into_iter().map(|list| (list.id, list.contents.unwrap())).collect();
        policy.with_lists(&lists, stamps)
    };
    let other = with().unwrap();
    let changed = other.text().unwrap();
    let ListId::Table(geo) = id(text, "geo") else { panic!("a table") };
    assert_eq!(changed.tables[geo].labels().len(), 2);
    assert_eq!((changed.limits[0].len(), text.limits[0].len()), (2, 1));
    assert_eq!((&changed.files, changed.stamps.len()), (&text.files, 3));
    assert_ne!(changed.stamps[&folder.path().join("geo.csv")], text.stamps[&folder.path().join("geo.csv")]);
    assert_eq!(other.program.rules.len(), policy.program.rules.len());

    // A rule matches a label that the table does not have any more.
    write(folder.path(), "geo.csv", "10.0.0.0/8,BB\n");
    let refused = with().err().unwrap().to_string();
    assert!(refused.contains("p.weir:5:") && refused.contains("AA"), "{refused}");
}
