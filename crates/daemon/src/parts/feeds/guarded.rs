//! Changes of a table by `weir ctl table`, within its guard rails.

use crate::parts::feeds::checks::{Force, GuardRails};
use crate::parts::feeds::contents::Contents;
use crate::parts::feeds::updates::{Cause, Updates};
use std::path::Path;
use weir_abi::Family;
use weir_command::failure::Failure;
use weir_control::{ListChanged, ListName, TableChanged};
use weir_loading::{PolicyTables, read_table};
use weir_state::tables::{TableBinding, TableStore};
use weir_tables::{Kind, Table};

/// A table that requests change.
pub struct Guarded<'a> {
    /// The tables that the active generation declares.
    pub tables: &'a PolicyTables,
    /// The name of the table.
    pub name: &'a str,
    /// The tables.
    pub store: &'a TableStore,
    /// The tables of the active generation in `store`.
    pub binding: &'a TableBinding,
    /// Records what was applied and refused.
    pub updates: &'a Updates,
}

impl Guarded<'_> {
    /// Adds entries by `change`, unless the table must not have them.
    ///
    /// # Errors
    /// The entries are refused, or `change` fails.
    pub fn add(
        &self,
        entries: &Table,
        change: impl FnOnce() -> Result<TableChanged, Failure>,
    ) -> Result<TableChanged, Failure> {
        let Some(index) = self.index() else { return change() };
        let _checked = self.updates.change();
        GuardRails::of(self.tables, index).check_added(entries, self.contents())?;
        change()
    }

    /// Replaces all entries by the entries of a list file, with `change`.
    ///
    /// # Errors
    /// The file cannot be read, the update is refused, or `change` fails. The failure names the file. If it is
    /// the file's, the status shows it until the table is updated.
    pub fn replace(
        &self,
        file: &Path,
        (family, kind): (Family, Kind),
        force: Force,
        change: impl FnOnce(&Table, &[String]) -> Result<TableChanged, Failure>,
    ) -> Result<TableChanged, Failure> {
        if !file.is_absolute() {
            return Err(Failure::Rejected(format!("weir: {}: not an absolute path", file.display())));
        }
        let list = ListName::Table(self.name.to_owned());
        let done: Result<_, Failure> = (|| {
            let (new, notices) = read_table(file, family, kind)?;
            let _checked = self.updates.change();
            let before = self.check(file, &new, force)?;
            let done = change(&new, &notices).map_err(|failure| about(file, failure))?;
            Ok((done, ListChanged { list: list.clone(), entries_before: before, entries: new.facts().entries }))
        })();
        match done {
            Ok((done, changed)) => {
                self.updates.applied(changed, Cause::Replace);
                Ok(done)
            }
            Err(failure) => {
                self.updates.refused(&list, file, failure.message(), Cause::Replace);
                Err(failure)
            }
        }
    }

    /// Checks a replacement. Returns the number of entries before.
    fn check(&self, file: &Path, new: &Table, force: Force) -> Result<usize, Failure> {
        let (Some(index), contents) = (self.index(), self.contents()) else { return Ok(0) };
        let current = contents.table(index)?;
        let entries = [&current, new].map(|table: &Table| table.facts().entries);
        let rails = GuardRails::of(self.tables, index);
        let reasons =
            rails.check_update(&current.difference(new), entries, force, |protected| contents.table(protected))?;
        let reasons: Vec<String> = reasons.iter().map(|reason| format!("{}: {reason}", file.display())).collect();
        match reasons.is_empty() {
            true => Ok(entries[0]),
            false => Err(Failure::Rejected(format!("weir: {}", reasons.join("\n")))),
        }
    }

    fn index(&self) -> Option<usize> {
        self.tables.index(self.name)
    }

    fn contents(&self) -> Contents<'_> {
        Contents::new(self.tables, Some((self.store, self.binding)))
    }
}

/// A failure of a change to the entries of a file, with the name of the file.
fn about(file: &Path, failure: Failure) -> Failure {
    match failure {
        Failure::Rejected(text) => {
            Failure::Rejected(format!("weir: {}: {}", file.display(), text.trim_start_matches("weir: ")))
        }
        failure => failure,
    }
}
