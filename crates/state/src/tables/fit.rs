//! Which images have a table, and whether they can take a change of it.

use weir_abi::Family;
use weir_tables::Kind;

use super::change::TableChange;
use super::image::{DynamicBounds, TableImage};
use super::table_error::TableError;
use super::wheel::TIMEOUT_MS_MAX;

/// A change that all images of a generation with the table can take.
pub(super) struct Checked {
    /// The images, with the position of the table.
    pub own: Vec<(TableImage, usize)>,
    /// Family and kind of the table.
    pub table_type: (Family, Kind),
    /// The timeout of new entries.
    pub timeout_ms: Option<u64>,
}

/// Checks that all images of a generation with the table can take a change.
///
/// # Errors
/// There is no such table, or the entries do not fit it.
pub(super) fn checked(generation: &[&TableImage], name: &str, change: TableChange<'_>) -> Result<Checked, TableError> {
    let own = images_of(&mut generation.iter().copied(), name);
    let Some((first, set)) = own.first() else { return Err(no_table(generation.iter().copied(), name)) };
    let table_type = first.table_type(*set);
    check_type(name, table_type, change)?;
    let timeout_ms = change.timeout_ms(first.bounds(*set).and_then(|bounds| bounds.timeout_ms));
    if timeout_ms > Some(TIMEOUT_MS_MAX) {
        return Err(TableError::LongTimeout { name: name.to_owned() });
    }
    own.iter().try_for_each(|(image, set)| can_take(image, *set, name, change))?;
    Ok(Checked { own, table_type, timeout_ms })
}

/// The images that have a table, each once, with the position of the table.
pub(super) fn images_of(images: &mut dyn Iterator<Item = &TableImage>, name: &str) -> Vec<(TableImage, usize)> {
    let mut found: Vec<(TableImage, usize)> = Vec::new();
    for image in images {
        let Some(position) = image.position(name) else { continue };
        if !found.iter().any(|(known, _)| known.is(image)) {
            found.push((image.clone(), position));
        }
    }
    found
}

/// The error of a generation with these images, which has no such table.
pub(super) fn no_table<'a>(generation: impl Iterator<Item = &'a TableImage>, name: &str) -> TableError {
    let mut known: Vec<String> = generation.flat_map(TableImage::names).map(str::to_owned).collect();
    known.sort();
    known.dedup();
    TableError::NoTable { name: name.to_owned(), known }
}

/// Checks the family and kind of a change. A removal needs no labels.
fn check_type(name: &str, (family, kind): (Family, Kind), change: TableChange<'_>) -> Result<(), TableError> {
    let table = match (change, change.added()) {
        (_, Some(table)) | (TableChange::Remove(table), None) => table,
        (_, None) => return Ok(()),
    };
    let expected = match (family, kind) {
        (Family::Ipv4, _) if table.family() != family => "IPv4 entries",
        (Family::Ipv6, _) if table.family() != family => "IPv6 entries",
        _ if matches!(change, TableChange::Remove(_)) || table.kind() == kind => return Ok(()),
        (_, Kind::Set) => "entries without labels",
        (_, Kind::Labels) => "entries with labels",
    };
    Err(TableError::OtherType { name: name.to_owned(), expected })
}

/// Checks that an image can take a change: its layout holds the entries, its code knows the labels, and a dynamic table
/// has room.
pub(super) fn can_take(image: &TableImage, set: usize, name: &str, change: TableChange<'_>) -> Result<(), TableError> {
    let name = || name.to_owned();
    if !image.can_change() {
        return Err(TableError::TooLarge { name: name() });
    }
    let Some(table) = change.added() else { return Ok(()) };
    image.check(set, table).map_err(|error| TableError::Refused { name: name(), error })?;
    let unknown = image.with(|live| table.labels().iter().find(|label| !live.has_label(label)));
    if let Some(label) = unknown {
        return Err(TableError::NewLabel { name: name(), label: label.to_string() });
    }
    let Some(DynamicBounds { size, .. }) = image.bounds(set) else { return Ok(()) };
    let (entries, more) = match change {
        TableChange::Replace(_) => (0, table.facts().entries),
        _ => image.with(|live| (live.count(set), live.count_new(set, table))),
    };
    match more > 0 && entries + more > size {
        true => Err(TableError::Full { name: name(), entries, more, size }),
        false => Ok(()),
    }
}
