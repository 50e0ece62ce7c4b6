//! Dynamic tables that last: their changes go to a log, and tables that no loaded generation has wait for one.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use weir_tables::{Entries, Kind, Table};

use super::change::TableChange;
use super::expiry::{Expiry, deadline, prefixes};
use super::image::{Continued, Member, TableImage};
use super::wheel::TICK_NS;
use crate::saved::log::{ChangeLog, Clocks};
use crate::saved::record::{SavedEntry, TableKey, Written, append_clear, append_put, append_remove};

/// Limit on the tables that wait for a generation. The oldest is forgotten.
pub const WAITING_TABLES_MAX: usize = 1024;

/// A dynamic table with its entries and their deadlines.
#[derive(Clone)]
pub struct SavedTable {
    /// Its name and type.
    pub key: TableKey,
    /// Its entries.
    pub entries: Arc<Table>,
    expiry: Expiry,
}

impl SavedTable {
    /// A table whose `deadlines` are times of shared state.
    pub fn new(
        name: &str,
        entries: Table,
        deadlines: impl IntoIterator<Item = ((IpAddr, u8), u64)>,
        now_ns: u64,
    ) -> Self {
        let mut expiry = Expiry::default();
        for (entry, until_ns) in deadlines {
            expiry.set(entry, Some(deadline(until_ns, 0)), now_ns / TICK_NS);
        }
        let key = TableKey::new(name, entries.family(), entries.kind());
        SavedTable { key, entries: Arc::new(entries), expiry }
    }

    /// A table with the deadlines of its entries.
    pub(super) fn of(key: TableKey, entries: Arc<Table>, expiry: Expiry) -> Self {
        SavedTable { key, entries, expiry }
    }

    /// The table for another store, whose clock shows `to_ns` when the clock of this store shows `from_ns`.
    #[must_use]
    pub fn at_clock(self, from_ns: u64, to_ns: u64) -> Self {
        let mut expiry = Expiry::default();
        for (addr, len) in prefixes(&self.entries) {
            if let Some(until) = self.expiry.until(addr, len) {
                let until_ns = to_ns.saturating_add((until * TICK_NS).saturating_sub(from_ns));
                expiry.set((addr, len), Some(deadline(until_ns, 0)), to_ns / TICK_NS);
            }
        }
        SavedTable { expiry, ..self }
    }

    /// Its entries for the disk.
    pub fn saved(&self, clocks: Clocks) -> impl Iterator<Item = SavedEntry<'_>> {
        saved(&self.entries, &self.expiry, clocks)
    }

    /// What a table of a policy continues with. Also returns the number of entries that it cannot take: entries with a
    /// label that the policy does not know, and entries beyond its size.
    fn continued_by(&self, member: &Member) -> (Continued, usize) {
        let declared = &member.table;
        let mut entries = Entries::with_labels(declared.family(), declared.kind(), declared.labels());
        let mut expiry = self.expiry.clone();
        let size = member.dynamic.map_or(usize::MAX, |bounds| bounds.size);
        let mut left_out = 0;
        for ((addr, len), label) in prefixes(&self.entries).zip(labels(&self.entries)) {
            let is_known = label.is_none_or(|label| declared.labels().iter().any(|known| &**known == label));
            if is_known && entries.len() < size && entries.insert_prefix(addr, len, label).is_ok() {
                continue;
            }
            left_out += 1;
            expiry.set((addr, len), None, 0);
        }
        (Continued { entries: Some(Arc::new(entries.settle())), expiry }, left_out)
    }
}

/// The labels of the prefixes of a table, in their order; `None` in a set.
fn labels(table: &Table) -> impl Iterator<Item = Option<&str>> {
    let label = |id: u32| match table.kind() {
        Kind::Set => None,
        Kind::Labels => Some(&*table.labels()[id as usize - 1]),
    };
    table.label_ids().map(label)
}

/// The entries of a table for the disk.
fn saved<'a>(entries: &'a Table, expiry: &'a Expiry, clocks: Clocks) -> impl Iterator<Item = SavedEntry<'a>> {
    prefixes(entries).zip(labels(entries)).map(move |((addr, len), label)| {
        let until_ms = expiry.until(addr, len).map(|until| clocks.day_ms(until * TICK_NS));
        SavedEntry { addr, len, label, until_ms }
    })
}

/// Writes what a change has made of its entries to the log. The image is the first that has the table.
pub(super) fn log_change(log: &ChangeLog, key: &TableKey, (image, set): (&TableImage, usize), change: TableChange<'_>) {
    let clocks = Clocks::now();
    match change {
        TableChange::Flush => log.append(|bytes| append_clear(bytes, key, false)),
        TableChange::Remove(entries) => {
            let removed: Vec<_> = prefixes(entries).collect();
            log.append(|bytes| append_remove(bytes, key, &removed));
        }
        TableChange::Add { entries, .. } | TableChange::Update { entries, .. } | TableChange::Replace(entries) => {
            image.with_expiry(set, |_, expiry| {
                let now: Vec<_> = saved(entries, expiry, clocks).collect();
                log.append(|bytes| {
                    if let TableChange::Replace(_) = change {
                        append_clear(bytes, key, true);
                    }
                    append_put(bytes, key, Written { at_ms: clocks.present_ms(), entries: &now }, false);
                });
            });
        }
    }
}

/// The tables that last.
///
/// ```text
///   waiting ──a policy declares it──> taken ──it decides packets──> in effect ──no generation has it──> waiting
///                  waiting <──it is unloaded before that──┘
/// ```
/// A policy that is loaded and never decides a packet changes nothing. The whole table waits again as it was before,
/// even if the policy could take only a part of it.
pub(super) struct Lasting {
    pub log: Arc<ChangeLog>,
    /// Tables that no loaded generation has, oldest first.
    waiting: Vec<SavedTable>,
    /// Tables as they were before they were given to generations that never decided a packet.
    taken: HashMap<TableKey, SavedTable>,
    /// The loaded images with tables that last.
    loaded: Vec<LoadedImage>,
    /// What could not be restored, for the log of the daemon.
    pub notices: Vec<String>,
}

/// An image with tables that last.
struct LoadedImage {
    image: TableImage,
    /// Number of generations that have it.
    generations: usize,
    /// Whether one of them has decided packets.
    has_effect: bool,
    /// What it does not have of the tables that it continues with.
    left_out: Vec<String>,
}

impl Lasting {
    pub fn new(log: Arc<ChangeLog>, waiting: Vec<SavedTable>) -> Self {
        Lasting { log, waiting, taken: HashMap::new(), loaded: Vec::new(), notices: Vec::new() }
    }

    /// The tables that no generation has that has decided packets.
    pub fn saved(&self) -> impl Iterator<Item = &SavedTable> {
        self.waiting.iter().chain(self.taken.values())
    }

    /// Whether a generation with an image has decided packets.
    pub fn has_effect(&self, image: &TableImage) -> bool {
        self.loaded.iter().any(|loaded| loaded.image.is(image) && loaded.has_effect)
    }

    /// What a table of a new image continues with, if no generation that has decided packets has it. Also says what is
    /// left out.
    pub fn continued_by(&self, member: &Member) -> Option<(Continued, Option<String>)> {
        let key = dynamic_key(member)?;
        let saved = self.saved().find(|saved| saved.key == key)?;
        let (continued, left_out) = saved.continued_by(member);
        let name = &key.name;
        let notice = (left_out > 0).then(|| {
            format!(
                "table {name}: {left_out} saved entries are left out: the policy does not know their labels, or the table is full"
            )
        });
        Some((continued, notice))
    }

    /// Notes that a generation has an image, which lacks what `left_out` says. Its tables wait no more.
    pub fn bind(&mut self, image: &TableImage, left_out: Vec<String>) {
        let keys: Vec<TableKey> = image.members().iter().filter_map(dynamic_key).collect();
        if keys.is_empty() {
            return;
        }
        match self.loaded.iter_mut().find(|loaded| loaded.image.is(image)) {
            Some(loaded) => loaded.generations += 1,
            None => {
                let image = image.clone();
                self.loaded.push(LoadedImage { image, generations: 1, has_effect: false, left_out });
            }
        }
        for saved in self.waiting.extract_if(.., |saved| keys.contains(&saved.key)) {
            self.taken.insert(saved.key.clone(), saved);
        }
    }

    /// Notes that a generation with an image decides packets.
    pub fn take_effect(&mut self, image: &TableImage) {
        let of = |loaded: &&mut LoadedImage| loaded.image.is(image) && !loaded.has_effect;
        let Some(loaded) = self.loaded.iter_mut().find(of) else { return };
        loaded.has_effect = true;
        self.notices.append(&mut loaded.left_out);
        image.members().iter().filter_map(dynamic_key).for_each(|key| _ = self.taken.remove(&key));
        // The entries that the policy gives its tables are in no record.
        self.log.demand_snapshot();
    }

    /// Notes that a generation with an image is gone. A table that no other has waits from now on.
    pub fn release(&mut self, image: &TableImage) {
        let Some(at) = self.loaded.iter().position(|loaded| loaded.image.is(image)) else { return };
        self.loaded[at].generations -= 1;
        if self.loaded[at].generations > 0 {
            return;
        }
        let gone = self.loaded.swap_remove(at);
        for (position, member) in image.members().iter().enumerate() {
            let Some(key) = dynamic_key(member) else { continue };
            let others: Vec<&LoadedImage> = self.loaded.iter().filter(|loaded| loaded.has_table(&key)).collect();
            let others_have_effect = others.iter().any(|loaded| loaded.has_effect);
            if gone.has_effect
                && !others_have_effect
                && let Some((entries, expiry)) = image.current(position)
            {
                self.taken.insert(key.clone(), SavedTable { key: key.clone(), entries, expiry });
            }
            if others.is_empty()
                && let Some(saved) = self.taken.remove(&key)
            {
                if self.waiting.len() >= WAITING_TABLES_MAX {
                    self.waiting.remove(0);
                }
                self.waiting.push(saved);
            }
        }
    }
}

impl LoadedImage {
    fn has_table(&self, key: &TableKey) -> bool {
        self.image.members().iter().filter_map(dynamic_key).any(|own| own == *key)
    }
}

fn dynamic_key(member: &Member) -> Option<TableKey> {
    member.dynamic.map(|_| TableKey::new(&member.name, member.table.family(), member.table.kind()))
}

/// The dynamic tables of images, each once: in the first image that has it, with its position there.
pub(super) fn dynamic_tables(images: &[TableImage]) -> Vec<(TableKey, &TableImage, usize)> {
    let mut tables: Vec<(TableKey, &TableImage, usize)> = Vec::new();
    for image in images {
        for (position, member) in image.members().iter().enumerate() {
            let key = dynamic_key(member).filter(|key| !tables.iter().any(|(known, ..)| known == key));
            tables.extend(key.map(|key| (key, image, position)));
        }
    }
    tables
}
