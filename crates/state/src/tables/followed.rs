//! Changes of dynamic tables for those who keep tables of their own beside them. Changes by rules are left out: who
//! follows has rules of its own.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use weir_tables::Table;

use super::change::TableChange;
use crate::saved::record::TableKey;

/// Limit on the changes that wait for a follower, and on their entries in all.
const CHANGES_MAX: usize = 1024;
const ENTRIES_MAX: usize = 1 << 22;

/// A change of a table that others made.
#[derive(Clone, Debug)]
pub struct FollowedChange {
    /// The table.
    pub table: TableKey,
    kind: Made,
}

#[derive(Clone, Debug)]
enum Made {
    Add(Arc<Table>, Option<u64>),
    Update(Arc<Table>, Option<u64>),
    Remove(Arc<Table>),
    Replace(Arc<Table>),
    Flush,
}

impl FollowedChange {
    fn of(table: TableKey, change: TableChange<'_>) -> Self {
        let own = |entries: &Table| Arc::new(entries.clone());
        let kind = match change {
            TableChange::Add { entries, timeout_ms } => Made::Add(own(entries), timeout_ms),
            TableChange::Update { entries, timeout_ms } => Made::Update(own(entries), timeout_ms),
            TableChange::Remove(entries) => Made::Remove(own(entries)),
            TableChange::Replace(entries) => Made::Replace(own(entries)),
            TableChange::Flush => Made::Flush,
        };
        FollowedChange { table, kind }
    }

    fn entries(&self) -> usize {
        match &self.kind {
            Made::Add(entries, _) | Made::Update(entries, _) | Made::Remove(entries) | Made::Replace(entries) => {
                entries.prefixes4().len() + entries.prefixes6().len()
            }
            Made::Flush => 0,
        }
    }

    /// Makes the change in a table that knows no timeouts of its own, by `change`. Entries without a timeout of their own
    /// get `declared_ms`.
    ///
    /// # Errors
    /// The errors of `change`.
    pub fn apply<E>(
        &self,
        declared_ms: Option<u64>,
        mut change: impl FnMut(TableChange<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        match &self.kind {
            Made::Add(entries, timeout_ms) => {
                change(TableChange::Add { entries, timeout_ms: timeout_ms.or(declared_ms) })
            }
            Made::Update(entries, timeout_ms) => {
                change(TableChange::Update { entries, timeout_ms: timeout_ms.or(declared_ms) })
            }
            Made::Remove(entries) => change(TableChange::Remove(entries)),
            Made::Replace(entries) => {
                change(TableChange::Replace(entries))?;
                change(TableChange::Update { entries, timeout_ms: declared_ms })
            }
            Made::Flush => change(TableChange::Flush),
        }
    }
}

/// What waits for a follower.
#[derive(Debug, Default)]
struct Waiting {
    changes: VecDeque<FollowedChange>,
    entries: usize,
    missed: u64,
}

/// Follows changes of tables, as long as it lives.
#[derive(Debug)]
pub struct TableFollower {
    tables: Vec<TableKey>,
    waiting: Mutex<Waiting>,
}

impl TableFollower {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next change.
    pub fn next(&self) -> Option<FollowedChange> {
        let mut waiting = self.waiting();
        let change = waiting.changes.pop_front()?;
        waiting.entries -= change.entries();
        Some(change)
    }

    /// Changes that found no room.
    pub fn missed(&self) -> u64 {
        self.waiting().missed
    }

    fn notice(&self, key: &TableKey, change: TableChange<'_>) {
        if !self.tables.contains(key) {
            return;
        }
        let change = FollowedChange::of(key.clone(), change);
        let mut waiting = self.waiting();
        if waiting.changes.len() == CHANGES_MAX || waiting.entries + change.entries() > ENTRIES_MAX {
            waiting.missed += 1;
            return;
        }
        waiting.entries += change.entries();
        waiting.changes.push_back(change);
    }
}

/// All followers of a store.
#[derive(Debug, Default)]
pub(super) struct Followers(Mutex<Vec<Weak<TableFollower>>>);

impl Followers {
    fn all(&self) -> MutexGuard<'_, Vec<Weak<TableFollower>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new follower of these tables.
    pub fn join(&self, tables: Vec<TableKey>) -> Arc<TableFollower> {
        let follower = Arc::new(TableFollower { tables, waiting: Mutex::default() });
        self.all().push(Arc::downgrade(&follower));
        follower
    }

    /// Tells followers of a change that was made. The turn of the table is the caller's.
    pub fn notice(&self, key: impl FnOnce() -> TableKey, change: TableChange<'_>) {
        let mut all = self.all();
        all.retain(|follower| follower.strong_count() > 0);
        if !all.is_empty() {
            let key = key();
            all.iter().filter_map(Weak::upgrade).for_each(|follower| follower.notice(&key, change));
        }
    }
}
