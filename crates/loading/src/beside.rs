//! A policy that decides copies of live packets beside the active policy, with tables of its own.

use crate::bound::BoundTables;
use crate::error::LoadError;
use crate::policy::Policy;
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_engine::NativeFilter;
use weir_engine::cpu::Cpu;
use weir_state::saved::record::TableKey;
use weir_state::tables::{ByRules, FollowedChange, SavedTable, TableBinding, TableError, TableStore};
use weir_state::{Memory, SharedState, UsedBy};

/// The dynamic tables of a policy beside the active one. Their clock is the time of the packets: ns since 1970.
pub struct TablesBeside {
    store: Arc<TableStore>,
    binding: Arc<TableBinding>,
    /// Timeouts of declarations, ms, by the name of the table.
    timeouts: BTreeMap<String, Option<u64>>,
}

impl TablesBeside {
    /// Makes a change that was made in the tables of the active policy.
    ///
    /// # Errors
    /// The table cannot take it: it knows not all labels, or is full.
    pub fn apply(&self, change: &FollowedChange, now_ns: u64) -> Result<(), TableError> {
        let declared_ms = self.timeouts.get(&change.table.name).copied().flatten();
        let name = &change.table.name;
        change.apply(declared_ms, |change| self.store.change(&self.binding, name, change, now_ns).map(drop))
    }
}

impl Policy {
    /// Its dynamic tables.
    pub fn dynamic_tables(&self) -> Vec<TableKey> {
        let tables = self.tables().all().iter().filter(|table| table.dynamic.is_some());
        tables.map(|table| TableKey::new(&table.name, table.entries.family(), table.entries.kind())).collect()
    }

    /// Native code that decides packets beside the active policy. `continued` are its dynamic tables that begin with
    /// entries of the active policy, in ns since 1970. Others begin as they are declared. Also returns what had no
    /// room.
    ///
    /// # Errors
    /// As for [`Policy::native`].
    pub fn native_beside(
        &self,
        continued: Vec<SavedTable>,
    ) -> Result<(NativeFilter, TablesBeside, Vec<String>), LoadError> {
        let shared = SharedState::new(UsedBy::Replay(Memory::Process));
        let store = shared.tables().clone();
        let names: Vec<String> = continued.iter().map(|table| table.key.name.clone()).collect();
        store.begin_with(continued);
        let mut bound = self.bind_to(&shared, BoundTables::All)?;
        let tables = bound.state.tables.as_mut().expect("all tables are bound");
        let binding = tables.binding.clone();
        binding.take_effect();
        let notices = store.take_notices();
        if let ByRules::Replayed(replayed) = &mut tables.by_rules {
            // What the policy lists in these tables is there if it still is in those of the active policy.
            replayed.listed.retain(|listed| !names.contains(&listed.table));
        }
        let dynamic = self.tables().all().iter().filter_map(|table| Some((&table.name, table.dynamic?)));
        let timeouts = dynamic.map(|(name, dynamic)| (name.clone(), dynamic.timeout_ms)).collect();
        let filter = self.compile_native(Cpu::Native)?.filter(bound)?;
        Ok((filter, TablesBeside { store, binding, timeouts }, notices))
    }
}
