//! Tables and images that tests declare.

use std::sync::Arc;

use weir_abi::{Family, Layout};
use weir_state::Declared;
use weir_state::tables::{DynamicBounds, ImageDeclared, Member, TableBinding, TableStore};
use weir_tables::{Entries, Kind, Table};

/// A set of entries in text form, of one family.
pub fn set<S: AsRef<str>>(text: &[S]) -> Arc<Table> {
    let family = if text.iter().any(|text| text.as_ref().contains(':')) { Family::Ipv6 } else { Family::Ipv4 };
    let mut entries = Entries::new(family, Kind::Set);
    text.iter().for_each(|text| entries.insert_text(text.as_ref(), None).unwrap());
    Arc::new(entries.settle())
}

/// A map of IPv4 entries to labels.
pub fn labels(text: &[(&str, &str)]) -> Arc<Table> {
    let mut entries = Entries::new(Family::Ipv4, Kind::Labels);
    text.iter().for_each(|(text, label)| entries.insert_text(text, Some(label)).unwrap());
    Arc::new(entries.settle())
}

/// The declaration of an image. `dynamic` holds for all of its tables.
pub fn image(
    members: &[(&str, &Arc<Table>)],
    layout: Layout,
    dynamic: Option<DynamicBounds>,
) -> Declared<ImageDeclared> {
    let tables: Vec<&Table> = members.iter().map(|(_, table)| &***table).collect();
    let image = match tables.as_slice() {
        [one] => one.build(layout).unwrap(),
        fused => weir_tables::fused(fused).unwrap(),
    };
    let member = |&(name, table): &(&str, &Arc<Table>)| Member { name: name.to_owned(), table: table.clone(), dynamic };
    let name = members.iter().map(|(name, _)| *name).collect::<Vec<_>>().join("+");
    let members = members.iter().map(member).collect();
    Declared { name, declaration: ImageDeclared { members, layout, image: Arc::new(image), counted: false } }
}

/// The entries of a table in text form, in order.
pub fn entries(store: &TableStore, binding: &TableBinding, name: &str) -> Vec<String> {
    store.read(binding, name, |table| table.entries().map(|entry| entry.to_string()).collect()).unwrap()
}
