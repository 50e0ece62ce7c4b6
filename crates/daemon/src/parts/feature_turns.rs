//! A snapshot of what is observed, every second.

use crate::generations::generation::Loader;
use crate::parts::part::{Part, Running};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use weir_command::failure::Failure;
use weir_state::SharedState;

/// Time between two snapshots.
const INTERVAL: Duration = Duration::from_secs(1);
/// Interval of checks whether Weir ends.
const TICK: Duration = Duration::from_millis(10);

/// A thread that exists while a loaded policy observes.
#[derive(Default)]
pub struct FeatureTurns {
    thread: Option<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
}

impl FeatureTurns {
    /// Starts the thread if it is needed and does not run.
    fn keep<L: Loader>(&mut self, loader: &L) -> Result<(), Failure> {
        let runs = self.thread.as_ref().is_some_and(|thread| !thread.is_finished());
        if runs || loader.shared().observed().is_empty() {
            return Ok(());
        }
        let (loader, stop) = (loader.clone(), self.stop.clone());
        let work = move || {
            let mut next = Instant::now() + INTERVAL;
            while !stop.load(Ordering::Relaxed) && turn_at(&mut next, loader.shared()) {
                thread::sleep(TICK);
            }
        };
        let thread = thread::Builder::new().name("weir-features".to_owned()).spawn(work);
        self.thread = Some(thread.map_err(|error| Failure::system("a thread for features", error))?);
        Ok(())
    }
}

impl<L: Loader> Part<L> for FeatureTurns {
    fn step(&mut self, running: &Running<'_, L>) {
        if let Err(failure) = self.keep(&running.door.loader) {
            error!("weir: {failure}");
        }
    }

    fn end(&mut self, _: &Running<'_, L>) {
        *self = Self::default();
    }
}

/// Takes snapshots if it is time. Returns whether anything is observed.
fn turn_at(next: &mut Instant, shared: &SharedState) -> bool {
    let observed = shared.observed();
    if Instant::now() >= *next {
        *next += INTERVAL;
        for features in &observed {
            if let Err(error) = features.turn() {
                error!("weir: {error}");
            }
        }
    }
    !observed.is_empty()
}

impl Drop for FeatureTurns {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Its panic was reported when it happened.
            let _panicked = thread.join();
        }
    }
}
