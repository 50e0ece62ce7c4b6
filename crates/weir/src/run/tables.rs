//! Requests about tables of the active generation.

use crate::failure::Failure;
use crate::run::generation::Generation;
use serde_json::{Value, json};
use std::net::IpAddr;
use std::path::Path;
use weir_abi::Family;
use weir_control::{TABLE_ENTRIES_MAX, TableChanged, TableEntries, TableEntry, TableFound, TableOperation};
use weir_loading::read_table;
use weir_state::SharedState;
use weir_state::tables::{TableBinding, TableChange, TableError, TableStore};
use weir_tables::live::LiveEntry;
use weir_tables::{Entries, Kind, Problem, Table};

/// Executes a request about the table `name`.
///
/// # Errors
/// There is no such table, it cannot change, or the request does not fit it. Nothing has changed then.
pub fn perform<C>(
    name: &str,
    operation: TableOperation,
    active: &Generation<C>,
    shared: &SharedState,
) -> Result<Value, Failure> {
    let rejected = |text: &str| Failure::Rejected(format!("weir: {text}"));
    let store = shared.tables().expect("tables of a running Weir can change");
    let binding = active.tables().ok_or_else(|| rejected("tables of a bundle cannot change yet"))?;
    let tables = Tables { name, store, binding };
    match operation {
        TableOperation::Add { entries } => {
            let entries = &tables.entries(&entries, None)?;
            tables.change(TableChange::Add { entries, timeout_ms: None }, vec![])
        }
        TableOperation::Del { entries } => {
            tables.change(TableChange::Remove(&tables.entries(&entries, Some(Kind::Set))?), vec![])
        }
        TableOperation::Replace { file } => {
            let (list, notices) = tables.list(&file)?;
            let replaced = tables.change(TableChange::Replace(&list), notices);
            // What does not fit is an entry of the list.
            replaced.map_err(|failure| match failure {
                Failure::Rejected(text) => {
                    let text = text.trim_start_matches("weir: ");
                    Failure::Rejected(format!("weir: {}: {text}", file.display()))
                }
                failure => failure,
            })
        }
        TableOperation::Flush => tables.change(TableChange::Flush, vec![]),
        TableOperation::Get { address } => tables.get(&address),
        TableOperation::List { top } => tables.first(top.min(TABLE_ENTRIES_MAX)),
    }
}

/// A table by name.
struct Tables<'a> {
    name: &'a str,
    store: &'a TableStore,
    binding: &'a TableBinding,
}

impl Tables<'_> {
    fn change(&self, change: TableChange<'_>, notices: Vec<String>) -> Result<Value, Failure> {
        let done = self.store.change(self.binding, self.name, change, weir_state::now_ns()).map_err(refused)?;
        let mut notices = notices;
        if done.left_out > 0 {
            let left_out = done.left_out;
            notices.push(format!(
                "{left_out} images of other loaded generations cannot hold the change and do not have it (layout, labels or size)"
            ));
        }
        Ok(json!(TableChanged { table: self.name.to_owned(), changed: done.changed, entries: done.entries, notices }))
    }

    fn get(&self, address: &str) -> Result<Value, Failure> {
        let address: IpAddr =
            address.parse().map_err(|_| Failure::Rejected(format!("weir: `{address}` is not an address")))?;
        let (family, _) = self.table_type()?;
        if address.is_ipv4() != (family == Family::Ipv4) {
            let problem = Problem::OtherFamily(family);
            return Err(Failure::Rejected(format!("weir: table {}: `{address}`: {problem}", self.name)));
        }
        let found = self.store.read(self.binding, self.name, |table| table.longest(address).map(entry));
        Ok(json!(TableFound { table: self.name.to_owned(), found: found.map_err(refused)? }))
    }

    fn first(&self, top: usize) -> Result<Value, Failure> {
        let read = self.store.read(self.binding, self.name, |table| {
            let entries = table.entries().take(top).map(entry).collect();
            TableEntries { table: self.name.to_owned(), total: table.count(), entries }
        });
        Ok(json!(read.map_err(refused)?))
    }

    fn table_type(&self) -> Result<(Family, Kind), Failure> {
        self.store.read(self.binding, self.name, |table| (table.family(), table.kind())).map_err(refused)
    }

    /// Parses entries for this table, or for one of the same family and another kind.
    fn entries(&self, texts: &[String], kind: Option<Kind>) -> Result<Table, Failure> {
        let (family, own) = self.table_type()?;
        let kind = kind.unwrap_or(own);
        let mut entries = Entries::new(family, kind);
        for text in texts {
            let (element, label) = match (kind, text.split_once(',')) {
                (Kind::Labels, Some((element, label))) => (element.trim(), Some(label.trim())),
                _ => (text.trim(), None),
            };
            let inserted = entries.insert_text(element, label);
            inserted.map_err(|problem| Failure::Rejected(format!("weir: table {}: `{text}`: {problem}", self.name)))?;
        }
        Ok(entries.settle())
    }

    /// Reads a list file for this table.
    fn list(&self, file: &Path) -> Result<(Table, Vec<String>), Failure> {
        if !file.is_absolute() {
            return Err(Failure::Rejected(format!("weir: {}: not an absolute path", file.display())));
        }
        let (family, kind) = self.table_type()?;
        Ok(read_table(file, family, kind)?)
    }
}

fn entry(entry: LiveEntry<'_>) -> TableEntry {
    TableEntry { entry: entry.to_string(), label: entry.label.map(str::to_owned) }
}

fn refused(error: TableError) -> Failure {
    match error {
        TableError::Partial { .. } => Failure::Runtime(error.to_string()),
        error => Failure::Rejected(format!("weir: {error}")),
    }
}
