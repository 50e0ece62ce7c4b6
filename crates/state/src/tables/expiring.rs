//! Removes entries whose time is over from all images.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::expiry::tick;
use super::image::TableImage;
use super::patience::Patience;
use super::table_store::TableStore;

/// Limit on the entries of an image that expire before changes may pass, unless the image is rebuilt.
pub const EXPIRE_BATCH: usize = 512;

impl TableStore {
    /// Whether some entry may have a deadline. If not, [`TableStore::expire`] need not be called.
    pub fn can_expire(&self) -> bool {
        self.can_expire.load(Ordering::SeqCst)
    }

    /// Notes that entries of images may have deadlines. To be called after every change that sets some.
    pub(super) fn note_deadlines<'i>(&self, mut images: impl Iterator<Item = &'i TableImage>) {
        if images.any(|image| image.can_expire()) {
            self.can_expire.store(true, Ordering::SeqCst);
        }
    }

    /// Removes the entries that have expired at `now_ns`, from all images of all generations. An entry that was added
    /// at `t` with a timeout `T` is gone when this returns for the first time with `now_ns / TICK_NS` at or after
    /// `(t + T) / TICK_NS`, rounded up. The work grows with the entries that expire, not with those that are there.
    /// Changes wait for at most [`EXPIRE_BATCH`] entries of an image, or for one rebuild if a large part of it expires.
    ///
    /// Tables that others change meanwhile are waited for only shortly. What is left is removed by the next change of
    /// the table, or by the next call.
    pub fn expire(&self, now_ns: u64) {
        if !self.can_expire() {
            return;
        }
        // What sets a deadline from here on sets this again.
        self.can_expire.store(false, Ordering::SeqCst);
        let mut tables: BTreeMap<String, Vec<(TableImage, usize)>> = BTreeMap::new();
        self.store.with_objects(|loaded| {
            for image in distinct(loaded) {
                for (position, name) in image.names().enumerate().filter(|&(position, _)| image.has_deadlines(position))
                {
                    tables.entry(name.to_owned()).or_default().push((image.clone(), position));
                }
            }
        });
        if tables.is_empty() {
            return;
        }
        self.can_expire.store(true, Ordering::SeqCst);
        let mut patience = Patience::default();
        for (name, images) in &tables {
            match self.expire_table((name, images), tick(now_ns), &mut patience) {
                Some(()) => _ = lock(&self.overdue).remove(name),
                None => _ = lock(&self.overdue).insert(name.clone(), tick(now_ns)),
            }
        }
    }

    /// Lets the entries of a table expire, batch by batch. `None` if others use the table for too long.
    fn expire_table(
        &self,
        (name, images): (&str, &[(TableImage, usize)]),
        now: u64,
        patience: &mut Patience,
    ) -> Option<()> {
        loop {
            let _turn = patience.wait(|until| self.turns.take_until(name, until))?;
            let mut is_done = true;
            for (image, position) in images {
                let mut work = patience.wait(|until| image.begin_until(until))?;
                is_done &= work.expire(*position, now, EXPIRE_BATCH);
            }
            if is_done {
                return Some(());
            }
        }
    }

    /// Removes some entries of a table that should have expired, if there are any. Its turn is the caller's.
    pub(super) fn expire_overdue(&self, name: &str) {
        let Some(now) = lock(&self.overdue).remove(name) else { return };
        for (image, position) in self.all_images_of(name) {
            image.begin().expire(position, now, EXPIRE_BATCH);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
