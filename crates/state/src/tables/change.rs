//! Changes of a table with the deadlines of its entries.

use std::net::IpAddr;

use weir_tables::Table;
use weir_tables::live::{LiveError, LiveTable};

use super::expiry::{Expiry, deadline, prefixes, tick};

/// A change of a table.
#[derive(Clone, Copy, Debug)]
pub enum TableChange<'a> {
    /// Adds entries. An entry that is there gets the new label and keeps its timeout.
    Add {
        /// The entries.
        entries: &'a Table,
        /// The timeout of the entries, ms; 0 for none. `None`: the timeout of the table's declaration, or none.
        timeout_ms: Option<u64>,
    },
    /// Adds entries. An entry that is there gets the new label, and its timeout begins anew.
    Update {
        /// The entries.
        entries: &'a Table,
        /// The timeout of the entries, as for [`TableChange::Add`].
        timeout_ms: Option<u64>,
    },
    /// Removes entries. An entry must be removed as the prefix that it was added as.
    Remove(&'a Table),
    /// Replaces all entries. They get the timeout of the table's declaration, or none.
    Replace(&'a Table),
    /// Removes all entries.
    Flush,
}

impl<'a> TableChange<'a> {
    /// The entries that the table has after the change.
    pub(super) fn added(self) -> Option<&'a Table> {
        match self {
            TableChange::Add { entries, .. } | TableChange::Update { entries, .. } | TableChange::Replace(entries) => {
                Some(entries)
            }
            TableChange::Remove(_) | TableChange::Flush => None,
        }
    }

    /// Whether the previous entries do not matter.
    pub(super) fn is_whole(self) -> bool {
        matches!(self, TableChange::Replace(_) | TableChange::Flush)
    }

    /// The timeout of the entries, ms. `declared_ms` is the timeout of the table's declaration.
    pub(super) fn timeout_ms(self, declared_ms: Option<u64>) -> Option<u64> {
        let own_ms = match self {
            TableChange::Add { timeout_ms, .. } | TableChange::Update { timeout_ms, .. } => timeout_ms,
            TableChange::Remove(_) | TableChange::Replace(_) | TableChange::Flush => None,
        };
        own_ms.or(declared_ms).filter(|&ms| ms > 0)
    }
}

/// Whether packets may see a part of a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Visibility {
    /// One entry after the other takes effect. The change is made in place where the layout allows it.
    #[default]
    Gradual,
    /// All entries take effect at once for lookups in the same image. Images are rebuilt. Where rules look a table up
    /// with several keys, it is in several images, which change one after the other.
    AtOnce,
}

/// The time of a change, and when its entries expire.
#[derive(Clone, Copy)]
pub(super) struct Timing {
    /// The tick of the change.
    now: u64,
    /// The tick at which the entries expire.
    pub until: Option<u64>,
}

impl Timing {
    /// The timing of entries with a timeout.
    pub fn new(now_ns: u64, timeout_ms: Option<u64>) -> Self {
        Timing { now: tick(now_ns), until: timeout_ms.map(|ms| deadline(now_ns, ms)) }
    }

    /// Whether a deadline has passed. Its entry may still be in the table.
    fn has_passed(self, until: u64) -> bool {
        until <= self.now
    }
}

/// What one image does for a change.
#[derive(Clone, Copy)]
pub(super) struct Order<'a> {
    pub change: TableChange<'a>,
    pub visibility: Visibility,
    pub timing: Timing,
}

/// What a change has done.
#[derive(Clone, Copy, Default)]
pub(super) struct Applied {
    /// Number of entries that were added, removed or got another label.
    pub changed: usize,
    /// Number of entries that were there and got another deadline.
    pub refreshed: usize,
}

/// The images of other generations that did not take a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NotTaken {
    /// Number of images that cannot hold the change.
    pub images: usize,
    /// How many of them have a part of it.
    pub partial: usize,
}

impl NotTaken {
    /// What the operator should know; `None` if all images took the change.
    pub fn notice(self) -> Option<String> {
        let NotTaken { images, partial } = self;
        let part = if partial > 0 { format!("; {partial} of them have a part of it") } else { String::new() };
        (images > 0).then(|| {
            format!(
                "{images} images of other loaded generations cannot hold the change and do not have it (layout, labels, \
                 size or room){part}"
            )
        })
    }
}

/// Makes a change of set `set`, whose deadlines are `expiry`.
///
/// # Errors
/// The errors of [`LiveTable`]. A part of the change may have been made; its entries have their deadlines.
pub(super) fn apply(
    (live, set): (&mut LiveTable, usize),
    expiry: &mut Expiry,
    Order { change, visibility, timing }: Order<'_>,
) -> Result<Applied, LiveError> {
    match visibility {
        Visibility::Gradual => apply_with_deadlines((live, set), expiry, change, timing),
        Visibility::AtOnce => live.at_once(|live| apply_with_deadlines((live, set), expiry, change, timing)),
    }
}

fn apply_with_deadlines(
    (live, set): (&mut LiveTable, usize),
    expiry: &mut Expiry,
    change: TableChange<'_>,
    timing: Timing,
) -> Result<Applied, LiveError> {
    let mut refreshed = 0;
    let changed = match change {
        TableChange::Add { entries, .. } => {
            let new = new_entries((live, set), expiry, entries, timing);
            let changed = live.insert_all(set, entries);
            let is_held = |&(addr, len): &(IpAddr, u8)| changed.is_ok() || live.holds(set, addr, len);
            new.into_iter().filter(is_held).for_each(|entry| expiry.set(entry, timing.until, timing.now));
            changed?
        }
        TableChange::Update { entries, .. } => {
            let is_refreshed =
                |&(addr, len): &(IpAddr, u8)| live.holds(set, addr, len) && expiry.until(addr, len) != timing.until;
            let anew = prefixes(entries).filter(is_refreshed).count();
            let changed = live.insert_all(set, entries);
            let is_held = |&(addr, len): &(IpAddr, u8)| changed.is_ok() || live.holds(set, addr, len);
            prefixes(entries).filter(is_held).for_each(|entry| expiry.set(entry, timing.until, timing.now));
            refreshed = anew;
            changed?
        }
        TableChange::Remove(entries) => {
            let changed = live.remove_all(set, entries);
            if !expiry.is_empty() {
                let is_gone = |&(addr, len): &(IpAddr, u8)| !live.holds(set, addr, len);
                prefixes(entries).filter(is_gone).for_each(|entry| expiry.set(entry, None, timing.now));
            }
            changed?
        }
        TableChange::Replace(entries) => {
            let changed = live.replace(set, entries)?;
            *expiry = Expiry::of(entries, timing);
            changed
        }
        TableChange::Flush => {
            let changed = live.remove_set(set)?;
            *expiry = Expiry::default();
            changed
        }
    };
    Ok(Applied { changed, refreshed })
}

/// The entries whose timeout an addition begins: those that the table does not have, or only until the next expiry.
/// Empty if nothing is to be written for them.
fn new_entries(
    (live, set): (&LiveTable, usize),
    expiry: &Expiry,
    entries: &Table,
    timing: Timing,
) -> Vec<(IpAddr, u8)> {
    if expiry.is_empty() && timing.until.is_none() {
        return Vec::new();
    }
    let has_expired = |addr, len| expiry.until(addr, len).is_some_and(|until| timing.has_passed(until));
    let is_new = |&(addr, len): &(IpAddr, u8)| !live.holds(set, addr, len) || has_expired(addr, len);
    prefixes(entries).filter(is_new).collect()
}

impl Expiry {
    /// The deadlines of a table whose entries all have the same timing.
    pub(super) fn of(entries: &Table, timing: Timing) -> Self {
        let mut expiry = Expiry::default();
        if timing.until.is_some() {
            prefixes(entries).for_each(|entry| expiry.set(entry, timing.until, timing.now));
        }
        expiry
    }
}
