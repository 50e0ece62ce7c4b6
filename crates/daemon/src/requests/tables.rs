//! Requests about tables of the active generation.

use crate::generations::generation::Generation;
use crate::parts::feeds::{Force, Guarded, Updates};
use crate::requests::table_answers::{Counted, entry, refused};
use crate::requests::table_list;
use std::net::IpAddr;
use std::path::Path;
use weir_abi::Family;
use weir_abi::entry::hit_time;
use weir_command::failure::Failure;
use weir_control::{GivenEntries, Reply, TableChanged, TableFound, TableOperation};
use weir_loading::read_table;
use weir_state::SharedState;
use weir_state::tables::{TableBinding, TableChange, TableStore, Visibility};
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
    updates: &Updates,
) -> Result<Reply, Failure> {
    let rejected = |text: &str| Failure::Rejected(format!("weir: {text}"));
    let store = shared.tables();
    let binding = active.tables().expect("tables of a running Weir can change");
    let guarded = Guarded { tables: active.declared(), name, store, binding, updates };
    let tables = Tables { name, store, binding, follows_lists: active.follows_lists(name) };
    let changed = match operation {
        TableOperation::Add(given) => {
            let (entries, notices) = &tables.entries(&given, None)?;
            let change = TableChange::Add { entries, timeout_ms: given.timeout_ms };
            guarded.add(entries, || tables.change(change, given.atomic, notices))
        }
        TableOperation::Update(given) => {
            let (entries, notices) = &tables.entries(&given, None)?;
            let change = TableChange::Update { entries, timeout_ms: given.timeout_ms };
            guarded.add(entries, || tables.change(change, given.atomic, notices))
        }
        TableOperation::Del(given) => {
            if given.timeout_ms.is_some() {
                return Err(rejected("a timeout is only for `add` and `update`"));
            }
            let (entries, notices) = &tables.entries(&given, Some(Kind::Set))?;
            tables.change(TableChange::Remove(entries), given.atomic, notices)
        }
        TableOperation::Replace { file, atomic, force } => {
            let (family, kind) = tables.table_type()?;
            guarded.replace(&file, (family, kind), Force::from(force), |list, notices| {
                tables.change(TableChange::Replace(list), atomic, notices)
            })
        }
        TableOperation::Flush => tables.change(TableChange::Flush, false, &[]),
        TableOperation::Get { address } => return Ok(tables.get(&address)?.into()),
        TableOperation::List(wanted) => return Ok(table_list::list(name, store, binding, &wanted)?.into()),
    };
    Ok(changed?.into())
}

/// A table by name.
struct Tables<'a> {
    name: &'a str,
    store: &'a TableStore,
    binding: &'a TableBinding,
    /// Whether the table follows list files.
    follows_lists: bool,
}

impl Tables<'_> {
    fn change(&self, change: TableChange<'_>, atomic: bool, notices: &[String]) -> Result<TableChanged, Failure> {
        let visibility = if atomic { Visibility::AtOnce } else { Visibility::Gradual };
        let order = (change, visibility);
        let done = self.store.change_by(self.binding, self.name, order, weir_state::now_ns()).map_err(refused)?;
        let mut notices = notices.to_vec();
        notices.extend(done.left_out.notice());
        Ok(TableChanged {
            table: self.name.to_owned(),
            changed: done.changed,
            refreshed: matches!(change, TableChange::Update { .. }).then_some(done.refreshed),
            entries: done.entries,
            reload_undoes: self.follows_lists,
            notices,
        })
    }

    fn get(&self, address: &str) -> Result<TableFound, Failure> {
        let address: IpAddr =
            address.parse().map_err(|_| Failure::Rejected(format!("weir: `{address}` is not an address")))?;
        let (family, _) = self.table_type()?;
        if address.is_ipv4() != (family == Family::Ipv4) {
            let problem = Problem::OtherFamily(family);
            return Err(Failure::Rejected(format!("weir: table {}: `{address}`: {problem}", self.name)));
        }
        let now_ns = weir_state::now_ns();
        let found = self.store.read(self.binding, self.name, |table| {
            let one = table.longest(address)?;
            Some(entry(table, &Counted { counts: table.counts(&one, hit_time(now_ns)), one }, now_ns))
        });
        Ok(TableFound { table: self.name.to_owned(), found: found.map_err(refused)? })
    }

    fn table_type(&self) -> Result<(Family, Kind), Failure> {
        self.store.read(self.binding, self.name, |table| (table.family(), table.kind())).map_err(refused)
    }

    /// The entries of a change, from its text and its file, for this table or for one of the same family and another
    /// kind. Also returns notices about the file.
    fn entries(&self, given: &GivenEntries, kind: Option<Kind>) -> Result<(Table, Vec<String>), Failure> {
        let (family, own) = self.table_type()?;
        let kind = kind.unwrap_or(own);
        let mut entries = Entries::new(family, kind);
        let mut notices = Vec::new();
        if let Some(file) = &given.file {
            let (list, about) = self.list(file, (family, own))?;
            entries.insert_table(&list);
            notices = about;
        }
        for text in &given.entries {
            let (element, label) = match (kind, text.split_once(',')) {
                (Kind::Labels, Some((element, label))) => (element.trim(), Some(label.trim())),
                _ => (text.trim(), None),
            };
            let inserted = entries.insert_text(element, label);
            inserted.map_err(|problem| Failure::Rejected(format!("weir: table {}: `{text}`: {problem}", self.name)))?;
        }
        let table = entries.settle();
        match table.facts().repeated {
            0 => {}
            count => notices.push(format!("{count} prefixes were given again, which changes nothing")),
        }
        Ok((table, notices))
    }

    /// Reads a list file of a type.
    fn list(&self, file: &Path, (family, kind): (Family, Kind)) -> Result<(Table, Vec<String>), Failure> {
        if !file.is_absolute() {
            return Err(Failure::Rejected(format!("weir: {}: not an absolute path", file.display())));
        }
        Ok(read_table(file, family, kind)?)
    }
}
