//! Removes entries of tables when their time is over.

use crate::failure::Failure;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use weir_state::tables::TICK_NS;

use crate::run::generation::Loader;

/// A thread that exists while entries have a timeout.
#[derive(Default)]
pub struct Expiry {
    thread: Option<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
}

impl Expiry {
    /// Starts the thread if entries have a timeout and it does not run. To be called every few milliseconds.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn keep<L: Loader>(&mut self, loader: &L) -> Result<(), Failure> {
        let can_expire = |loader: &L| loader.shared().tables().is_some_and(|tables| tables.can_expire());
        let runs = self.thread.as_ref().is_some_and(|thread| !thread.is_finished());
        if runs || !can_expire(loader) {
            return Ok(());
        }
        let (loader, stop) = (loader.clone(), self.stop.clone());
        let work = move || {
            while !stop.load(Ordering::Relaxed) && can_expire(&loader) {
                thread::sleep(Duration::from_nanos(TICK_NS - weir_state::now_ns() % TICK_NS));
                if let Some(tables) = loader.shared().tables() {
                    tables.expire(weir_state::now_ns());
                }
            }
        };
        let thread = thread::Builder::new().name("weir-expiry".to_owned()).spawn(work);
        self.thread = Some(thread.map_err(|error| Failure::system("a thread for timeouts of entries", error))?);
        Ok(())
    }
}

impl Drop for Expiry {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Its panic was reported when it happened.
            let _panicked = thread.join();
        }
    }
}
