//! The captures that run, so that an upgrade can end them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The captures of all clients.
#[derive(Default)]
pub struct Streams {
    is_ending: AtomicBool,
    open: AtomicUsize,
}

/// The time in which captures end before an upgrade. A client that does not read loses the end of its file.
const END_TIME: Duration = Duration::from_secs(1);
const END_STEP: Duration = Duration::from_millis(5);

impl Streams {
    /// Ends all captures, with their statistics, so that clients have whole files. Waits a little for clients.
    pub fn end(&self) {
        self.is_ending.store(true, Ordering::Relaxed);
        let begun = Instant::now();
        while self.open.load(Ordering::Acquire) > 0 && begun.elapsed() < END_TIME {
            thread::sleep(END_STEP);
        }
    }

    /// How many there are.
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Lets captures begin again.
    pub fn go_on(&self) {
        self.is_ending.store(false, Ordering::Relaxed);
    }
}

/// One of them. It is open until this is dropped.
pub struct OpenStream(Arc<Streams>);

impl OpenStream {
    /// One more of them.
    pub fn of(streams: &Arc<Streams>) -> Self {
        streams.open.fetch_add(1, Ordering::Relaxed);
        OpenStream(streams.clone())
    }

    /// Whether it shall end.
    pub fn is_ending(&self) -> bool {
        self.0.is_ending.load(Ordering::Relaxed)
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Release);
    }
}
