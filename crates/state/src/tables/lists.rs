//! Tables that follow list files: what a table has now, and what its lists had when they were read last.

use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

use weir_tables::Table;
use weir_tables::live::LiveError;

use super::change::{NotTaken, Order, TableChange, Timing, Visibility};
use super::fit::{Checked, checked, images_of, no_table};
use super::image::TableImage;
use super::replacement::Undo;
use super::table_error::TableError;
use super::table_images::TableBinding;
use super::table_store::TableStore;

/// Why tables did not get new lists. Tables that already had theirs have their previous entries again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotReplaced {
    /// The table that did not take its list.
    pub name: String,
    /// Why.
    pub error: Box<TableError>,
    /// Tables whose previous entries could not be restored. They have at least a part of their new list.
    pub not_restored: Vec<String>,
}

impl NotReplaced {
    /// Whether only time can help: readers were behind. Otherwise the images are too small for the new lists, which
    /// images of a new generation need not be.
    pub fn may_succeed_later(&self) -> bool {
        matches!(*self.error, TableError::Refused { error: LiveError::ReadersBehind { .. }, .. })
    }
}

impl Display for NotReplaced {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.error)?;
        match self.not_restored.is_empty() {
            true => Ok(()),
            false => write!(f, "; a part of the update stays in {}", self.not_restored.join(", ")),
        }
    }
}

impl std::error::Error for NotReplaced {}

impl TableStore {
    /// The entries of a table of the generation `active`. A table that has not changed is not copied.
    ///
    /// # Errors
    /// There is no such table.
    pub fn contents(&self, active: &TableBinding, name: &str) -> Result<Arc<Table>, TableError> {
        let found = active.objects().find_map(|image| image.table(image.position(name)?));
        found.ok_or_else(|| no_table(active.objects(), name))
    }

    /// The entries that a table of the generation `active` has in the policy and its lists, as they were read last.
    ///
    /// # Errors
    /// There is no such table.
    pub fn listed(&self, active: &TableBinding, name: &str) -> Result<Arc<Table>, TableError> {
        let found = active.objects().find_map(|image| Some(image.listed(image.position(name)?)));
        found.ok_or_else(|| no_table(active.objects(), name))
    }

    /// The lists of a table of the generation `active` were read again, and the table has their entries. A generation
    /// that is bound later with the same lists continues with the table and its further changes.
    pub fn set_listed(&self, active: &TableBinding, name: &str, list: &Arc<Table>) {
        let _turn = self.turn(name);
        for (image, position) in images_of(&mut active.objects(), name) {
            image.set_listed(position, list);
        }
    }

    /// Replaces the entries of tables of the generation `active` by new lists: all tables, or none. Tables of the same
    /// name and type of other loaded generations take a new list too if they had the same list before. Other changes
    /// wait for one table, not for all.
    ///
    /// # Errors
    /// A table cannot take its list. Other tables have their previous entries again.
    ///
    /// # Panics
    /// Panics if a table is `dynamic`: those follow no lists.
    pub fn replace_lists(
        &self,
        active: &TableBinding,
        lists: &[(&str, &Arc<Table>)],
        now_ns: u64,
    ) -> Result<Vec<NotTaken>, NotReplaced> {
        let mut undo = Undo::default();
        let mut not_taken = Vec::new();
        for &(name, list) in lists {
            match self.replace_list(active, (name, list), &mut undo, now_ns) {
                Ok(others) => not_taken.push(others),
                Err(error) => {
                    let not_restored = undo.restore(Visibility::Gradual, |name| self.turn(name));
                    return Err(NotReplaced { name: name.to_owned(), error: Box::new(error), not_restored });
                }
            }
        }
        Ok(not_taken)
    }

    /// Replaces the entries of one table. `undo` gets what was there.
    fn replace_list(
        &self,
        active: &TableBinding,
        (name, list): (&str, &Arc<Table>),
        undo: &mut Undo,
        now_ns: u64,
    ) -> Result<NotTaken, TableError> {
        let _turn = self.turn(name);
        let change = TableChange::Replace(list);
        let Checked { own, table_type, .. } = checked(&active.objects().collect::<Vec<_>>(), name, change)?;
        let (first, set) = own.first().expect("a table that was checked has an image");
        assert!(first.bounds(*set).is_none(), "a dynamic table follows no lists");
        let listed = first.listed(*set);
        let has_list =
            |(image, set): &(TableImage, usize)| image.bounds(*set).is_none() && image.listed(*set) == listed;
        let (others, refused) = self.others((name, &own), table_type, change, has_list);
        let order = Order { change, visibility: Visibility::Gradual, timing: Timing::new(now_ns, None) };
        let done = undo.images();
        let (_, not_taken) =
            undo.replace(&own, &others, order).map_err(|error| TableError::Refused { name: name.to_owned(), error })?;
        undo.set_listed(done, list);
        Ok(NotTaken { images: not_taken.images + refused, ..not_taken })
    }

    /// Checks that a table of the generation `active` can take a change.
    ///
    /// # Errors
    /// There is no such table, or the entries do not fit it.
    pub fn check(&self, active: &TableBinding, name: &str, change: TableChange<'_>) -> Result<(), TableError> {
        checked(&active.objects().collect::<Vec<_>>(), name, change).map(|_| ())
    }
}
