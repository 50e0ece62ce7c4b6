//! Tells writers of tables when programs in the kernel have ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::thread::JoinHandle;
use std::time::Duration;

use weir_state::Grace;
use weir_tables::live::Readers;

use crate::EngineError;
use crate::xdp::failed;

/// Pause between two waits for writers of tables. What they unlink meanwhile is freed later.
const BETWEEN_WAITS: Duration = Duration::from_millis(2);
/// How long the thread sleeps if no table changes.
const IDLE: Duration = Duration::from_millis(20);

/// A thread that tells writers of tables when programs in the kernel have ended. It ends when it is dropped.
pub struct ProgramReader {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl ProgramReader {
    /// Starts the thread. From now on writers wait for programs.
    ///
    /// # Errors
    /// The process lacks the right to create maps, or there is no thread.
    pub fn start(readers: &Readers) -> Result<Self, EngineError> {
        let grace = prepare_grace()?;
        let mut reader = readers.register().expect("there are few readers");
        reader.pass(|| {});
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let watch = move || {
            while !stopped.load(Ordering::Relaxed) {
                if reader.is_behind() {
                    reader.pass(|| _ = grace.wait_undisturbing());
                    thread::sleep(BETWEEN_WAITS);
                } else {
                    thread::park_timeout(IDLE);
                }
            }
        };
        let thread = thread::Builder::new().name("weir-readers".to_owned()).spawn(watch);
        let thread = thread.map_err(|error| failed("a thread for tables", error.to_string()).caused_by(&error))?;
        Ok(ProgramReader { stop, thread: Some(thread) })
    }
}

impl Drop for ProgramReader {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ended = thread.join();
        }
    }
}

/// What waits for programs in the kernel.
///
/// # Errors
/// The process lacks the right to create maps, or there is no memory.
pub(in crate::live) fn prepare_grace() -> Result<Grace, EngineError> {
    Grace::prepare().map_err(|error| failed("weir_grace", error.to_string()).caused_by(&error))
}
