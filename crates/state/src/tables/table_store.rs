//! Binds generations to images of tables, and changes tables by name.

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use weir_abi::Family;
use weir_tables::live::{LiveEntry, LiveError, LiveTable, Readers};
use weir_tables::{Kind, Overlap, Table};

use super::change::{self, Applied, Order, TableChange, Timing, Visibility};
use super::expiry::{Expiry, tick};
use super::fit::{Checked, can_take, checked, images_of, no_table};
use super::image::{Continued, ImageDeclared, Member, TableImage};
use super::lasting::{self, Lasting, SavedTable};
use super::published::{ImageProblem, ReadBy};
use super::table_error::TableError;
use super::wheel::TICK_NS;
use crate::StateError;
use crate::saved::log::ChangeLog;
use crate::saved::record::TableKey;
use crate::store::{Binding, Declared, Request, StateKind, Store};

/// Limit on the entries of an image that expire before changes may pass.
pub const EXPIRE_BATCH: usize = 512;
/// How often expiry gives way to changes before it goes on.
const GIVE_WAY_MAX: usize = 1000;

/// Images of tables as a kind of shared state.
pub struct TableImages {
    readers: Readers,
    read_by: ReadBy,
    /// What lasts when this process ends, if anything does.
    lasting: Option<Lasting>,
}

/// The images that a generation uses.
pub type TableBinding = Binding<TableImages>;

impl StateKind for TableImages {
    type Declaration = ImageDeclared;
    type Object = TableImage;

    fn fits(declaration: &ImageDeclared, object: &TableImage) -> bool {
        object.fits(declaration)
    }

    fn bind(
        &mut self,
        requests: Vec<Request<'_, Self>>,
        loaded: &mut dyn Iterator<Item = &TableImage>,
        now_ns: u64,
    ) -> Result<Vec<TableImage>, StateError> {
        let loaded: Vec<&TableImage> = loaded.collect();
        let image = |Request { declaration, earlier }: Request<'_, Self>| match earlier.first() {
            Some(&earlier) => Ok(earlier.for_declaration(declaration)),
            None => {
                // Tables continue also if the rules put them into other images than before.
                let of_loaded = |member: &Member| {
                    let newest_first = loaded.iter().rev();
                    let mut of = newest_first.filter_map(|image| Some((image, image.continued_by(member)?)));
                    of.next().and_then(|(image, position)| image.continued(position, member))
                };
                self.image(declaration, of_loaded, now_ns)
            }
        };
        let images = requests.into_iter().map(image).collect::<Result<Vec<TableImage>, StateError>>()?;
        if let Some(lasting) = &mut self.lasting {
            images.iter().for_each(|image| lasting.bind(image));
        }
        Ok(images)
    }

    /// The last owner frees the image.
    fn release(&mut self, image: &TableImage) {
        if let Some(lasting) = &mut self.lasting {
            lasting.release(image);
        }
    }
}

impl TableImages {
    /// Makes an image. Its tables continue as loaded ones, or as those that wait for a generation.
    fn image(
        &mut self,
        declaration: ImageDeclared,
        of_loaded: impl Fn(&Member) -> Option<Continued>,
        now_ns: u64,
    ) -> Result<TableImage, StateError> {
        let names = declaration.members.iter().map(|member| member.name.as_str()).collect::<Vec<_>>().join("+");
        let make = |declaration: ImageDeclared, continued: Vec<Option<Continued>>| {
            TableImage::new(&self.readers, self.read_by, declaration, continued, now_ns)
        };
        let waiting = |member: &Member| self.lasting.as_mut().and_then(|lasting| lasting.continued_by(member));
        let waiting: Vec<Option<Continued>> = declaration.members.iter().map(waiting).collect();
        let loaded = |declaration: &ImageDeclared| declaration.members.iter().map(&of_loaded).collect();
        let made = match waiting.iter().any(Option::is_some) {
            false => make(declaration.clone(), loaded(&declaration)),
            true => {
                let current = declaration.members.iter().zip(waiting);
                let current = current.map(|(member, waiting)| of_loaded(member).or(waiting)).collect();
                make(declaration.clone(), current).or_else(|problem| {
                    // A policy that starts alone is not refused.
                    let made = make(declaration.clone(), loaded(&declaration))?;
                    if let Some(lasting) = &mut self.lasting {
                        lasting.notices.push(format!("table {names}: the saved entries are lost: {problem}"));
                    }
                    Ok(made)
                })
            }
        };
        made.map_err(|problem| match problem {
            ImageProblem::Build(error) => StateError::Table { name: names, error },
            ImageProblem::Memory(source) => StateError::TableMemory { name: names, source },
        })
    }
}

/// The result of a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// Number of entries that were added, removed or got another label.
    pub changed: usize,
    /// Number of entries that an update found in the table, and whose timeout begins anew.
    pub refreshed: usize,
    /// Number of entries now.
    pub entries: usize,
    /// Number of images of other generations that cannot hold the change and do not have it.
    pub left_out: usize,
}

/// The tables of all generations.
pub struct TableStore {
    readers: Readers,
    store: Store<TableImages>,
    /// Held during a change, so that all images with a table see the same order of changes.
    changing: Mutex<()>,
    /// Number of changes that wait for `changing`.
    waiting: AtomicUsize,
    /// Whether some entry may have a deadline.
    can_expire: AtomicBool,
    /// Number of entries that full tables refused, by the name of the table.
    refused: Mutex<BTreeMap<String, u64>>,
    /// Where changes of dynamic tables are written.
    log: OnceLock<Arc<ChangeLog>>,
}

impl Default for TableStore {
    fn default() -> Self {
        Self::for_threads()
    }
}

impl TableStore {
    /// Tables that threads of this process read.
    pub fn for_threads() -> Self {
        Self::new(ReadBy::Threads)
    }

    /// Tables that programs in the kernel read. A thread must announce when programs have ended
    /// ([`weir_tables::live::Reader::pass`]).
    pub fn for_kernel() -> Self {
        Self::new(ReadBy::Kernel)
    }

    fn new(read_by: ReadBy) -> Self {
        let readers = Readers::new();
        let store = Store::new(TableImages { readers: readers.clone(), read_by, lasting: None });
        let (changing, waiting, can_expire) = (Mutex::default(), AtomicUsize::new(0), AtomicBool::new(false));
        TableStore { readers, store, changing, waiting, can_expire, refused: Mutex::default(), log: OnceLock::new() }
    }

    /// The registry of the workers that read tables.
    pub fn readers(&self) -> &Readers {
        &self.readers
    }

    /// Binds a generation to the images that it declares. Timeouts of the entries that it declares begin at `now_ns`.
    /// Changes wait meanwhile.
    ///
    /// # Errors
    /// A layout cannot hold the entries that a table continues with.
    pub fn bind(&self, declared: Vec<Declared<ImageDeclared>>, now_ns: u64) -> Result<Arc<TableBinding>, StateError> {
        let _in_order = self.in_order();
        let binding = self.store.bind(declared, now_ns)?;
        if binding.objects().any(TableImage::can_expire) {
            self.can_expire.store(true, Ordering::Relaxed);
        }
        Ok(binding)
    }

    /// Changes a table of the generation `active`, and the tables of the same name and type of all loaded generations.
    /// Images of other generations that cannot hold the change are left out and counted. Timeouts begin at `now_ns`, in
    /// the time of [`TableStore::expire`].
    ///
    /// # Errors
    /// There is no such table, or the entries do not fit it. Nothing has changed then, except for
    /// [`TableError::Partial`].
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
    /// The same as [`TableStore::change`].
    pub fn change_by(
        &self,
        active: &TableBinding,
        name: &str,
        (change, visibility): (TableChange<'_>, Visibility),
        now_ns: u64,
    ) -> Result<Changed, TableError> {
        let _in_order = self.in_order();
        let Checked { own, table_type, timeout_ms } = checked(&active.objects().collect::<Vec<_>>(), name, change)
            .inspect_err(|error| {
                if let TableError::Full { more, .. } = error {
                    *self.refused().entry(name.to_owned()).or_default() += *more as u64;
                }
            })?;
        let (first, set) = own.first().expect("a table that was checked has an image");
        let order = Order { change, visibility, timing: Timing::new(now_ns, timeout_ms) };
        let others = self.store.maintain(|_, objects| images_of(objects, name));
        let mut others: Vec<(TableImage, usize)> = others
            .into_iter()
            .filter(|(image, set)| {
                !own.iter().any(|(known, _)| known.is(image)) && image.table_type(*set) == table_type
            })
            .collect();
        let all = others.len();
        others.retain(|(image, set)| can_take(image, *set, name, change).is_ok());
        let mut left_out = all - others.len();
        if order.timing.until.is_some() {
            self.can_expire.store(true, Ordering::Relaxed);
        }
        let apply = |(image, set): &(TableImage, usize)| {
            image.with_expiry(*set, |live: &mut LiveTable, expiry: &mut Expiry| {
                change::apply((live, *set), expiry, order)
            })
        };
        let mut applied = None;
        for image in &own {
            let problem = |error: LiveError| match (&error, applied.is_none()) {
                (LiveError::Stopped { .. }, _) | (_, false) => TableError::Partial { name: name.to_owned(), error },
                (_, true) => TableError::Refused { name: name.to_owned(), error },
            };
            let in_image = apply(image).map_err(problem).inspect_err(|_| self.demand_snapshot())?;
            applied.get_or_insert(in_image);
        }
        left_out += others.iter().filter(|image| apply(image).is_err()).count();
        if let Some(log) = self.log.get().filter(|_| first.bounds(*set).is_some()) {
            let (family, kind) = table_type;
            lasting::log_change(log, &TableKey::new(name, family, kind), (first, *set), change);
        }
        let entries = self.read(active, name, |table| table.count())?;
        let Applied { changed, refreshed } = applied.unwrap_or_default();
        Ok(Changed { changed, refreshed, entries, left_out })
    }

    /// Makes dynamic tables last: their changes go to `log`, and `waiting` tables continue in the first policy that
    /// declares them. A table whose last generation is gone waits for the next one. To be called once, before
    /// generations are bound.
    pub fn make_last(&self, log: &Arc<ChangeLog>, waiting: Vec<SavedTable>) {
        let _in_order = self.in_order();
        if self.log.set(log.clone()).is_ok() {
            self.store.maintain(|kind, _| kind.lasting = Some(Lasting::new(log.clone(), waiting)));
        }
    }

    /// The dynamic tables, as the generation `active` has them if it does, and the tables that wait. `begin` runs at the
    /// time of which this is the state: changes before it are included, later ones are not. Changes wait meanwhile.
    pub fn save(&self, active: Option<&TableBinding>, begin: impl FnOnce()) -> Vec<SavedTable> {
        let _in_order = self.in_order();
        begin();
        self.store.maintain(|kind, loaded| {
            let loaded: Vec<&TableImage> = loaded.collect();
            let of_active = active.into_iter().flat_map(Binding::objects);
            let mut tables = lasting::saved_tables(of_active.chain(loaded.into_iter().rev()));
            tables.extend(kind.lasting.iter().flat_map(|lasting| lasting.waiting().iter().cloned()));
            tables
        })
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
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether some entry may have a deadline. If not, [`TableStore::expire`] need not be called.
    pub fn can_expire(&self) -> bool {
        self.can_expire.load(Ordering::Relaxed)
    }

    /// Removes the entries that have expired at `now_ns`, from all images of all generations. An entry that was added
    /// at `t` with a timeout `T` is gone when this returns for the first time with `now_ns / TICK_NS` at or after
    /// `(t + T) / TICK_NS`, rounded up. The work grows with the entries that expire, not with those that are there.
    /// Changes wait for at most [`EXPIRE_BATCH`] entries of an image.
    pub fn expire(&self, now_ns: u64) {
        if !self.can_expire() {
            return;
        }
        let images = {
            let _in_order = self.in_order();
            let images = self.store.maintain(|_, objects| distinct(objects));
            // A change or a binding sets it again.
            self.can_expire.store(images.iter().any(TableImage::can_expire), Ordering::Relaxed);
            images
        };
        for image in &images {
            while !self.expire_some(image, now_ns) {
                self.let_changes_pass();
            }
        }
    }

    fn expire_some(&self, image: &TableImage, now_ns: u64) -> bool {
        let _in_order = self.in_order();
        image.expire(tick(now_ns), EXPIRE_BATCH)
    }

    /// Waits until changes that wait for the lock have it, for a short time at most.
    fn let_changes_pass(&self) {
        for _ in 0..GIVE_WAY_MAX {
            if self.waiting.load(Ordering::Relaxed) == 0 {
                return;
            }
            std::thread::yield_now();
        }
    }

    /// The images of all loaded generations that have a table, each once, with the position of the table.
    pub(super) fn all_images_of(&self, name: &str) -> Vec<(TableImage, usize)> {
        self.store.maintain(|_, objects| images_of(objects, name))
    }

    /// Waits for earlier changes.
    pub(super) fn in_order(&self) -> MutexGuard<'_, ()> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let guard = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        guard
    }

    /// Reads a table of the generation `active`. Changes wait meanwhile.
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
        Ok(image.with_expiry(set, |live, expiry| work(&TableView { live, expiry, set, family, kind, size })))
    }

    /// Frees memory that workers have released. Does not wait for a change. To be called every few seconds, because a
    /// table that changes no more keeps it otherwise.
    pub fn free(&self) {
        let images: Vec<TableImage> = self.store.maintain(|_, objects| objects.cloned().collect());
        images.iter().for_each(TableImage::free);
    }
}

/// A table of a generation.
pub struct TableView<'a> {
    live: &'a LiveTable,
    expiry: &'a Expiry,
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

/// Images, each once.
fn distinct(images: &mut dyn Iterator<Item = &TableImage>) -> Vec<TableImage> {
    let mut found: Vec<TableImage> = Vec::new();
    for image in images {
        if !found.iter().any(|known| known.is(image)) {
            found.push(image.clone());
        }
    }
    found
}
