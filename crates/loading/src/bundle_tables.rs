//! The tables of a bundle: their declarations in the report, and their entries in members of the archive.

use crate::policy_tables::{DeclaredTable, PolicyTables};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use weir_abi::Family;
use weir_engine::bundle::Bundle;
use weir_policy::check::{DYNAMIC_SIZE_MAX, MAX_CHANGE_PERCENT_MAX, TIMEOUT_MS_MAX};
use weir_policy::checked::{Dynamic, TableId, TableKind, Updates};
use weir_policy::ir::{Program, Slot};
use weir_tables::problem::LABEL_BYTES_MAX;
use weir_tables::{Kind, Table};

/// A table as JSON. Its entries are a member of the archive.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TableReport {
    name: String,
    family: FamilyReport,
    /// The labels, by number from 1, if it is a map.
    labels: Option<Vec<Box<str>>>,
    dynamic: Option<DynamicReport>,
    counters: bool,
    /// Numbers of the tables whose addresses no update may add, from 0.
    protect: Vec<u16>,
    max_change_percent: Option<u32>,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum FamilyReport {
    Ipv4,
    Ipv6,
}

/// The bounds of a dynamic table.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DynamicReport {
    size: u32,
    timeout_ms: Option<u64>,
}

impl From<Family> for FamilyReport {
    fn from(family: Family) -> Self {
        match family {
            Family::Ipv4 => FamilyReport::Ipv4,
            Family::Ipv6 => FamilyReport::Ipv6,
        }
    }
}

impl From<FamilyReport> for Family {
    fn from(family: FamilyReport) -> Self {
        match family {
            FamilyReport::Ipv4 => Family::Ipv4,
            FamilyReport::Ipv6 => Family::Ipv6,
        }
    }
}

impl TableReport {
    fn of(table: &DeclaredTable) -> Self {
        let DeclaredTable { name, entries, dynamic, counters, updates } = table;
        TableReport {
            name: name.clone(),
            family: entries.family().into(),
            labels: (entries.kind() == Kind::Labels).then(|| entries.labels().to_vec()),
            dynamic: dynamic.map(|Dynamic { size, timeout_ms }| DynamicReport { size, timeout_ms }),
            counters: *counters,
            protect: updates.protected.iter().map(|id| id.0).collect(),
            max_change_percent: updates.max_change_percent,
        }
    }

    /// Checks what the checker of a policy checks. `all` are the tables of the bundle.
    fn check(&self, all: &[TableReport]) -> Result<(), String> {
        if self.name.is_empty() || self.name.chars().any(char::is_control) {
            return Err("a name that no table can have".to_owned());
        }
        if let Some(label) = self.labels.iter().flatten().find(|label| !(1..=LABEL_BYTES_MAX).contains(&label.len())) {
            return Err(format!("a label of {} bytes", label.len()));
        }
        if let Some(DynamicReport { size, timeout_ms }) = &self.dynamic {
            let is_possible = (1..=DYNAMIC_SIZE_MAX).contains(size)
                && timeout_ms.is_none_or(|timeout_ms| (1..=TIMEOUT_MS_MAX).contains(&timeout_ms));
            if !is_possible {
                return Err("a size or timeout that is not possible".to_owned());
            }
        }
        if self.max_change_percent.is_some_and(|percent| !(1..=MAX_CHANGE_PERCENT_MAX).contains(&percent)) {
            return Err("a share for `max-change` that is not possible".to_owned());
        }
        let can_be_protected = |&number: &u16| {
            let other = all.get(usize::from(number));
            other.is_some_and(|other| other.name != self.name && Family::from(other.family) == self.family.into())
        };
        match self.protect.iter().all(can_be_protected) {
            true => Ok(()),
            false => Err("it protects a table that is missing, of another family, or itself".to_owned()),
        }
    }

    fn declared(&self, entries: Table) -> DeclaredTable {
        let dynamic = |&DynamicReport { size, timeout_ms }: &DynamicReport| Dynamic { size, timeout_ms };
        DeclaredTable {
            name: self.name.clone(),
            entries: Arc::new(entries),
            dynamic: self.dynamic.as_ref().map(dynamic),
            counters: self.counters,
            // There are no files that could change.
            updates: Updates {
                watch: false,
                protected: self.protect.iter().map(|&number| TableId(number)).collect(),
                max_change_percent: self.max_change_percent,
            },
        }
    }
}

/// The declarations of tables.
pub(crate) fn written(tables: &PolicyTables) -> Vec<TableReport> {
    tables.all().iter().map(TableReport::of).collect()
}

/// The entries of tables, as members of a bundle.
pub(crate) fn members(tables: &PolicyTables) -> Vec<Arc<[u8]>> {
    tables.all().iter().map(|table| table.entries.to_list().into_bytes().into()).collect()
}

/// Reads the tables of a bundle. `path` is for messages.
///
/// # Errors
/// A declaration or a list has an error, or there are more of one than of the other.
pub(crate) fn read(path: &Path, reports: &[TableReport], bundle: &Bundle) -> Result<PolicyTables, String> {
    let (declared, members) = (reports.len(), bundle.tables.len());
    if declared != members {
        return Err(format!("it has {members} tables, and its report {declared}"));
    }
    let mut names = HashSet::new();
    if let Some(twice) = reports.iter().find(|report| !names.insert(&report.name)) {
        return Err(format!("table {}: it is there twice", twice.name));
    }
    let table = |report: &TableReport, list: &Arc<[u8]>| {
        report.check(reports).map_err(|problem| format!("table {}: {problem}", report.name))?;
        let name = format!("{}: table {}", path.display(), report.name);
        let kind = if report.labels.is_some() { Kind::Labels } else { Kind::Set };
        let labels = report.labels.as_deref().unwrap_or_default();
        let entries = Table::from_list(&name, list, (report.family.into(), kind), labels);
        entries.map(|entries| report.declared(entries)).map_err(|error| error.to_string())
    };
    let read: Vec<Result<DeclaredTable, String>> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            reports.iter().zip(&bundle.tables).map(|(report, list)| scope.spawn(move || table(report, list))).collect();
        threads.into_iter().map(|thread| thread.join().expect("reading a list does not panic")).collect()
    });
    Ok(PolicyTables::new(read.into_iter().collect::<Result<_, _>>()?))
}

/// Checks that the tables are those that the program looks up and changes.
///
/// # Errors
/// Names the table that does not match.
pub(crate) fn check(program: &Program, tables: &PolicyTables) -> Result<(), String> {
    for slot in &program.slots {
        let problem = |problem: &str| format!("table {}: {problem}", slot.name());
        let mut of_slot = slot.tables().iter().map(|name| tables.named(name));
        if of_slot.any(|table| table.is_none_or(|table| table.entries.family() != slot.family)) {
            return Err(problem("its entries are missing, or of another family"));
        }
        let has_kind = |kind: Kind| tables.of_slot(slot).iter().all(|table| table.entries.kind() == kind);
        let counted = slot.counted.is_none_or(|counted| match counted {
            TableKind::Set => has_kind(Kind::Set),
            TableKind::Labels => has_kind(Kind::Labels),
        });
        if !counted || (slot.is_fused() && !has_kind(Kind::Set)) {
            return Err(problem("it is a set for its rules and has labels, or the reverse"));
        }
        if !declares(slot, &tables.of_slot(slot)) {
            return Err(problem("its declaration does not match its rules"));
        }
    }
    for adder in &program.adders {
        let slot = program.slot(adder.slot);
        if tables.alone_in(slot).is_none_or(|table| table.entries.kind() != Kind::Set) {
            return Err(format!("table {}: rules add to it, and it has labels", slot.name()));
        }
    }
    Ok(())
}

/// Whether the bounds and counters of a slot equal the bounds and counters of its tables.
fn declares(slot: &Slot, tables: &[&DeclaredTable]) -> bool {
    let counts = slot.counted.is_some();
    match tables {
        [one] => one.dynamic == slot.dynamic && (one.counters || !counts),
        // Rules change and count at the entries of tables that have an image of their own.
        fused => slot.dynamic.is_none() && fused.iter().all(|table| table.dynamic.is_none() && !table.counters),
    }
}
