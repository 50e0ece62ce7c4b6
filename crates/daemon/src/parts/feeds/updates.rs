//! The results of updates, for `weir ctl status`, and which thread may update now.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use weir_control::{AppliedUpdate, ListChanged, ListName, RefusedUpdate, UpdatesStatus};

/// What an update was caused by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// `weir ctl reload`
    Reload,
    /// SIGHUP
    Signal,
    /// A file has changed.
    Watch,
    /// `weir ctl table replace`
    Replace,
}

impl Cause {
    /// Its name in the status.
    pub fn name(self) -> &'static str {
        match self {
            Cause::Reload => "reload",
            Cause::Signal => "SIGHUP",
            Cause::Watch => "watch",
            Cause::Replace => "replace",
        }
    }
}

/// The state of all updates since the start.
#[derive(Default)]
pub struct Updates {
    /// Held while lists are read and applied, so that updates follow one another.
    updating: Mutex<()>,
    /// Held from the check of a change until it is made, so that no other change invalidates the check.
    changing: Mutex<()>,
    reload_requested: AtomicBool,
    record: Mutex<Record>,
}

#[derive(Default)]
struct Record {
    applied: u64,
    refused: u64,
    last: BTreeMap<ListName, Applied>,
    refusals: BTreeMap<ListName, Refused>,
}

struct Applied {
    changed: ListChanged,
    by: Cause,
    at: Instant,
}

struct Refused {
    file: String,
    reason: String,
    since: Instant,
    times: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Updates {
    /// Waits for other updates. The next one waits until the guard is dropped.
    pub fn update(&self) -> MutexGuard<'_, ()> {
        lock(&self.updating)
    }

    /// Waits for other changes that are being checked. The next one waits until the guard is dropped.
    pub fn change(&self) -> MutexGuard<'_, ()> {
        lock(&self.changing)
    }

    /// Requests a reload, which the thread that watches files makes soon.
    pub fn request_reload(&self) {
        self.reload_requested.store(true, Ordering::Relaxed);
    }

    /// Whether a reload was requested since the last call.
    pub fn take_reload_request(&self) -> bool {
        self.reload_requested.swap(false, Ordering::Relaxed)
    }

    /// Records and reports an applied update. It resolves earlier refusals of the list.
    pub fn applied(&self, changed: ListChanged, by: Cause) {
        let ListChanged { list, entries_before, entries } = &changed;
        eprintln!([List: list] "weir: {list}: {entries_before} entries before, {entries} now ({})", by.name());
        let mut record = lock(&self.record);
        record.applied += 1;
        record.refusals.remove(&changed.list);
        record.last.insert(changed.list.clone(), Applied { changed, by, at: Instant::now() });
    }

    /// Records and reports a refused update. A watched file is reported again only if the reason is another one.
    pub fn refused(&self, list: &ListName, file: &Path, reason: &str, by: Cause) {
        let mut record = lock(&self.record);
        record.refused += 1;
        let new = || Refused { file: String::new(), reason: String::new(), since: Instant::now(), times: 0 };
        let refused = record.refusals.entry(list.clone()).or_insert_with(new);
        refused.times += 1;
        refused.file = file.display().to_string();
        let is_new = std::mem::replace(&mut refused.reason, reason.to_owned()) != reason;
        drop(record);
        if is_new || by != Cause::Watch {
            warning!([List: list] "weir: {list}: the update is refused ({}): {reason}", by.name());
        }
    }

    /// Resolves the refusals of a list: it has the contents of its files.
    pub fn resolve(&self, list: &ListName) {
        lock(&self.record).refusals.remove(list);
    }

    /// Whether an update of a list was refused and not resolved.
    pub fn is_refused(&self, list: &ListName) -> bool {
        lock(&self.record).refusals.contains_key(list)
    }

    /// The record for the lists of the active policy. `watched` are those that are updated when their files change.
    pub fn status(&self, watched: Vec<String>, has_list: impl Fn(&ListName) -> bool) -> UpdatesStatus {
        let record = lock(&self.record);
        let last = record.last.values().map(|Applied { changed, by, at }| AppliedUpdate {
            changed: changed.clone(),
            by: by.name().to_owned(),
            ago_s: at.elapsed().as_secs_f64(),
        });
        let refusals = record.refusals.iter().filter(|(list, _)| has_list(list));
        let refusals = refusals.map(|(list, Refused { file, reason, since, times })| RefusedUpdate {
            list: list.clone(),
            file: file.clone(),
            reason: reason.clone(),
            since_s: since.elapsed().as_secs_f64(),
            times: *times,
        });
        UpdatesStatus {
            watched,
            applied: record.applied,
            refused: record.refused,
            last: last.collect(),
            refusals: refusals.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_stays_until_the_list_is_updated() {
        let updates = Updates::default();
        let list = |name: &str| ListName::Table(name.to_owned());
        let status = || updates.status(vec![], |_| true);
        let refuse =
            |name: &str, file: &str, why: &str| updates.refused(&list(name), Path::new(file), why, Cause::Watch);
        refuse("bad", "bad.txt", "bad.txt:1: no");
        refuse("bad", "bad.txt", "bad.txt:1: no");
        refuse("other", "other.txt", "gone");
        refuse("bad", "more.txt", "more.txt:7: no");
        let [bad, other] = &status().refusals[..] else { panic!("two lists") };
        assert_eq!((bad.file.as_str(), bad.reason.as_str(), bad.times), ("more.txt", "more.txt:7: no", 3));
        assert_eq!((other.list.to_string().as_str(), other.times), ("table other", 1));
        updates.applied(ListChanged { list: list("bad"), entries_before: 3, entries: 4 }, Cause::Watch);
        updates.resolve(&list("other"));
        let UpdatesStatus { applied, refused, last, refusals, .. } = status();
        assert_eq!((applied, refused, refusals.len()), (1, 4, 0));
        assert_eq!((last[0].changed.entries_before, last[0].by.as_str()), (3, "watch"));
        refuse("gone", "gone.txt", "no");
        assert!(updates.status(vec![], |_| false).refusals.is_empty(), "the active policy has no such list");
    }
}
