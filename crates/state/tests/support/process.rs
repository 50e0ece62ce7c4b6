//! A process whose tables last.

use std::path::Path;
use std::sync::Arc;

use crate::support::entries;
use weir_state::Declared;
use weir_state::saved::{ChangeLog, Clocks, Folder, Restored, Saver, restore};
use weir_state::tables::{ImageDeclared, TableBinding, TableChange, TableStore};

const MS: u64 = 1_000_000;

/// A process with a state folder.
pub struct Process {
    pub store: TableStore,
    pub saver: Saver,
    pub notices: Vec<String>,
}

impl Process {
    /// Starts at a time.
    pub fn start_at(path: &Path, clocks: Clocks) -> Self {
        let folder = Folder::open(path).unwrap();
        let Restored { tables, notices, .. } = restore(&folder, clocks).unwrap();
        let (store, log) = (TableStore::default(), Arc::new(ChangeLog::default()));
        store.make_last(&log, tables);
        Process { store, saver: Saver::new(path.to_owned(), Some(folder), log), notices }
    }

    pub fn start(path: &Path) -> Self {
        Self::start_at(path, Clocks::now())
    }

    /// Loads a policy.
    pub fn load(&self, declared: Vec<Declared<ImageDeclared>>) -> Arc<TableBinding> {
        self.store.bind(declared, weir_state::now_ns()).unwrap()
    }

    /// Loads a policy, which decides packets from now on.
    pub fn bind(&self, declared: Vec<Declared<ImageDeclared>>) -> Arc<TableBinding> {
        let binding = self.load(declared);
        binding.take_effect();
        binding
    }

    pub fn change(&self, active: &TableBinding, name: &str, change: TableChange<'_>) {
        self.store.change(active, name, change, weir_state::now_ns()).unwrap();
    }

    pub fn save(&mut self, active: &TableBinding) {
        self.saver.step(&self.store, Some(active)).unwrap();
    }

    /// Entries with their labels and the seconds that they have left.
    pub fn entries(&self, active: &TableBinding, name: &str) -> Vec<(String, Option<String>, Option<u64>)> {
        let now_ns = weir_state::now_ns();
        let read = self.store.read(active, name, |table| {
            let left = |entry: &_| table.left_ns(entry, now_ns).map(|ns| ns.div_ceil(1000 * MS));
            table.entries().map(|one| (one.to_string(), one.label.map(str::to_owned), left(&one))).collect()
        });
        read.unwrap()
    }

    pub fn names(&self, active: &TableBinding, name: &str) -> Vec<String> {
        entries(&self.store, active, name)
    }
}
