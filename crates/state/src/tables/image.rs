//! The image of one table or of several fused sets, which generations share.

use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use weir_abi::{EntryCounts, Family, Layout};
use weir_tables::live::{LiveError, LiveImage, LiveTable, PublishedImage, Readers};
use weir_tables::{Entries, Image, Kind, Table};

use crate::kernel_map::cpus;

use super::change::{self, Applied, Order, Timing};
use super::entry_counters::EntryCounters;
use super::expiry::Expiry;
use super::kernel::{self, HALF_BYTES_MAX};
use super::published::{ImageProblem, Published, ReadBy, publish};

/// Ticks until entries that could not be removed are tried again.
const RETRY_TICKS: u64 = 10;
/// Pause before a lock is tried again.
const LOCK_STEP: Duration = Duration::from_micros(200);

/// A table of an image, as the policy was loaded with it.
#[derive(Clone)]
pub struct Member {
    /// The name of the table.
    pub name: String,
    /// Its entries in the policy and its lists.
    pub table: Arc<Table>,
    /// The bounds of a `dynamic` table.
    pub dynamic: Option<DynamicBounds>,
}

/// The bounds of a table that is filled while packets pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DynamicBounds {
    /// Maximum number of entries.
    pub size: usize,
    /// Timeout of entries that have no other, ms. `None`: they never expire.
    pub timeout_ms: Option<u64>,
}

impl Member {
    /// Whether this declaration continues with the entries of another. A dynamic table keeps its entries whatever the
    /// new policy fills it with. Other tables begin anew if their lists have changed.
    pub(super) fn continues(&self, other: &Member) -> bool {
        let (own, others) = (&*self.table, &*other.table);
        self.name == other.name
            && match (self.dynamic, other.dynamic) {
                (Some(_), Some(_)) => {
                    own.family() == others.family() && own.kind() == others.kind() && own.labels() == others.labels()
                }
                (None, None) => Arc::ptr_eq(&self.table, &other.table) || own == others,
                _ => false,
            }
    }
}

/// An image that a policy declares.
#[derive(Clone)]
pub struct ImageDeclared {
    /// The tables in it, in the order of their bits if they are fused.
    pub members: Vec<Member>,
    /// The layout that the code looks up.
    pub layout: Layout,
    /// The image of the entries. Its labels are numbers if they are counted ([`Table::build_numbered`]).
    pub image: Arc<Image>,
    /// Whether each entry counts its packets.
    pub counted: bool,
}

/// An image as one generation declares it. Generations may share the image.
#[derive(Clone)]
pub struct TableImage {
    members: Arc<[Member]>,
    shared: Arc<Shared>,
}

struct Shared {
    layout: Layout,
    /// The counters of the entries, if there are any. The image then has one table.
    counters: Option<Arc<EntryCounters>>,
    published: Published,
    contents: Mutex<Contents>,
    /// The deadlines of each table. To be locked after `contents`.
    expiry: Mutex<Vec<Expiry>>,
    /// Whether entries of each table may have deadlines, to be read without a lock.
    deadlines: Box<[AtomicBool]>,
    /// The entries of each table in the policy and its lists, as they were read last.
    listed: Mutex<Vec<Arc<Table>>>,
}

/// What a table of a new image continues with.
pub(super) struct Continued {
    /// Its entries, if they are other than those that were declared.
    pub entries: Option<Arc<Table>>,
    /// The deadlines of the entries.
    pub expiry: Expiry,
}

/// The writer's side of an image.
enum Contents {
    /// The tables have not changed. Boxed, because it is large.
    Constant(Box<PublishedImage>, Vec<Arc<Table>>),
    /// The tables can change.
    Live(Box<LiveTable>),
    /// Only while [`Contents::live`] runs.
    Taken,
}

impl Contents {
    /// The entries of a table; `None` if they were lost by a panic.
    fn table(&self, position: usize) -> Option<Arc<Table>> {
        match self {
            Contents::Live(live) => Some(Arc::new(live.contents(position))),
            Contents::Constant(_, tables) => Some(tables[position].clone()),
            Contents::Taken => None,
        }
    }

    /// The table with its writer.
    fn live(&mut self, shared: &Shared) -> &mut LiveTable {
        if let Contents::Constant(..) = self {
            let Contents::Constant(published, tables) = std::mem::replace(self, Contents::Taken) else {
                unreachable!()
            };
            let tables: Vec<&Table> = tables.iter().map(|table| &**table).collect();
            let live = match &shared.counters {
                Some(counters) => LiveTable::take_over_numbered(*published, tables[0], shared.layout, counters.clone()),
                None => LiveTable::take_over(*published, &tables, shared.layout),
            };
            *self = Contents::Live(Box::new(live));
        }
        match self {
            Contents::Live(live) => live,
            Contents::Constant(..) | Contents::Taken => panic!("the table is live now"),
        }
    }
}

/// Number of entries that dynamic tables may get.
fn size_of_tables(members: &[Member]) -> usize {
    members.iter().filter_map(|member| member.dynamic).map(|bounds| bounds.size).sum()
}

/// Number of entries that a table with counters has or may get.
fn entries_of(declared: &ImageDeclared) -> usize {
    room_for(&declared.members[0].table, size_of_tables(&declared.members))
}

/// Number of entries for which there are counters in the kernel: half as many again as there are, and `size`.
fn room_for(table: &Table, size: usize) -> usize {
    let entries = table.facts().entries;
    size.max(entries + entries / 2)
}

/// The counters of a table's entries, where the published image is read.
fn counters(published: &Published, table: &Table, size: usize) -> Result<Arc<EntryCounters>, ImageProblem> {
    let counters = match published {
        Published::Pointer(_) => EntryCounters::for_workers(table.kind()),
        Published::Map(_) => {
            cpus().and_then(|cpus| EntryCounters::for_kernel(table.kind(), room_for(table, size), cpus))
        }
        Published::Constant => Err(io::Error::other("the image is too large for counters in the kernel")),
    };
    let counters = counters.map_err(ImageProblem::Memory)?;
    counters.begin_with(table.label_ids());
    Ok(Arc::new(counters))
}

impl TableImage {
    /// Publishes the image of a declaration. `continued` says what its tables continue with. The others begin with
    /// their declaration at `now_ns`.
    ///
    /// # Errors
    /// The layout cannot hold the current entries, or the kernel refuses the memory. Or the image is too large to
    /// change in the kernel, although a table is dynamic or has other entries than the policy declares.
    pub(super) fn new(
        readers: &Readers,
        read_by: ReadBy,
        declared: ImageDeclared,
        continued: Vec<Option<Continued>>,
        now_ns: u64,
    ) -> Result<Self, ImageProblem> {
        let ImageDeclared { members, layout, image, counted } = declared;
        let has_other = |one: &Option<Continued>| one.as_ref().is_some_and(|one| one.entries.is_some());
        let is_as_declared = !continued.iter().any(has_other);
        let begun = |(member, continued): (&Member, Option<Continued>)| match continued {
            Some(Continued { entries, expiry }) => (entries.unwrap_or_else(|| member.table.clone()), expiry),
            None => {
                let timeout_ms = member.dynamic.and_then(|bounds| bounds.timeout_ms);
                (member.table.clone(), Expiry::of(&member.table, Timing::new(now_ns, timeout_ms)))
            }
        };
        let (tables, expiry): (Vec<Arc<Table>>, Vec<Expiry>) = members.iter().zip(continued).map(begun).unzip();
        let image = match tables.as_slice() {
            _ if is_as_declared => image,
            [one] if counted => Arc::new(one.build_numbered(layout)?),
            [one] => Arc::new(one.build(layout)?),
            fused => Arc::new(weir_tables::fused(&fused.iter().map(|table| &**table).collect::<Vec<_>>())?),
        };
        let is_dynamic = members.iter().any(|member| member.dynamic.is_some());
        let changes = !is_as_declared || is_dynamic || expiry.iter().any(|expiry| !expiry.is_empty());
        let size = size_of_tables(&members);
        let (published, image) = publish(readers, read_by, layout, image, (size, changes))?;
        let counters = counted.then(|| counters(&published, &tables[0], size)).transpose()?;
        let contents = Mutex::new(Contents::Constant(Box::new(image), tables));
        let deadlines = expiry.iter().map(|expiry| AtomicBool::new(!expiry.is_empty())).collect();
        let expiry = Mutex::new(expiry);
        let listed = Mutex::new(members.iter().map(|member| member.table.clone()).collect());
        let shared = Arc::new(Shared { layout, counters, published, contents, expiry, deadlines, listed });
        Ok(TableImage { members: members.into(), shared })
    }

    /// Whether the table can change.
    pub(super) fn can_change(&self) -> bool {
        !matches!(self.shared.published, Published::Constant)
    }

    /// Whether a declaration has the same tables in the same layout, and continues with their entries.
    pub(super) fn fits(&self, declared: &ImageDeclared) -> bool {
        self.shared.layout == declared.layout
            && self.shared.counters.is_some() == declared.counted
            && self.members.len() == declared.members.len()
            && declared.members.iter().enumerate().all(|(position, new)| self.is_continued(position, new))
            && self.has_room_for(declared)
    }

    /// Whether the memory is as large as a new image of the declaration would get, and not nearly full.
    fn has_room_for(&self, declared: &ImageDeclared) -> bool {
        let Published::Map(map) = &self.shared.published else { return true };
        let wanted = kernel::half_bytes(
            declared.layout,
            declared.image.as_bytes().len(),
            size_of_tables(&declared.members),
            HALF_BYTES_MAX,
        );
        let used = match &*self.contents() {
            Contents::Live(live) => live.image_bytes(),
            Contents::Constant(..) | Contents::Taken => 0,
        };
        let numbers = |counters: &Arc<EntryCounters>| counters.has_room_for(entries_of(declared));
        self.shared.counters.as_ref().is_none_or(numbers)
            && wanted.is_none_or(|wanted| wanted <= map.bytes())
            && used <= map.bytes() / 8 * 7
    }

    /// This image for a later declaration that fits.
    pub(super) fn for_declaration(&self, declared: ImageDeclared) -> Self {
        TableImage { members: declared.members.into(), shared: self.shared.clone() }
    }

    /// Position of the table whose entries `member` continues with.
    pub(super) fn continued_by(&self, member: &Member) -> Option<usize> {
        (0..self.members.len()).find(|&position| self.is_continued(position, member))
    }

    /// Whether a later declaration continues with the entries of a table. Its labels must have the same ids, also if
    /// the list was read again.
    fn is_continued(&self, position: usize, later: &Member) -> bool {
        let own = &self.members[position];
        let listed = Member { table: self.listed(position), ..own.clone() };
        later.continues(&listed) && later.table.labels() == own.table.labels()
    }

    /// The entries in the policy and its lists, as they were read last.
    pub(super) fn listed(&self, position: usize) -> Arc<Table> {
        self.all_listed()[position].clone()
    }

    /// The lists of a table were read again. A later declaration with these entries continues with the table.
    pub(super) fn set_listed(&self, position: usize, list: &Arc<Table>) {
        self.all_listed()[position] = list.clone();
    }

    fn all_listed(&self) -> MutexGuard<'_, Vec<Arc<Table>>> {
        self.shared.listed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The entries of a table, if they are other than those that `member` declares, and their deadlines.
    pub(super) fn continued(&self, position: usize, member: &Member) -> Option<Continued> {
        let (current, expiry) = self.current(position)?;
        Some(Continued { entries: (*current != *member.table).then_some(current), expiry })
    }

    /// The entries of a table and their deadlines; `None` if they were lost by a panic.
    pub(super) fn current(&self, position: usize) -> Option<(Arc<Table>, Expiry)> {
        let contents = self.contents();
        Some((contents.table(position)?, self.expiry()[position].clone()))
    }

    /// The entries of a table; `None` if they were lost by a panic.
    pub(super) fn table(&self, position: usize) -> Option<Arc<Table>> {
        self.contents().table(position)
    }

    /// The tables in the image, as the generation declares them.
    pub(super) fn members(&self) -> &[Member] {
        &self.members
    }

    /// The image for readers.
    pub fn published(&self) -> Published {
        self.shared.published.clone()
    }

    /// The counters of its entries, if there are any.
    pub fn counters(&self) -> Option<&Arc<EntryCounters>> {
        self.shared.counters.as_ref()
    }

    /// Visits the entries that were hit, in the order of their addresses: address, length and counts. `now` is as in
    /// [`EntryCounters::read`].
    pub fn hits(&self, now: u32, visit: &mut dyn FnMut(IpAddr, u8, EntryCounts)) {
        let Some(counters) = self.counters() else { return };
        self.with(|live| {
            for entry in live.entries(0) {
                let counts = counters.read(entry.number, now);
                if counts.packets > 0 {
                    visit(entry.addr, entry.len, counts);
                }
            }
        });
    }

    /// The handle for threads of this process, if they read the image.
    pub fn handle(&self) -> Option<LiveImage> {
        match &self.shared.published {
            Published::Pointer(handle) => Some(handle.clone()),
            Published::Map(_) | Published::Constant => None,
        }
    }

    /// Position of a table in the image.
    pub(super) fn position(&self, table: &str) -> Option<usize> {
        self.members.iter().position(|member| member.name == table)
    }

    /// Names of the tables in the image.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.members.iter().map(|member| member.name.as_str())
    }

    /// Family and kind of a table.
    pub(super) fn table_type(&self, position: usize) -> (Family, Kind) {
        (self.members[position].table.family(), self.members[position].table.kind())
    }

    /// The bounds of a dynamic table.
    pub(super) fn bounds(&self, position: usize) -> Option<DynamicBounds> {
        self.members[position].dynamic
    }

    /// Runs `work` on the table with its writer. Other writers wait.
    pub(super) fn with<R>(&self, work: impl FnOnce(&mut LiveTable) -> R) -> R {
        work(self.contents().live(&self.shared))
    }

    /// Runs `work` on the table with its writer and on the deadlines of a table in it. Other writers wait.
    pub(super) fn with_expiry<R>(&self, position: usize, work: impl FnOnce(&mut LiveTable, &mut Expiry) -> R) -> R {
        self.with(|live| {
            let expiry = &mut self.expiry()[position];
            let result = work(live, expiry);
            self.note_deadlines(position, expiry);
            result
        })
    }

    /// Makes a change of a table.
    ///
    /// # Errors
    /// The errors of [`LiveTable`]. A part of the change may have been made; its entries have their deadlines.
    pub(super) fn apply(&self, position: usize, order: Order<'_>) -> Result<Applied, LiveError> {
        self.with_expiry(position, |live, expiry| change::apply((live, position), expiry, order))
    }

    /// Whether entries have deadlines. Does not wait for changes.
    pub(super) fn can_expire(&self) -> bool {
        (0..self.members.len()).any(|position| self.has_deadlines(position))
    }

    /// Whether entries of a table have deadlines.
    pub(super) fn has_deadlines(&self, position: usize) -> bool {
        self.shared.deadlines[position].load(Ordering::SeqCst)
    }

    fn note_deadlines(&self, position: usize, expiry: &Expiry) {
        self.shared.deadlines[position].store(!expiry.is_empty(), Ordering::SeqCst);
    }

    /// Begins to use the image. Waits for other writers and readers.
    pub(super) fn begin(&self) -> InUse<'_> {
        InUse { image: self, contents: self.contents() }
    }

    /// Begins to use the image, if the others release it until then.
    pub(super) fn begin_until(&self, until: Instant) -> Option<InUse<'_>> {
        loop {
            match self.shared.contents.try_lock() {
                Ok(contents) => return Some(InUse { image: self, contents }),
                Err(TryLockError::Poisoned(lost)) => {
                    return Some(InUse { image: self, contents: lost.into_inner() });
                }
                Err(TryLockError::WouldBlock) if Instant::now() >= until => return None,
                Err(TryLockError::WouldBlock) => thread::sleep(LOCK_STEP),
            }
        }
    }

    /// Checks that the layout can hold the entries of a table.
    pub(super) fn check(&self, position: usize, table: &Table) -> Result<(), LiveError> {
        self.with(|live| live.check(position, table))
    }

    /// Frees memory that readers have released, if the table has changed and no other writer is busy.
    pub(super) fn free(&self) {
        if let Ok(mut contents) = self.shared.contents.try_lock()
            && let Contents::Live(live) = &mut *contents
        {
            live.free();
        }
    }

    /// Whether both are the same image.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    fn expiry(&self) -> MutexGuard<'_, Vec<Expiry>> {
        self.shared.expiry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.shared.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An image in use. Other writers and readers wait.
pub(super) struct InUse<'a> {
    image: &'a TableImage,
    contents: MutexGuard<'a, Contents>,
}

impl InUse<'_> {
    /// The table with its writer.
    pub fn live(&mut self) -> &mut LiveTable {
        self.contents.live(&self.image.shared)
    }

    /// Moves the time of a table on to tick `now` and removes up to about `keys` entries that have expired, or all if a
    /// large part of the table has. Returns whether nothing is left to be done at this tick.
    pub fn expire(&mut self, position: usize, now: u64, keys: usize) -> bool {
        if !self.image.can_change() {
            return true;
        }
        let expiry = &mut self.image.expiry()[position];
        let mut expired = Vec::new();
        let mut done = expiry.step(now, keys, &mut expired);
        // One rebuild is cheaper than many changes in place, unless it has to wait.
        if !done
            && let Contents::Live(live) = &*self.contents
            && !live.rebuild_waits()
            && expiry.has_due(live.rebuilds_from())
        {
            done = expiry.step(now, usize::MAX / 2, &mut expired);
        }
        if !expired.is_empty() {
            let live = self.contents.live(&self.image.shared);
            let mut entries = Entries::new(live.family(), Kind::Set);
            for &(addr, len) in &expired {
                entries.insert_prefix(addr, len, None).expect("it was an entry of the table");
            }
            if live.remove_all(position, &entries.settle()).is_err() {
                // Workers hold too many replaced images for now.
                expired.into_iter().for_each(|entry| expiry.set(entry, Some(now + RETRY_TICKS), now));
            }
        }
        self.image.note_deadlines(position, expiry);
        done
    }
}
