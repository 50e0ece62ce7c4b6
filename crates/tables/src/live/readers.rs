//! Registry of the threads that read live tables. One registry serves all tables that the same threads read.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::live::epochs::{self, IDLE, Quiescence, Word};

/// Maximum number of registered readers: 256 workers with two filters each, in eight activations.
pub const READERS_MAX: usize = 4096;

/// A word in two cache lines of its own, because processors prefetch pairs of lines.
#[repr(align(128))]
struct Padded(AtomicU64);

struct Registry {
    epoch: Padded,
    words: Box<[Padded]>,
    /// Number of words that were ever in use.
    ever: AtomicUsize,
    taken: Mutex<Vec<bool>>,
}

/// The registry of readers. Clones refer to the same registry.
#[derive(Clone)]
pub struct Readers(Arc<Registry>);

impl Default for Readers {
    fn default() -> Self {
        Self::new()
    }
}

impl Readers {
    /// A registry without readers.
    pub fn new() -> Self {
        Readers(Arc::new(Registry {
            epoch: Padded(AtomicU64::new(1)),
            words: (0..READERS_MAX).map(|_| Padded(AtomicU64::new(IDLE))).collect(),
            ever: AtomicUsize::new(0),
            taken: Mutex::new(vec![false; READERS_MAX]),
        }))
    }

    /// Registers a new, idle reader. Returns `None` if there are already [`READERS_MAX`].
    pub fn register(&self) -> Option<Reader> {
        let mut taken = self.0.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let index = taken.iter().position(|&taken| !taken)?;
        taken[index] = true;
        // This precedes the reader's first announcement, whose fence makes it visible.
        self.0.ever.fetch_max(index + 1, Ordering::SeqCst);
        Some(Reader { readers: self.clone(), index, announced: IDLE })
    }

    /// Starts the epoch after which no reader holds what was unlinked before. For code that publishes something else
    /// than images to these readers.
    pub fn next_epoch(&self) -> u64 {
        self.unlinked()
    }

    /// Whether every reader is idle or has passed a quiescent point in `epoch` or later.
    pub fn has_passed(&self, epoch: u64) -> bool {
        self.passed(epoch)
    }

    /// Whether both are the same registry.
    pub(super) fn is(&self, other: &Readers) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for Readers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Readers").field("epoch", &self.0.epoch.0).finish_non_exhaustive()
    }
}

impl Quiescence for Readers {
    fn unlinked(&self) -> u64 {
        epochs::unlinked(&self.0.epoch.0)
    }

    fn passed(&self, epoch: u64) -> bool {
        AtomicU64::full_fence();
        let ever = self.0.ever.load(Ordering::SeqCst);
        epochs::passed(self.0.words[..ever].iter().map(|word| &word.0), epoch)
    }
}

/// One thread that reads tables in bursts. Dropping it frees its registration.
#[derive(Debug)]
pub struct Reader {
    readers: Readers,
    index: usize,
    announced: u64,
}

impl Reader {
    /// Starts a burst and releases everything read from tables in the previous one, which the borrow checker enforces.
    /// Costs one load, and one store if a writer was active since the last burst.
    pub fn start_burst(&mut self) -> Burst<'_> {
        self.announced = epochs::announce(&self.readers.0.epoch.0, self.word(), self.announced);
        Burst { readers: &self.readers }
    }

    /// Becomes idle without starting a burst. Call this before waiting for packets, so that writers need not wait.
    pub fn rest(&mut self) {
        self.word().store(IDLE, Ordering::Release);
        self.announced = IDLE;
    }

    /// Announces that nothing is held that was read before this call. `wait` returns when every program that runs at
    /// the time of the call has ended. Meanwhile others may begin.
    pub fn pass(&mut self, wait: impl FnOnce()) {
        let now = self.readers.0.epoch.0.load(Ordering::SeqCst);
        if self.announced == IDLE {
            // From now on writers wait for this reader.
            self.word().store(0, Ordering::SeqCst);
        }
        AtomicU64::full_fence();
        wait();
        self.word().store(now, Ordering::Release);
        self.announced = now;
    }

    /// Whether a writer has unlinked something since the last call of [`Reader::pass`].
    pub fn is_behind(&self) -> bool {
        self.readers.0.epoch.0.load(Ordering::Acquire) != self.announced
    }

    fn word(&self) -> &AtomicU64 {
        &self.readers.0.words[self.index].0
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.rest();
        self.readers.0.taken.lock().unwrap_or_else(PoisonError::into_inner)[self.index] = false;
    }
}

/// One burst of a reader, within which it may read tables.
#[derive(Debug)]
pub struct Burst<'r> {
    readers: &'r Readers,
}

impl Burst<'_> {
    /// The registry of the reader.
    pub(super) fn readers(&self) -> &Readers {
        self.readers
    }
}
