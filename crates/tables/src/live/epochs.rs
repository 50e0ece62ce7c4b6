//! When it is safe to free or reuse what readers may still look at: quiescent-state based reclamation (McKenney and
//! Slingwine, "Read-copy update", PDCS 1998; Hart et al., "Performance of memory reclamation", JPDC 2007).
//!
//! ```text
//! epoch        1, 2, 3, ...   a writer that has unlinked something goes on to the next epoch and remembers its number
//! a reader     the epoch that it saw at its last quiescent point, when it held nothing; or idle: it holds nothing now
//! passed(e)    every reader is idle or announced e or later: nobody holds what was unlinked before e began
//! ```
//! Quiescent points lie between bursts. Readers wait for nobody; a reader that stays in one burst for ever keeps memory from
//! being freed, and nothing else. A reader that ceases to be idle and a writer that looks for readers each write before they
//! read, with a full fence between, so that one of the two sees the other.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// What a reader that holds nothing announces. No epoch is as late.
pub(super) const IDLE: u64 = u64::MAX;

/// A 64-bit word that threads share: the machine's, or the model checker's.
pub(super) trait Word {
    /// Reads; what the writer of the word did before is seen.
    fn load(&self) -> u64;
    /// Writes; whoever reads it sees what was done before.
    fn store(&self, value: u64);
    /// Adds one and returns the sum.
    fn next(&self) -> u64;
    /// Neither reads nor writes pass it.
    fn full_fence();
}

impl Word for AtomicU64 {
    fn load(&self) -> u64 {
        self.load(Ordering::Acquire)
    }

    fn store(&self, value: u64) {
        self.store(value, Ordering::Release);
    }

    fn next(&self) -> u64 {
        self.fetch_add(1, Ordering::AcqRel) + 1
    }

    fn full_fence() {
        fence(Ordering::SeqCst);
    }
}

/// At the start of a burst: the reader holds nothing from before. Returns what it announced.
pub(super) fn announce<W: Word>(epoch: &W, reader: &W, announced: u64) -> u64 {
    let now = epoch.load();
    if now != announced {
        reader.store(now);
        if announced == IDLE {
            W::full_fence();
        }
    }
    now
}

/// The epoch after which what was unlinked until now is held by nobody.
pub(super) fn unlinked<W: Word>(epoch: &W) -> u64 {
    epoch.next()
}

/// Whether every reader passed a quiescent point in the epoch, or later.
pub(super) fn passed<'a, W: Word + 'a>(readers: impl IntoIterator<Item = &'a W>, epoch: u64) -> bool {
    W::full_fence();
    readers.into_iter().all(|reader| reader.load() >= epoch)
}

/// Whoever knows where readers are: their registry, or the model checker's.
pub(super) trait Quiescence {
    /// Begins the epoch after which what was unlinked until now is held by nobody.
    fn unlinked(&self) -> u64;
    /// Whether every reader passed a quiescent point in the epoch, or later.
    fn passed(&self, epoch: u64) -> bool;
}

/// Things that readers may still hold, first unlinked first.
#[derive(Clone)]
pub(super) struct Unlinked<T> {
    waiting: VecDeque<(u64, T)>,
}

impl<T> Default for Unlinked<T> {
    fn default() -> Self {
        Unlinked { waiting: VecDeque::new() }
    }
}

impl<T> Unlinked<T> {
    /// `thing` was unlinked just now.
    pub fn push(&mut self, readers: &impl Quiescence, thing: T) {
        self.waiting.push_back((readers.unlinked(), thing));
    }

    /// The next thing that nobody holds any more.
    pub fn pop(&mut self, readers: &impl Quiescence) -> Option<T> {
        let &(epoch, _) = self.waiting.front()?;
        if !readers.passed(epoch) {
            return None;
        }
        self.waiting.pop_front().map(|(_, thing)| thing)
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }
}
