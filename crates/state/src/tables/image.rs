//! The image of one table or of several fused sets, which generations share.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_abi::Layout;
use weir_tables::live::{LiveImage, LiveTable, PublishedImage, Readers};
use weir_tables::{Image, Table};

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
    /// Whether entries expire.
    pub expires: bool,
}

impl Member {
    /// Whether another declaration is of the same state. A dynamic table keeps its entries whatever the new policy
    /// fills it with. Other tables begin anew if their lists have changed.
    fn continues(&self, other: &Member) -> bool {
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
    /// The image of the entries.
    pub image: Arc<Image>,
}

/// An image in use. Clones are the same image.
#[derive(Clone)]
pub struct TableImage(Arc<Shared>);

struct Shared {
    members: Vec<Member>,
    /// Maximum number of entries of a dynamic table.
    size: AtomicUsize,
    layout: Layout,
    handle: LiveImage,
    contents: Mutex<Contents>,
}

/// The writer's side of an image.
enum Contents {
    /// The table has not changed.
    Constant(PublishedImage),
    /// Boxed, because it is much larger.
    Live(Box<LiveTable>),
    /// Only while [`Contents::live`] runs.
    Taken,
}

impl Contents {
    /// The table with its writer.
    fn live(&mut self, members: &[Member], layout: Layout) -> &mut LiveTable {
        if let Contents::Constant(_) = self {
            let Contents::Constant(published) = std::mem::replace(self, Contents::Taken) else { unreachable!() };
            let tables: Vec<&Table> = members.iter().map(|member| &*member.table).collect();
            *self = Contents::Live(Box::new(LiveTable::take_over(published, &tables, layout)));
        }
        match self {
            Contents::Live(live) => live,
            Contents::Constant(_) | Contents::Taken => panic!("the table is live now"),
        }
    }
}

impl TableImage {
    /// Publishes the image of a declaration.
    pub(super) fn new(readers: &Readers, declared: ImageDeclared) -> Self {
        let ImageDeclared { members, layout, image } = declared;
        let published = PublishedImage::new(readers, image);
        let handle = published.handle();
        let size = members.iter().filter_map(|member| member.dynamic).map(|bounds| bounds.size).max().unwrap_or(0);
        let (size, contents) = (AtomicUsize::new(size), Mutex::new(Contents::Constant(published)));
        TableImage(Arc::new(Shared { members, size, layout, handle, contents }))
    }

    /// Whether a declaration has the same tables with the same entries in the policy.
    pub(super) fn fits(&self, declared: &ImageDeclared) -> bool {
        self.0.layout == declared.layout
            && self.0.members.len() == declared.members.len()
            && self.0.members.iter().zip(&declared.members).all(|(own, other)| own.continues(other))
    }

    /// The handle for readers.
    pub fn handle(&self) -> LiveImage {
        self.0.handle.clone()
    }

    /// Position of a table in the image.
    pub(super) fn position(&self, table: &str) -> Option<usize> {
        self.0.members.iter().position(|member| member.name == table)
    }

    /// Names of the tables in the image.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.members.iter().map(|member| member.name.as_str())
    }

    /// A table as the policy was loaded with it.
    pub(super) fn declared(&self, position: usize) -> &Table {
        &self.0.members[position].table
    }

    /// The bounds of a dynamic table, by the newest policy that declares it.
    pub(super) fn bounds(&self, position: usize) -> Option<DynamicBounds> {
        let bounds = self.0.members[position].dynamic?;
        // A dynamic table has an image of its own.
        Some(DynamicBounds { size: self.0.size.load(Ordering::Relaxed), ..bounds })
    }

    /// Takes over the bounds of a later declaration that fits.
    pub(super) fn rebind(&self, declared: &ImageDeclared) {
        if let [Member { dynamic: Some(bounds), .. }] = declared.members.as_slice() {
            self.0.size.store(bounds.size, Ordering::Relaxed);
        }
    }

    /// Runs `work` on the table with its writer. Other writers wait.
    pub(super) fn with<R>(&self, work: impl FnOnce(&mut LiveTable) -> R) -> R {
        work(self.contents().live(&self.0.members, self.0.layout))
    }

    /// Frees memory that readers have released, if the table has changed and no other writer is busy.
    pub(super) fn free(&self) {
        if let Ok(mut contents) = self.0.contents.try_lock()
            && let Contents::Live(live) = &mut *contents
        {
            live.free();
        }
    }

    /// Whether both are the same image.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.0.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
