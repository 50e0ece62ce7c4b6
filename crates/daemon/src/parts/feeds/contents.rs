//! The entries that the tables of the active generation have now.

use std::sync::Arc;
use weir_command::failure::Failure;
use weir_loading::PolicyTables;
use weir_state::tables::{TableBinding, TableError, TableStore};
use weir_tables::{Overlap, Table};

/// The tables of a generation.
#[derive(Clone, Copy)]
pub struct Contents<'a> {
    tables: &'a PolicyTables,
    live: Option<(&'a TableStore, &'a TableBinding)>,
}

impl<'a> Contents<'a> {
    /// The tables of the generation that declares them. Without `live` they do not change.
    pub fn new(tables: &'a PolicyTables, live: Option<(&'a TableStore, &'a TableBinding)>) -> Self {
        Contents { tables, live }
    }

    /// The store and the images of the tables, if they can change.
    pub fn live(&self) -> Option<(&'a TableStore, &'a TableBinding)> {
        self.live
    }

    /// The entries of a table, by its index in the policy.
    ///
    /// # Errors
    /// The entries were lost by a failure.
    pub fn table(&self, index: usize) -> Result<Arc<Table>, Failure> {
        self.read(index, |store, binding, name| store.contents(binding, name), Arc::clone)
    }

    /// Where the prefixes of `entries` overlap the prefixes of a table.
    ///
    /// # Errors
    /// The entries were lost by a failure.
    pub fn overlap(&self, index: usize, entries: &Table) -> Result<Option<Overlap>, Failure> {
        let live = |store: &TableStore, binding: &TableBinding, name: &str| {
            store.read(binding, name, |table| table.overlap(entries))
        };
        self.read(index, live, |table| entries.overlap(table))
    }

    /// Reads a table that can change by `live`, another one by `constant`.
    fn read<R>(
        &self,
        index: usize,
        live: impl FnOnce(&TableStore, &TableBinding, &str) -> Result<R, TableError>,
        constant: impl FnOnce(&Arc<Table>) -> R,
    ) -> Result<R, Failure> {
        let declared = &self.tables.all()[index];
        match self.live.map(|(store, binding)| live(store, binding, &declared.name)) {
            Some(Ok(read)) => Ok(read),
            // No rule looks the table up, so it has no image.
            None | Some(Err(TableError::NoTable { .. })) => Ok(constant(&declared.entries)),
            Some(Err(error)) => Err(Failure::Runtime(error.to_string())),
        }
    }
}
