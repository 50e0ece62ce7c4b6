//! A bounded queue with a thread that handles what is in it, so that neither a slow disk nor a slow program delays
//! anything.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use weir_command::failure::Failure;

/// What waits for a slow disk or program. More is lost, and counted.
const QUEUE: usize = 256;
/// Pause between two looks whether the thread has ended.
const END_STEP: Duration = Duration::from_millis(10);

/// The queue.
pub struct Outlet<T> {
    queue: Option<SyncSender<T>>,
    counts: Arc<Counts>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Counts {
    queued: AtomicU64,
    done: AtomicU64,
    failed: AtomicU64,
    lost: AtomicU64,
    /// The last failure.
    problem: Mutex<Option<String>>,
}

impl<T: Send + 'static> Outlet<T> {
    pub fn start(
        name: &'static str,
        handle: impl Fn(T) -> Result<(), String> + Send + 'static,
    ) -> Result<Self, Failure> {
        let (queue, queued): (_, Receiver<T>) = sync_channel(QUEUE);
        let counts = Arc::<Counts>::default();
        let own = counts.clone();
        let work = move || {
            for one in queued {
                match handle(one) {
                    Ok(()) => _ = own.done.fetch_add(1, Ordering::Relaxed),
                    Err(problem) => own.fail(problem),
                }
            }
        };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(work);
        let thread = thread.map_err(|error| Failure::system(format_args!("a thread for {name}"), error))?;
        Ok(Outlet { queue: Some(queue), counts, thread: Some(thread) })
    }

    pub fn put(&self, one: impl FnOnce() -> T) {
        let queued = self.queue.as_ref().is_some_and(|queue| queue.try_send(one()).is_ok());
        if queued {
            self.counts.queued.fetch_add(1, Ordering::Relaxed);
        } else {
            self.counts.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until all that was put in is handled, but not longer than a time.
    pub fn settle(&self, patience: Duration) {
        let begun = Instant::now();
        let is_handled = || {
            let [done, failed] = [&self.counts.done, &self.counts.failed].map(|count| count.load(Ordering::Relaxed));
            done + failed >= self.counts.queued.load(Ordering::Relaxed)
        };
        while !is_handled() && begun.elapsed() < patience {
            thread::sleep(END_STEP);
        }
    }

    pub fn counts(&self) -> [u64; 3] {
        [&self.counts.done, &self.counts.failed, &self.counts.lost].map(|count| count.load(Ordering::Relaxed))
    }

    pub fn problem(&self) -> Option<String> {
        self.counts.problem.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn end(&mut self, deadline: Instant) {
        drop(self.queue.take());
        let Some(thread) = self.thread.take() else { return };
        while !thread.is_finished() && Instant::now() < deadline {
            thread::sleep(END_STEP);
        }
    }
}

impl Counts {
    /// Counts a failure. Only the first in a row of equal ones is logged.
    fn fail(&self, problem: String) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        let mut last = self.problem.lock().unwrap_or_else(PoisonError::into_inner);
        if last.as_ref() != Some(&problem) {
            warning!("weir: mitigation: {problem}");
        }
        *last = Some(problem);
    }
}
