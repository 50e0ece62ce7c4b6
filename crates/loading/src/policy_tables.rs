//! The tables that a policy declares, with their entries: from its text, or from a bundle.

use crate::error::LoadError;
use std::collections::HashMap;
use std::sync::Arc;
use weir_policy::checked::{Checked, Dynamic, TableId, Updates};
use weir_policy::ir::{Slot, SlotContents};
use weir_tables::{Image, Reference, Table};

/// A table that a policy declares.
#[derive(Clone, Debug)]
pub struct DeclaredTable {
    /// Its name.
    pub name: String,
    /// Its entries in the policy and its lists.
    pub entries: Arc<Table>,
    /// Bounds, if it is `dynamic`.
    pub dynamic: Option<Dynamic>,
    /// Whether it has `counters`.
    pub counters: bool,
    /// How it is updated, and which updates are refused. Protected tables are indices into [`PolicyTables`].
    pub updates: Updates,
}

/// The tables that a policy declares, in order of declaration.
#[derive(Clone, Debug, Default)]
pub struct PolicyTables {
    tables: Vec<DeclaredTable>,
    by_name: HashMap<String, usize>,
}

impl DeclaredTable {
    /// Whether its entries change in a replay, or count packets of it.
    pub(crate) fn is_followed(&self) -> bool {
        self.dynamic.is_some() || self.counters
    }
}

impl PolicyTables {
    /// The tables in order of declaration. Their names are distinct.
    pub(crate) fn new(tables: Vec<DeclaredTable>) -> Self {
        let by_name = tables.iter().enumerate().map(|(index, table)| (table.name.clone(), index)).collect();
        PolicyTables { tables, by_name }
    }

    /// The tables of a text, with their entries in the same order.
    pub(crate) fn of_text(checked: &Checked, entries: &[Arc<Table>]) -> Self {
        let declared = checked.tables.iter().zip(entries).map(|(table, entries)| DeclaredTable {
            name: table.name.clone(),
            entries: entries.clone(),
            dynamic: table.dynamic,
            counters: table.counters,
            updates: table.updates.clone(),
        });
        PolicyTables::new(declared.collect())
    }

    /// The tables, in order of declaration.
    pub fn all(&self) -> &[DeclaredTable] {
        &self.tables
    }

    /// Index of the table with a name.
    pub fn index(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// The table with an id.
    pub(crate) fn get(&self, id: TableId) -> &DeclaredTable {
        &self.tables[usize::from(id.0)]
    }

    /// The table with a name, if it is declared.
    pub fn named(&self, name: &str) -> Option<&DeclaredTable> {
        self.index(name).map(|index| &self.tables[index])
    }

    /// The tables in a slot. There are none if it holds limits.
    ///
    /// # Panics
    /// The slot is not one of the policy's.
    pub(crate) fn of_slot(&self, slot: &Slot) -> Vec<&DeclaredTable> {
        let table = |name: &String| self.named(name).expect("the policy declares the tables of its slots");
        slot.tables().iter().map(table).collect()
    }

    /// The table of a slot, unless the slot is fused or holds limits.
    pub(crate) fn alone_in(&self, slot: &Slot) -> Option<&DeclaredTable> {
        match slot.tables() {
            [name] => self.named(name),
            _ => None,
        }
    }

    /// The slow references of the tables in a slot.
    pub(crate) fn references(&self, slot: &Slot) -> Vec<Arc<Reference>> {
        self.of_slot(slot).iter().map(|table| Arc::new(table.entries.reference())).collect()
    }

    /// Builds the image of a slot of tables.
    ///
    /// # Errors
    /// The entries do not fit the layout.
    pub(crate) fn build(&self, slot: &Slot) -> Result<Image, LoadError> {
        assert!(matches!(slot.contents, SlotContents::Tables(_)), "the slot holds tables");
        let members: Vec<&Table> = self.of_slot(slot).iter().map(|table| &*table.entries).collect();
        let built = match members.as_slice() {
            [one] if slot.counted.is_some() => one.build_numbered(slot.layout),
            [one] => one.build(slot.layout),
            fused => weir_tables::fused(fused),
        };
        built.map_err(|error| LoadError::Image { object: format!("table {}", slot.name()), error })
    }
}
