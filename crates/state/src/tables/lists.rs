//! Tables that follow list files: what a table has now, and what its lists had when they were read last.

use std::sync::Arc;

use weir_tables::Table;

use super::change::TableChange;
use super::fit::{checked, images_of, no_table};
use super::table_error::TableError;
use super::table_store::{TableBinding, TableStore};

impl TableStore {
    /// The entries of a table of the generation `active`. A table that has not changed is not copied.
    ///
    /// # Errors
    /// There is no such table.
    pub fn contents(&self, active: &TableBinding, name: &str) -> Result<Arc<Table>, TableError> {
        let _in_order = self.in_order();
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
        let _in_order = self.in_order();
        for (image, position) in images_of(&mut active.objects(), name) {
            image.set_listed(position, list);
        }
    }

    /// Checks that a table of the generation `active` can take a change.
    ///
    /// # Errors
    /// There is no such table, or the entries do not fit it.
    pub fn check(&self, active: &TableBinding, name: &str, change: TableChange<'_>) -> Result<(), TableError> {
        let _in_order = self.in_order();
        checked(&active.objects().collect::<Vec<_>>(), name, change).map(|_| ())
    }
}
