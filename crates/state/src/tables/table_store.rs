//! Binds generations to images of tables, and changes tables by name.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use weir_abi::Family;
use weir_tables::live::{LiveEntry, LiveError, LiveTable, Readers};
use weir_tables::{Kind, Table};

use super::image::{DynamicBounds, ImageDeclared, TableImage};
use crate::StateError;
use crate::store::{Binding, Declared, Request, StateKind, Store};

/// Images of tables as a kind of shared state.
pub struct TableImages {
    readers: Readers,
}

/// The images that a generation uses.
pub type TableBinding = Binding<TableImages>;

impl StateKind for TableImages {
    type Declaration = ImageDeclared;
    type Object = TableImage;

    fn fits(declaration: &ImageDeclared, object: &TableImage) -> bool {
        object.fits(declaration)
    }

    fn bind(&mut self, requests: Vec<Request<'_, Self>>, _now_ns: u64) -> Result<Vec<TableImage>, StateError> {
        let image = |Request { declaration, earlier }: Request<'_, Self>| match earlier.first() {
            Some(&earlier) => {
                earlier.rebind(&declaration);
                earlier.clone()
            }
            None => TableImage::new(&self.readers, declaration),
        };
        Ok(requests.into_iter().map(image).collect())
    }

    /// The last owner frees the image.
    fn release(&mut self, _object: &TableImage) {}
}

/// Why a table cannot be changed or read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// The policy has no such table.
    #[error("the active policy has no table {name}; it has {}", if known.is_empty() { "none".to_owned() } else { known.join(", ") })]
    NoTable {
        /// The name.
        name: String,
        /// The tables that there are.
        known: Vec<String>,
    },
    /// The entries are of the other family, or have labels where the table has none.
    #[error("table {name} has {expected}")]
    OtherType {
        /// The name.
        name: String,
        /// What its entries are.
        expected: &'static str,
    },
    /// A label that no entry had when the policy was loaded.
    #[error(
        "table {name}: no entry had the label {label} when the policy was loaded; rules and limits know only those labels"
    )]
    NewLabel {
        /// The name.
        name: String,
        /// The label.
        label: String,
    },
    /// A dynamic table has no room for the entries.
    #[error("table {name} is full: it has {entries} entries, {more} more would exceed its size of {size}")]
    Full {
        /// The name.
        name: String,
        /// Number of entries now, or 0 if they are to be replaced.
        entries: usize,
        /// Number of new entries.
        more: usize,
        /// Maximum number of entries.
        size: usize,
    },
    /// Entries of the table expire, which is not implemented yet.
    #[error("table {name}: entries with a timeout are not supported yet")]
    Timeout {
        /// The name.
        name: String,
    },
    /// The layout cannot hold the entries, or readers are behind.
    #[error("table {name}: {error}")]
    Refused {
        /// The name.
        name: String,
        /// Why.
        error: LiveError,
    },
}

/// A change of a table.
#[derive(Clone, Copy, Debug)]
pub enum TableChange<'a> {
    /// Adds entries. An entry that is there gets the new label.
    Add(&'a Table),
    /// Removes entries. An entry must be removed as the prefix that it was added as.
    Remove(&'a Table),
    /// Replaces all entries.
    Replace(&'a Table),
    /// Removes all entries.
    Flush,
}

/// The result of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changed {
    /// Number of entries that were added, removed or got another label.
    pub changed: usize,
    /// Number of entries now.
    pub entries: usize,
}

/// The tables of all generations.
pub struct TableStore {
    readers: Readers,
    store: Store<TableImages>,
    /// Held during a change, so that all images with a table see the same order of changes.
    changing: Mutex<()>,
}

impl Default for TableStore {
    fn default() -> Self {
        let readers = Readers::new();
        let store = Store::new(TableImages { readers: readers.clone() });
        TableStore { readers, store, changing: Mutex::default() }
    }
}

impl TableStore {
    /// The registry of the workers that read tables.
    pub fn readers(&self) -> &Readers {
        &self.readers
    }

    /// Binds a generation to the images that it declares.
    pub fn bind(&self, declared: Vec<Declared<ImageDeclared>>) -> Arc<TableBinding> {
        self.store.bind(declared, 0).expect("an image takes no room that was reserved")
    }

    /// Changes a table of the generation `active`, in every image of every loaded generation that has it. Returns the
    /// result in `active`.
    ///
    /// # Errors
    /// There is no such table, or the entries do not fit it. Nothing has changed then, unless readers are behind
    /// ([`LiveError::ReadersBehind`]): they may see a part of the change.
    pub fn change(&self, active: &TableBinding, name: &str, change: TableChange<'_>) -> Result<Changed, TableError> {
        let _in_order = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let own = images_of(&mut active.objects(), name);
        let Some(first) = own.first() else { return Err(no_table(active, name)) };
        check(first, name, change)?;
        let mut images = own.clone();
        for image in self.store.maintain(|_, objects| images_of(objects, name)) {
            if !images.iter().any(|known| known.is(&image)) {
                images.push(image);
            }
        }
        let of_image = |image: &TableImage| (image.clone(), image.position(name).expect("the image has the table"));
        let images: Vec<(TableImage, usize)> = images.iter().map(of_image).collect();
        let refused = |error: LiveError| TableError::Refused { name: name.to_owned(), error };
        images.iter().try_for_each(|(image, set)| may_change(image, *set, change)).map_err(refused)?;
        check_bounds(&images[0].0, name, change)?;
        let mut changed = None;
        for (image, set) in &images {
            let in_image = image.with(|live| apply(live, *set, change)).map_err(refused)?;
            // The first is one of the active generation.
            changed.get_or_insert(in_image);
        }
        let entries = self.read(active, name, |table| table.count())?;
        Ok(Changed { changed: changed.unwrap_or(0), entries })
    }

    /// Reads a table of the generation `active`. Changes wait meanwhile.
    ///
    /// # Errors
    /// There is no such table.
    pub fn read<R>(
        &self,
        active: &TableBinding,
        name: &str,
        work: impl FnOnce(&TableView<'_>) -> R,
    ) -> Result<R, TableError> {
        let image = active.objects().find(|image| image.position(name).is_some());
        let Some(image) = image else { return Err(no_table(active, name)) };
        let set = image.position(name).expect("the image has the table");
        Ok(image.with(|live| work(&TableView { live, set, declared: image.declared(set) })))
    }

    /// Frees memory that workers have released. Does not wait for a change. To be called every few seconds, because a
    /// table that changes no more keeps it otherwise.
    pub fn free(&self) {
        let images: Vec<TableImage> = self.store.maintain(|_, objects| objects.cloned().collect());
        images.iter().for_each(TableImage::free);
    }
}

/// A table of a generation.
pub struct TableView<'a> {
    live: &'a LiveTable,
    set: usize,
    declared: &'a Table,
}

impl<'a> TableView<'a> {
    /// The entries in the order of their addresses, shorter prefixes first.
    pub fn entries(&self) -> impl Iterator<Item = LiveEntry<'a>> {
        self.live.entries(self.set)
    }

    /// Number of entries.
    pub fn count(&self) -> usize {
        self.live.count(self.set)
    }

    /// The longest prefix that contains an address.
    pub fn longest(&self, addr: IpAddr) -> Option<LiveEntry<'a>> {
        self.live.longest(self.set, addr)
    }

    /// The family of its entries.
    pub fn family(&self) -> Family {
        self.declared.family()
    }

    /// Whether its entries have labels.
    pub fn kind(&self) -> Kind {
        self.declared.kind()
    }
}

/// The images that have a table, each once.
fn images_of(images: &mut dyn Iterator<Item = &TableImage>, name: &str) -> Vec<TableImage> {
    let mut found: Vec<TableImage> = Vec::new();
    for image in images.filter(|image| image.position(name).is_some()) {
        if !found.iter().any(|known| known.is(image)) {
            found.push(image.clone());
        }
    }
    found
}

fn no_table(active: &TableBinding, name: &str) -> TableError {
    let mut known: Vec<String> = active.objects().flat_map(TableImage::names).map(str::to_owned).collect();
    known.sort();
    known.dedup();
    TableError::NoTable { name: name.to_owned(), known }
}

/// Checks the type and the labels of a change.
fn check(image: &TableImage, name: &str, change: TableChange<'_>) -> Result<(), TableError> {
    let (TableChange::Add(table) | TableChange::Remove(table) | TableChange::Replace(table)) = change else {
        return Ok(());
    };
    let declared = image.declared(image.position(name).expect("the image has the table"));
    let name = || name.to_owned();
    if table.family() != declared.family() {
        let expected = match declared.family() {
            Family::Ipv4 => "IPv4 entries",
            Family::Ipv6 => "IPv6 entries",
        };
        return Err(TableError::OtherType { name: name(), expected });
    }
    if matches!(change, TableChange::Remove(_)) {
        return Ok(());
    }
    if table.kind() != declared.kind() {
        let expected = match declared.kind() {
            Kind::Set => "entries without labels",
            Kind::Labels => "entries with labels",
        };
        return Err(TableError::OtherType { name: name(), expected });
    }
    match table.labels().iter().find(|label| !declared.labels().contains(label)) {
        Some(label) => Err(TableError::NewLabel { name: name(), label: label.to_string() }),
        None => Ok(()),
    }
}

/// Checks that a dynamic table has room for a change.
fn check_bounds(image: &TableImage, name: &str, change: TableChange<'_>) -> Result<(), TableError> {
    let set = image.position(name).expect("the image has the table");
    let Some(DynamicBounds { size, expires }) = image.bounds(set) else { return Ok(()) };
    let (entries, more) = match change {
        TableChange::Remove(_) | TableChange::Flush => return Ok(()),
        TableChange::Add(table) => image.with(|live| (live.count(set), live.count_new(set, table))),
        TableChange::Replace(table) => (0, table.facts().entries),
    };
    if expires {
        return Err(TableError::Timeout { name: name.to_owned() });
    }
    match entries + more > size {
        true => Err(TableError::Full { name: name.to_owned(), entries, more, size }),
        false => Ok(()),
    }
}

/// Checks that the layout of an image can hold the entries of a change.
fn may_change(image: &TableImage, set: usize, change: TableChange<'_>) -> Result<(), LiveError> {
    match change {
        TableChange::Add(table) | TableChange::Replace(table) => image.with(|live| live.check(set, table)),
        TableChange::Remove(_) | TableChange::Flush => Ok(()),
    }
}

fn apply(live: &mut LiveTable, set: usize, change: TableChange<'_>) -> Result<usize, LiveError> {
    match change {
        TableChange::Add(table) => live.insert_all(set, table),
        TableChange::Remove(table) => live.remove_all(set, table),
        TableChange::Replace(table) => live.replace(set, table),
        TableChange::Flush => live.remove_set(set),
    }
}
