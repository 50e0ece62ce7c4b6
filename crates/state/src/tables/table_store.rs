//! Binds generations to images of tables, and changes tables by name.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::IpAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use weir_abi::{EntryCounts, Family};
use weir_tables::live::{LiveEntry, LiveError, LiveTable, Readers};
use weir_tables::{Kind, Overlap, Table};

use super::change::{Applied, NotTaken, Order, TableChange, Timing, Visibility};
use super::entry_counters::EntryCounters;
use super::expiry::Expiry;
use super::fit::{Checked, can_take, checked, images_of, no_table};
use super::followed::{Followers, TableFollower};
use super::image::{ImageDeclared, TableImage};
use super::kernel::HALF_BYTES_MAX;
use super::lasting::{self, Lasting, SavedTable};
use super::patience::Patience;
use super::published::ReadBy;
use super::replacement::Undo;
use super::table_error::TableError;
use super::table_images::{TableBinding, TableImages};
use super::turns::{Turn, Turns};
use super::wheel::TICK_NS;
use crate::saved::log::ChangeLog;
use crate::saved::record::TableKey;
use crate::store::{Declared, Store};
use crate::{Memory, StateError};

/// The result of a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// Number of entries that were added, removed or got another label.
    pub changed: usize,
    /// Number of entries that an update found in the table, and whose timeout begins anew.
    pub refreshed: usize,
    /// Number of entries now.
    pub entries: usize,
    /// The images of other generations that do not have the change.
    pub left_out: NotTaken,
}

/// The tables of all generations.
pub struct TableStore {
    readers: Readers,
    pub(super) store: Store<TableImages>,
    /// Held while a generation is bound.
    binding: Mutex<()>,
    /// A change has the turn of its table, so that all images with the table see the same order of changes.
    pub(super) turns: Turns,
    /// Whether some entry may have a deadline.
    pub(super) can_expire: AtomicBool,
    /// Tables whose entries could not expire at a tick, because others changed the tables, and that tick.
    pub(super) overdue: Mutex<BTreeMap<String, u64>>,
    /// Number of entries that full tables refused, by the name of the table.
    refused: Mutex<BTreeMap<String, u64>>,
    /// Where changes of dynamic tables are written.
    log: OnceLock<Arc<ChangeLog>>,
    /// Who keeps tables of its own beside these.
    followers: Followers,
}

impl Default for TableStore {
    fn default() -> Self {
        Self::new(Memory::Process)
    }
}

impl TableStore {
    /// No tables yet. Workers of this process read those in its memory, programs in the kernel those in maps. For maps
    /// a thread must announce when programs have ended ([`weir_tables::live::Reader::pass`]).
    pub fn new(memory: Memory) -> Self {
        Self::read_by(match memory {
            Memory::Process => ReadBy::Threads,
            Memory::Kernel => ReadBy::Kernel { half_max: HALF_BYTES_MAX },
        })
    }

    pub(super) fn read_by(read_by: ReadBy) -> Self {
        let readers = Readers::new();
        let store = Store::new(TableImages { readers: readers.clone(), read_by, lasting: None });
        TableStore {
            readers,
            store,
            binding: Mutex::default(),
            turns: Turns::default(),
            can_expire: AtomicBool::new(false),
            overdue: Mutex::default(),
            refused: Mutex::default(),
            log: OnceLock::new(),
            followers: Followers::default(),
        }
    }

    /// The registry of the workers that read tables.
    pub fn readers(&self) -> &Readers {
        &self.readers
    }

    /// Binds a generation to the images that it declares. Timeouts of the entries that it declares begin at `now_ns`.
    /// Changes of these tables wait meanwhile, and so do other calls.
    ///
    /// # Errors
    /// A layout cannot hold the entries that a table continues with.
    pub fn bind(&self, declared: Vec<Declared<ImageDeclared>>, now_ns: u64) -> Result<Arc<TableBinding>, StateError> {
        let _one_at_a_time = lock(&self.binding);
        let _turn = self.turns.take_all(self.tables_beside(&declared));
        let binding = self.store.bind(declared, now_ns)?;
        self.note_deadlines(binding.objects());
        Ok(binding)
    }

    /// The tables of a declaration, and those that share a loaded image with one of them.
    fn tables_beside(&self, declared: &[Declared<ImageDeclared>]) -> Vec<String> {
        let members = declared.iter().flat_map(|one| &one.declaration.members);
        let own: BTreeSet<String> = members.map(|member| member.name.clone()).collect();
        let mut all = own.clone();
        self.store.with_objects(|loaded| {
            let shared = loaded.filter(|image| image.names().any(|name| own.contains(name)));
            shared.for_each(|image| all.extend(image.names().map(str::to_owned)));
        });
        all.into_iter().collect()
    }

    /// Changes a table of the generation `active`, and the tables of the same name and type of all loaded generations.
    /// Images of other generations that cannot hold the change are left out and counted. Timeouts begin at `now_ns`, in
    /// the time of [`TableStore::expire`].
    ///
    /// # Errors
    /// There is no such table, or the entries do not fit it. Nothing has changed then, except for
    /// [`TableError::Partial`]. If all entries are replaced, that means that undoing a part of it has failed too.
    pub fn change(
        &self,
        active: &TableBinding,
        name: &str,
        change: TableChange<'_>,
        now_ns: u64,
    ) -> Result<Changed, TableError> {
        self.change_by(active, name, (change, Visibility::Gradual), now_ns)
    }

    /// Changes a table as [`TableStore::change`] does. Packets may see a part of the change or not.
    ///
    /// # Errors
    /// As for [`TableStore::change`].
    pub fn change_by(
        &self,
        active: &TableBinding,
        name: &str,
        (change, visibility): (TableChange<'_>, Visibility),
        now_ns: u64,
    ) -> Result<Changed, TableError> {
        let turn = self.turn(name);
        let changed = self.change_in_turn(&turn, (active, name), (change, visibility), now_ns)?;
        if let Some((family, kind)) = self.dynamic_type(active, name) {
            self.followers.notice(|| TableKey::new(name, family, kind), change);
        }
        Ok(changed)
    }

    /// Follows changes of dynamic tables, except for those by rules.
    pub fn follow(&self, tables: Vec<TableKey>) -> Arc<TableFollower> {
        self.followers.join(tables)
    }

    /// The type of a table, if it is dynamic.
    fn dynamic_type(&self, active: &TableBinding, name: &str) -> Option<(Family, Kind)> {
        let image = active.objects().find(|image| image.position(name).is_some())?;
        let set = image.position(name)?;
        image.bounds(set).map(|_| image.table_type(set))
    }

    /// Changes the table of a turn.
    pub(super) fn change_in_turn(
        &self,
        _turn: &Turn<'_>,
        (active, name): (&TableBinding, &str),
        (change, visibility): (TableChange<'_>, Visibility),
        now_ns: u64,
    ) -> Result<Changed, TableError> {
        let Checked { own, table_type, timeout_ms } = checked(&active.objects().collect::<Vec<_>>(), name, change)
            .inspect_err(|error| {
                if let TableError::Full { more, .. } = error {
                    *self.refused().entry(name.to_owned()).or_default() += *more as u64;
                }
            })?;
        let (first, set) = own.first().expect("a table that was checked has an image");
        let order = Order { change, visibility, timing: Timing::new(now_ns, timeout_ms) };
        let (others, refused) = self.others((name, &own), table_type, change, |_| true);
        let done = match change.is_whole() {
            true => self.replace((name, &own), &others, order),
            false => self.add_or_remove((name, &own), &others, order),
        };
        self.note_deadlines(own.iter().chain(&others).map(|(image, _)| image));
        let (Applied { changed, refreshed }, left_out) = done?;
        let left_out = NotTaken { images: left_out.images + refused, ..left_out };
        if let Some(log) = self.log.get().filter(|_| first.bounds(*set).is_some()) {
            let (family, kind) = table_type;
            lasting::log_change(log, &TableKey::new(name, family, kind), (first, *set), change);
        }
        let entries = self.read(active, name, |table| table.count())?;
        Ok(Changed { changed, refreshed, entries, left_out })
    }

    /// The `wanted` images of other generations that have a table of the same type and can take a change. Also returns
    /// the number of those that cannot.
    pub(super) fn others(
        &self,
        (name, own): (&str, &[(TableImage, usize)]),
        table_type: (Family, Kind),
        change: TableChange<'_>,
        wanted: impl Fn(&(TableImage, usize)) -> bool,
    ) -> (Vec<(TableImage, usize)>, usize) {
        let is_other = |(image, set): &(TableImage, usize)| {
            !own.iter().any(|(known, _)| known.is(image)) && image.table_type(*set) == table_type
        };
        let all = self.all_images_of(name).into_iter().filter(|other| is_other(other) && wanted(other));
        let (can, cannot): (Vec<_>, Vec<_>) = all.partition(|(image, set)| can_take(image, *set, name, change).is_ok());
        (can, cannot.len())
    }

    /// Replaces all entries, in all images of the generation or in none.
    fn replace(
        &self,
        (name, own): (&str, &[(TableImage, usize)]),
        others: &[(TableImage, usize)],
        order: Order<'_>,
    ) -> Result<(Applied, NotTaken), TableError> {
        let mut undo = Undo::default();
        undo.replace(own, others, order).map_err(|error| {
            // The turn is the caller's.
            match undo.restore(order.visibility, |_| ()).is_empty() {
                true => TableError::Refused { name: name.to_owned(), error },
                false => {
                    self.demand_snapshot();
                    TableError::Partial { name: name.to_owned(), error }
                }
            }
        })
    }

    /// Makes a change of some entries, image by image.
    fn add_or_remove(
        &self,
        (name, own): (&str, &[(TableImage, usize)]),
        others: &[(TableImage, usize)],
        order: Order<'_>,
    ) -> Result<(Applied, NotTaken), TableError> {
        let mut applied = None;
        for (image, set) in own {
            let problem = |error: LiveError| match (&error, applied.is_none()) {
                (LiveError::Stopped { .. }, _) | (_, false) => TableError::Partial { name: name.to_owned(), error },
                (_, true) => TableError::Refused { name: name.to_owned(), error },
            };
            let in_image = image.apply(*set, order);
            applied.get_or_insert(in_image.map_err(problem).inspect_err(|_| self.demand_snapshot())?);
        }
        let mut left_out = NotTaken::default();
        for (image, set) in others {
            if let Err(error) = image.apply(*set, order) {
                left_out.images += 1;
                left_out.partial += usize::from(matches!(error, LiveError::Stopped { .. }));
            }
        }
        Ok((applied.unwrap_or_default(), left_out))
    }

    /// Makes dynamic tables last: their changes go to `log`, and `waiting` tables continue in the first policy that
    /// declares them. A table whose last generation is gone waits for the next one. To be called once, before
    /// generations are bound.
    pub fn make_last(&self, log: &Arc<ChangeLog>, waiting: Vec<SavedTable>) {
        if self.log.set(log.clone()).is_ok() {
            self.store.maintain(|kind, _| kind.lasting = Some(Lasting::new(log.clone(), waiting)));
        }
    }

    /// Lets `waiting` tables continue in the first policies that declare them, until [`TableStore::end_handover`]. To be
    /// called before generations are bound.
    pub fn begin_with(&self, waiting: Vec<SavedTable>) {
        self.store.maintain(|kind, _| kind.lasting = Some(Lasting::new(Arc::default(), waiting)));
    }

    /// Forgets tables of [`TableStore::begin_with`] that no generation has taken, unless tables last.
    pub fn end_handover(&self) {
        if self.log.get().is_none() {
            self.store.maintain(|kind, _| kind.lasting = None);
        }
    }

    /// The dynamic tables of generations that decide packets or did, as `active` has them if it does, and the tables
    /// that wait. `begin` runs first.
    /// What was changed before it is included, and some of the changes since then. All of those are in the log when
    /// this returns.
    pub fn save(&self, active: Option<&TableBinding>, begin: impl FnOnce()) -> Vec<SavedTable> {
        begin();
        // A table that is bound or released from here on is in one of both, and later changes are logged.
        let (images, waiting) = self.store.maintain(|kind, loaded| {
            let loaded: Vec<&TableImage> = loaded.collect();
            let of_active = active.into_iter().flat_map(TableBinding::objects);
            let images = of_active.chain(loaded.into_iter().rev());
            let has_effect = |image: &&TableImage| kind.lasting.as_ref().is_none_or(|one| one.has_effect(image));
            let waiting: Vec<SavedTable> = kind.lasting.iter().flat_map(|one| one.saved().cloned()).collect();
            (images.filter(has_effect).cloned().collect::<Vec<_>>(), waiting)
        });
        let mut tables: Vec<SavedTable> = Vec::new();
        for (key, image, position) in lasting::dynamic_tables(&images) {
            let _turn = self.turns.take(&key.name);
            tables.extend(image.current(position).map(|(entries, expiry)| SavedTable::of(key, entries, expiry)));
        }
        tables.extend(waiting);
        tables
    }

    /// What could not be restored since the previous call.
    pub fn take_notices(&self) -> Vec<String> {
        self.store
            .maintain(|kind, _| kind.lasting.as_mut().map(|one| std::mem::take(&mut one.notices)).unwrap_or_default())
    }

    fn demand_snapshot(&self) {
        if let Some(log) = self.log.get() {
            log.demand_snapshot();
        }
    }

    /// Number of entries that a table of this name refused so far because it was full.
    pub fn refused_by(&self, name: &str) -> u64 {
        self.refused().get(name).copied().unwrap_or(0)
    }

    /// Counts entries that a caller did not add, because the table is full.
    pub(super) fn count_refused(&self, name: &str, entries: u64) {
        if entries > 0 {
            *self.refused().entry(name.to_owned()).or_default() += entries;
        }
    }

    fn refused(&self) -> MutexGuard<'_, BTreeMap<String, u64>> {
        lock(&self.refused)
    }

    /// The images of all loaded generations that have a table, each once, with the position of the table.
    pub(super) fn all_images_of(&self, name: &str) -> Vec<(TableImage, usize)> {
        self.store.with_objects(|loaded| images_of(loaded, name))
    }

    /// Waits for earlier changes of a table.
    pub(super) fn turn(&self, name: &str) -> Turn<'_> {
        let turn = self.turns.take(name);
        self.expire_overdue(name);
        turn
    }

    /// Waits for earlier changes of a table, but not for long ones.
    pub(super) fn turn_soon(&self, name: &str, patience: &mut Patience) -> Option<Turn<'_>> {
        let turn = patience.wait(|until| self.turns.take_until(name, until))?;
        self.expire_overdue(name);
        Some(turn)
    }

    /// Reads a table of the generation `active`. Changes of the image wait meanwhile.
    ///
    /// # Errors
    /// There is no such table.
    pub fn read<R>(
        &self,
        active: &TableBinding,
        name: &str,
        work: impl FnOnce(&TableView<'_>) -> R,
    ) -> Result<R, TableError> {
        let image = active.objects().find(|image| image.position(name).is_some());
        let Some(image) = image else { return Err(no_table(active.objects(), name)) };
        let set = image.position(name).expect("the image has the table");
        let ((family, kind), size) = (image.table_type(set), image.bounds(set).map(|bounds| bounds.size));
        let counters = image.counters().map(|counters| &**counters);
        Ok(image.with_expiry(set, |live, expiry| work(&TableView { live, expiry, counters, set, family, kind, size })))
    }

    /// Number of entries that were removed from a table with counters so far, in the image of a generation. Never
    /// waits. `None`: there is no such table, or it has no counters.
    pub fn removed_so_far(&self, binding: &TableBinding, name: &str) -> Option<u64> {
        let image = binding.objects().find(|image| image.position(name).is_some())?;
        image.counters().map(|counters| counters.removed_so_far())
    }

    /// Whether each prefix overlaps an entry of a table of a generation. The outer `None`: others change the table for
    /// long. The inner one: the generation has no image of it.
    pub(super) fn overlapping(
        &self,
        binding: &TableBinding,
        name: &str,
        prefixes: &[(IpAddr, u8)],
        patience: &mut Patience,
    ) -> Option<Option<Vec<bool>>> {
        let mut found = binding.objects().filter_map(|image| Some((image, image.position(name)?)));
        let Some((image, set)) = found.next() else { return Some(None) };
        let mut image = patience.wait(|until| image.begin_until(until))?;
        let live = image.live();
        Some(Some(prefixes.iter().map(|&(addr, len)| live.overlaps_prefix(set, addr, len)).collect()))
    }

    /// Frees memory that workers have released. Does not wait for a change. To be called every few seconds, because a
    /// table that changes no more keeps it otherwise.
    pub fn free(&self) {
        let images: Vec<TableImage> = self.store.with_objects(|loaded| loaded.cloned().collect());
        images.iter().for_each(TableImage::free);
    }
}

/// A table of a generation.
pub struct TableView<'a> {
    live: &'a LiveTable,
    expiry: &'a Expiry,
    counters: Option<&'a EntryCounters>,
    set: usize,
    family: Family,
    kind: Kind,
    size: Option<usize>,
}

impl<'a> TableView<'a> {
    /// The entries in the order of their addresses, shorter prefixes first.
    pub fn entries(&self) -> impl Iterator<Item = LiveEntry<'a>> {
        self.live.entries(self.set)
    }

    /// Number of entries.
    pub fn count(&self) -> usize {
        self.live.count(self.set)
    }

    /// The longest prefix that contains an address.
    pub fn longest(&self, addr: IpAddr) -> Option<LiveEntry<'a>> {
        self.live.longest(self.set, addr)
    }

    /// Whether its entries count their packets.
    pub fn has_counters(&self) -> bool {
        self.counters.is_some()
    }

    /// The counts of an entry at the time `now` ([`EntryCounters::read`]). `None` if the table has no counters.
    pub fn counts(&self, entry: &LiveEntry<'_>, now: u32) -> Option<EntryCounts> {
        Some(self.counters?.read(entry.number, now))
    }

    /// Adds what a card has counted for an entry until the time `now`. Without counters, nothing is added.
    pub fn count_beside(&self, entry: &LiveEntry<'_>, counts: EntryCounts, now: u32) {
        if let Some(counters) = self.counters {
            counters.count_beside(entry.number, counts, now);
        }
    }

    /// Where the prefixes of another table overlap its entries.
    pub fn overlap(&self, other: &Table) -> Option<Overlap> {
        self.live.overlap(self.set, other)
    }

    /// The entries for which there is room: the first ones, and those that are there.
    pub(super) fn fitting(&self, entries: &[(IpAddr, u8)]) -> Vec<(IpAddr, u8)> {
        let room = self.size.map_or(usize::MAX, |size| size.saturating_sub(self.count()));
        let mut new = HashSet::new();
        let mut fits = |&(addr, len): &(IpAddr, u8)| {
            self.live.holds(self.set, addr, len)
                || new.contains(&(addr, len))
                || new.len() < room && new.insert((addr, len))
        };
        entries.iter().filter(|entry| fits(entry)).copied().collect()
    }

    /// Nanoseconds from `now_ns` until an entry expires. `None`: it never does.
    pub fn left_ns(&self, entry: &LiveEntry<'_>, now_ns: u64) -> Option<u64> {
        let until = self.expiry.until(entry.addr, entry.len)?;
        Some((until * TICK_NS).saturating_sub(now_ns))
    }

    /// The family of its entries.
    pub fn family(&self) -> Family {
        self.family
    }

    /// Maximum number of entries, if the table is dynamic.
    pub fn size(&self) -> Option<usize> {
        self.size
    }

    /// Whether its entries have labels.
    pub fn kind(&self) -> Kind {
        self.kind
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[path = "table_store/tests.rs"]
mod tests;
