//! `weir run --state`: dynamic tables and the debts of limits continue after a restart.
//!
//! The folder is read before the first policy is loaded. Then a thread of its own writes, so that a slow disk delays
//! nothing else. An error of the disk is told and never stops the filter.

use crate::failure::Failure;
use crate::run::controller::Controller;
use crate::run::generation::Loader;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;
use weir_control::StateStatus;
use weir_state::SharedState;
use weir_state::saved::{ChangeLog, Clocks, Folder, Restored, Saver, restore};

/// Interval of writing changes. A change is on disk after this time and the time that the disk takes.
const INTERVAL: Duration = Duration::from_millis(200);
/// Longest wait for the last changes to be written.
const END_MAX: Duration = Duration::from_secs(2);

/// The folder of saved state.
pub struct StateFolder {
    path: PathBuf,
    folder: Option<Folder>,
    log: Arc<ChangeLog>,
    error: SavingError,
}

/// Why the state is not saved now. Clones are the same.
#[derive(Clone, Default)]
struct SavingError(Arc<Mutex<Option<String>>>);

impl SavingError {
    /// Notes the result of a step. Tells when an error begins and when it ends.
    fn note(&self, path: &Path, error: Option<String>) {
        let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match (&*noted, &error) {
            (None, Some(error)) => {
                eprintln!("weir: {}: the state is not saved for now: {error}", path.display());
            }
            (Some(_), None) => eprintln!("weir: {}: the state is saved again", path.display()),
            _ => {}
        }
        *noted = error;
    }
}

/// The thread that saves.
pub struct SavingThread {
    stop: Sender<()>,
    ended: Receiver<()>,
}

impl StateFolder {
    /// Opens the folder and reads the tables into `shared`. What cannot be read is told.
    ///
    /// # Errors
    /// Another Weir uses the folder.
    pub fn open(path: &Path, shared: &SharedState) -> Result<Self, Failure> {
        let (log, error) = (Arc::new(ChangeLog::default()), SavingError::default());
        let opened = Folder::open(path).and_then(|folder| Ok((restore(&folder, Clocks::now())?, folder)));
        let (restored, folder) = match opened {
            Ok((restored, folder)) => (restored, Some(folder)),
            Err(error) if error.kind() == ErrorKind::ResourceBusy => return Err(Failure::file(path, error)),
            Err(problem) => {
                error.note(path, Some(problem.to_string()));
                (Restored::default(), None)
            }
        };
        restored.notices.iter().for_each(|notice| eprintln!("weir: {notice}"));
        if let Some(tables) = shared.tables() {
            tables.make_last(&log, restored.tables);
        }
        shared.keep_debts(restored.debts);
        Ok(StateFolder { path: path.to_owned(), folder, log, error })
    }

    /// Starts the thread.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start<L: Loader>(
        self,
        controller: &Arc<Controller<L::Datapath>>,
        loader: &L,
    ) -> Result<SavingThread, Failure> {
        let StateFolder { path, folder, log, error } = self;
        let (noted, shown) = (error.clone(), path.display().to_string());
        controller.report_state(move || StateStatus {
            folder: shown.clone(),
            error: noted.0.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        });
        let mut saver = Saver::new(path.clone(), folder, log.clone());
        let (controller, loader) = (Arc::downgrade(controller), loader.clone());
        let (stop, stopped) = channel();
        let (end, ended) = channel();
        let mut last = None;
        let work = move || {
            loop {
                let received = stopped.recv_timeout(INTERVAL);
                let Some(controller) = controller.upgrade() else { break };
                // Another generation may have refused changes that this one has.
                let active = controller.active();
                if last.replace(active.id).is_some_and(|last| last != active.id) {
                    log.demand_snapshot();
                }
                if let Some(tables) = loader.shared().tables() {
                    tables.take_notices().iter().for_each(|notice| eprintln!("weir: {notice}"));
                    let limits = loader.shared().known_limits();
                    let saved = saver.step(tables, active.tables());
                    match saved.and_then(|()| limits.map_or(Ok(()), |limits| saver.write_debts(limits))) {
                        Err(problem) => error.note(&path, Some(problem.to_string())),
                        Ok(()) if saver.has_failed() => {}
                        Ok(()) => error.note(&path, None),
                    }
                }
                if received != Err(RecvTimeoutError::Timeout) {
                    break;
                }
            }
            // The receiver is gone if this took too long.
            let _result = end.send(());
        };
        let started = thread::Builder::new().name("weir-state".to_owned()).spawn(work);
        started.map_err(|error| Failure::system("a thread for the state", error))?;
        Ok(SavingThread { stop, ended })
    }
}

impl SavingThread {
    /// Writes the last changes, for a short time at most.
    pub fn end(self) {
        // The thread may have ended.
        let _sent = self.stop.send(());
        let _ended = self.ended.recv_timeout(END_MAX);
    }
}
