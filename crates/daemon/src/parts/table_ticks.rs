//! The ends of ticks: every 10 ms entries whose time is over leave their tables, rules leave their slots, and what
//! rules add enters tables.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use weir_command::failure::Failure;
use weir_state::SharedState;
use weir_state::tables::TICK_NS;

use crate::generations::generation::Loader;
use crate::parts::part::{Part, Running};

/// A thread that exists while entries or rules of slots have a timeout, or rules add to tables.
#[derive(Default)]
pub struct TableTicks {
    thread: Option<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
}

impl TableTicks {
    /// Starts the thread if it is needed and does not run.
    fn keep<L: Loader>(&mut self, loader: &L) -> Result<(), Failure> {
        let runs = self.thread.as_ref().is_some_and(|thread| !thread.is_finished());
        if runs || !is_needed(loader.shared()) {
            return Ok(());
        }
        let (loader, stop) = (loader.clone(), self.stop.clone());
        let work = move || {
            while !stop.load(Ordering::Relaxed) && is_needed(loader.shared()) {
                thread::sleep(Duration::from_nanos(TICK_NS - weir_state::now_ns() % TICK_NS));
                end_tick(loader.shared());
            }
        };
        let thread = thread::Builder::new().name("weir-ticks".to_owned()).spawn(work);
        self.thread = Some(thread.map_err(|error| Failure::system("a thread for changes of tables", error))?);
        Ok(())
    }
}

impl<L: Loader> Part<L> for TableTicks {
    fn step(&mut self, running: &Running<'_, L>) {
        if let Err(failure) = self.keep(&running.door.loader) {
            error!("weir: {failure}");
        }
    }

    fn end(&mut self, _: &Running<'_, L>) {
        *self = Self::default();
    }
}

fn is_needed(shared: &SharedState) -> bool {
    shared.tables().can_expire() || shared.slots().can_expire() || shared.additions().has_queues()
}

/// Expired entries leave first, so that they make room and can be added again.
fn end_tick(shared: &SharedState) {
    let now_ns = weir_state::now_ns();
    shared.tables().expire(now_ns);
    shared.slots().expire(now_ns);
    shared.additions().collect(now_ns);
}

impl Drop for TableTicks {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Its panic was reported when it happened.
            let _panicked = thread.join();
        }
    }
}
