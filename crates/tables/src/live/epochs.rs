//! Decides when memory that readers may still hold can be freed or reused. This is quiescent-state based reclamation
//! (McKenney and Slingwine, "Read-copy update", PDCS 1998; Hart et al., "Performance of memory reclamation", JPDC
//! 2007).
//!
//! ```text
//! epoch        1, 2, 3, ...   a writer that has unlinked something starts the next epoch and remembers its number
//! a reader     the epoch at its last quiescent point, when it held nothing; or idle: it holds nothing now
//! passed(e)    every reader is idle or announced e or later: no reader holds what was unlinked before e began
//! ```
//! Quiescent points lie between bursts. Readers never wait. A reader that never ends its burst keeps memory from being
//! freed, and has no other effect.
//!
//! A reader that ceases to be idle writes before it reads. So does a writer that looks for readers. A full fence lies
//! between the write and the read, so at least one of the two sees the other.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// The announcement of an idle reader. It is later than every epoch.
pub(super) const IDLE: u64 = u64::MAX;

/// A 64-bit word that threads share: an atomic, or a word of the model checker.
pub(super) trait Word {
    /// Reads with acquire order: what the writer did before its store is visible.
    fn load(&self) -> u64;
    /// Writes with release order: a thread that reads the value sees what was done before.
    fn store(&self, value: u64);
    /// Adds one and returns the sum.
    fn next(&self) -> u64;
    /// A full memory fence.
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

/// Announces the current epoch at the start of a burst, when the reader holds nothing. Returns the announced epoch.
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

/// Starts the epoch after which no reader holds what was unlinked before.
pub(super) fn unlinked<W: Word>(epoch: &W) -> u64 {
    epoch.next()
}

/// Whether every reader is idle or has passed a quiescent point in `epoch` or later.
pub(super) fn passed<'a, W: Word + 'a>(readers: impl IntoIterator<Item = &'a W>, epoch: u64) -> bool {
    W::full_fence();
    readers.into_iter().all(|reader| reader.load() >= epoch)
}

/// A registry of readers: the real one, or the model checker's.
pub(super) trait Quiescence {
    /// Starts the epoch after which no reader holds what was unlinked before.
    fn unlinked(&self) -> u64;
    /// Whether every reader is idle or has passed a quiescent point in `epoch` or later.
    fn passed(&self, epoch: u64) -> bool;
}

/// A queue of unlinked things that readers may still hold, oldest first.
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
    /// Adds `thing`, which was unlinked just now.
    pub fn push(&mut self, readers: &impl Quiescence, thing: T) {
        self.waiting.push_back((readers.unlinked(), thing));
    }

    /// Removes and returns the oldest thing, if no reader holds it any more.
    pub fn pop(&mut self, readers: &impl Quiescence) -> Option<T> {
        let &(epoch, _) = self.waiting.front()?;
        if !readers.passed(epoch) {
            return None;
        }
        self.waiting.pop_front().map(|(_, thing)| thing)
    }

    /// Number of things that wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }
}
