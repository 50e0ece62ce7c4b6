//! `weir run --state`: dynamic tables, the debts of limits and flows continue after a restart.
//!
//! The folder is read before the first policy is loaded. Then a thread writes the changes of tables, another the debts
//! of limits, and a third one flows, so that a slow disk delays nothing else, and neither debts nor flows delay
//! changes. An error of the disk is told and never stops the filter.

use crate::generations::controller::Controller;
use crate::generations::generation::Loader;
use crate::parts::part::{Part, Running};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};
use weir_command::failure::Failure;
use weir_control::{SavingTurns, StateStatus};
use weir_state::SharedState;
use weir_state::saved::{ChangeLog, Clocks, FlowSaver, Folder, FolderError, Restored, Saver, restore};

/// Interval of writing changes. A change is on disk after this time and the time that the disk takes.
const INTERVAL: Duration = Duration::from_millis(200);
/// Longest wait for the last changes to be written.
const END_MAX: Duration = Duration::from_secs(2);

/// `--state` as a part of the daemon.
pub struct Saving<'o> {
    path: &'o Path,
    folder: Option<StateFolder>,
    threads: Option<SavingThreads>,
    /// What an upgrade has carried over, which is newer than the folder.
    carried: Option<Restored>,
}

impl<'o> Saving<'o> {
    /// The part with the folder of the option. `carried` is what an upgrade has carried over.
    pub fn of(path: &'o Path, carried: Option<Restored>) -> Self {
        Saving { path, folder: None, threads: None, carried }
    }
}

/// What an upgrade has carried over, without `--state`.
pub struct Unsaved(Option<Restored>);

impl Unsaved {
    /// The part for what was carried over.
    pub fn new(carried: Restored) -> Self {
        Unsaved(Some(carried))
    }
}

impl<L: Loader> Part<L> for Unsaved {
    fn restore(&mut self, loader: &L) -> Result<(), Failure> {
        if let Some(Restored { tables, debts, flows, .. }) = self.0.take() {
            loader.shared().tables().begin_with(tables);
            loader.shared().keep_debts(debts);
            loader.shared().keep_flows(flows);
        }
        Ok(())
    }

    fn start(&mut self, running: &Running<'_, L>) -> Result<(), Failure> {
        let notices = running.door.loader.shared().end_saved_flows();
        notices.iter().for_each(|notice| eprintln!("weir: {notice}"));
        Ok(())
    }
}

impl<L: Loader> Part<L> for Saving<'_> {
    fn restore(&mut self, loader: &L) -> Result<(), Failure> {
        self.folder = Some(StateFolder::open(self.path, loader.shared(), self.carried.take())?);
        Ok(())
    }

    fn start(&mut self, running: &Running<'_, L>) -> Result<(), Failure> {
        let folder = self.folder.take();
        let start = |folder: StateFolder| folder.start(&running.door.controller, &running.door.loader);
        self.threads = folder.map(start).transpose()?;
        Ok(())
    }

    fn finish(&mut self) {
        if let Some(threads) = self.threads.take() {
            threads.end();
        }
    }
}

/// The folder of saved state.
struct StateFolder {
    path: PathBuf,
    folder: Option<Folder>,
    log: Arc<ChangeLog>,
    report: SavingReport,
}

/// How the state is saved. Clones are the same.
#[derive(Clone, Default)]
struct SavingReport(Arc<Mutex<Problems>>);

/// What is not saved, or was not restored.
#[derive(Default)]
struct Problems {
    /// Why something is not saved now: the tables, the debts, the flows.
    errors: [Option<String>; 3],
    /// Names of the files that are set aside.
    unread: Vec<String>,
    /// Turns of each thread.
    turns: SavingTurns,
}

/// What a thread saves: its place in [`Problems::errors`].
#[derive(Clone, Copy)]
enum Saved {
    Tables,
    Debts,
    Flows,
}

impl Saved {
    /// The name of its thread.
    fn thread(self) -> &'static str {
        match self {
            Saved::Tables => "weir-state",
            Saved::Debts => "weir-debts",
            Saved::Flows => "weir-flows",
        }
    }
}

impl Problems {
    fn error(&self) -> Option<&String> {
        self.errors.iter().flatten().next()
    }
}

impl SavingReport {
    /// Notes the result of a step. Tells when errors begin and when they end.
    fn note(&self, path: &Path, saved: Saved, error: Option<String>) {
        let mut saving = self.saving();
        let had_error = saving.error().is_some();
        saving.errors[saved as usize] = error;
        match (had_error, saving.error()) {
            (false, Some(error)) => {
                error!("weir: {}: the state is not saved for now: {error}", path.display());
            }
            (true, None) => notice!("weir: {}: the state is saved again", path.display()),
            _ => {}
        }
    }

    /// Notes that a thread has written what has changed, or could not.
    fn note_turn(&self, saved: Saved) {
        let mut saving = self.saving();
        *match saved {
            Saved::Tables => &mut saving.turns.tables,
            Saved::Debts => &mut saving.turns.debts,
            Saved::Flows => &mut saving.turns.flows,
        } += 1;
    }

    /// Notes the files that are set aside.
    fn note_unread(&self, unread: Vec<String>) {
        self.saving().unread = unread;
    }

    fn saving(&self) -> MutexGuard<'_, Problems> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The threads that save.
struct SavingThreads(Vec<SavingThread>);

/// A thread that repeats a step.
struct SavingThread {
    stop: Sender<()>,
    ended: Receiver<()>,
}

/// Whether another step follows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    Next,
    Last,
}

impl SavingThread {
    /// Starts a thread that makes a step each [`INTERVAL`], and a last one when it is stopped. It ends with `owner`.
    fn start<T: Send + Sync + 'static>(
        (saved, report): (Saved, SavingReport),
        owner: Weak<T>,
        mut step: impl FnMut(&T, Turn) + Send + 'static,
    ) -> Result<Self, Failure> {
        let (stop, stopped) = channel();
        let (end, ended) = channel();
        let work = move || {
            loop {
                let received = stopped.recv_timeout(INTERVAL);
                let Some(owner) = owner.upgrade() else { break };
                let turn = if received == Err(RecvTimeoutError::Timeout) { Turn::Next } else { Turn::Last };
                step(&owner, turn);
                report.note_turn(saved);
                if turn == Turn::Last {
                    break;
                }
            }
            // The receiver is gone if this took too long.
            let _result = end.send(());
        };
        let started = thread::Builder::new().name(saved.thread().to_owned()).spawn(work);
        started.map_err(|error| Failure::system("a thread for the state", error))?;
        Ok(SavingThread { stop, ended })
    }
}

impl StateFolder {
    /// Opens the folder and reads the tables into `shared`. What cannot be read is told.
    ///
    /// # Errors
    /// Another Weir uses the folder, or other users can change it.
    fn open(path: &Path, shared: &SharedState, carried: Option<Restored>) -> Result<Self, Failure> {
        let (log, report) = (Arc::new(ChangeLog::default()), SavingReport::default());
        let opened = Folder::open(path).and_then(|folder| {
            let restored = restore(&folder, Clocks::now())?;
            Ok((restored, folder))
        });
        let (mut restored, folder) = match opened {
            Ok((restored, folder)) => (restored, Some(folder)),
            // Another user who can write there could give Weir any state, also while it runs.
            Err(FolderError::Refused(why)) => {
                return Err(Failure::Runtime(format!("--state {}: {why}", path.display())));
            }
            Err(FolderError::Busy) => return Err(Failure::file(path, FolderError::Busy.into())),
            Err(problem @ FolderError::Disk(_)) => {
                report.note(path, Saved::Tables, Some(problem.to_string()));
                (Restored::default(), None)
            }
        };
        restored.notices.iter().for_each(|notice| warning!("weir: {notice}"));
        report.note_unread(std::mem::take(&mut restored.unread));
        if carried.is_some() {
            // The folder lacks the last changes.
            log.demand_snapshot();
        }
        let restored = carried.unwrap_or(restored);
        shared.tables().make_last(&log, restored.tables);
        shared.keep_debts(restored.debts);
        shared.keep_flows(restored.flows);
        Ok(StateFolder { path: path.to_owned(), folder, log, report })
    }

    /// Starts the threads.
    ///
    /// # Errors
    /// A thread cannot be started.
    fn start<L: Loader>(self, controller: &Arc<Controller<L::Datapath>>, loader: &L) -> Result<SavingThreads, Failure> {
        let StateFolder { path, folder, log, report } = self;
        let (reported, shown) = (report.clone(), path.display().to_string());
        controller.report(move |status| {
            let saving = reported.saving();
            status.state = Some(StateStatus {
                folder: shown.clone(),
                error: saving.error().cloned(),
                unread: saving.unread.clone(),
                turns: saving.turns,
            });
        });
        let mut saver = Saver::new(path.clone(), folder, log.clone());
        let (mut debts, flows) = (saver.debts(), saver.flows());
        let debts = {
            let (path, report, loader) = (path.clone(), report.clone(), loader.clone());
            SavingThread::start((Saved::Debts, report.clone()), Arc::downgrade(controller), move |_, _| {
                let Some(limits) = loader.shared().known_limits() else { return };
                match debts.step(limits) {
                    Err(problem) => report.note(&path, Saved::Debts, Some(problem.to_string())),
                    Ok(()) if debts.has_failed() => {}
                    Ok(()) => report.note(&path, Saved::Debts, None),
                }
            })?
        };
        let flows = save_flows(flows, controller, loader, (path.clone(), report.clone()))?;
        let (loader, mut last) = (loader.clone(), None);
        let tables =
            SavingThread::start((Saved::Tables, report.clone()), Arc::downgrade(controller), move |controller, _| {
                // Another generation may have refused changes that this one has.
                let active = controller.active();
                if last.replace(active.id).is_some_and(|last| last != active.id) {
                    log.demand_snapshot();
                }
                let tables = loader.shared().tables();
                tables.take_notices().iter().for_each(|notice| warning!("weir: {notice}"));
                let saved = saver.step(tables, active.tables());
                let unread = saver.take_unread();
                if !unread.is_empty() {
                    for name in &unread {
                        warning!("weir: {}: this state was not restored and is kept", path.join(name).display());
                    }
                    report.note_unread(unread);
                }
                match saved {
                    Err(problem) => report.note(&path, Saved::Tables, Some(problem.to_string())),
                    Ok(()) if saver.has_failed() => {}
                    Ok(()) => report.note(&path, Saved::Tables, None),
                }
            })?;
        Ok(SavingThreads(vec![tables, debts, flows]))
    }
}

/// Starts the thread that writes the flows of the active generation.
fn save_flows<L: Loader>(
    mut saver: FlowSaver,
    controller: &Arc<Controller<L::Datapath>>,
    loader: &L,
    (path, report): (PathBuf, SavingReport),
) -> Result<SavingThread, Failure> {
    let loader = loader.clone();
    SavingThread::start((Saved::Flows, report.clone()), Arc::downgrade(controller), move |controller, turn| {
        let active = controller.active();
        let needs = active.program().flow_needs();
        let table = needs.as_ref().and_then(|needs| loader.shared().flows(needs));
        if table.is_some() {
            loader.shared().end_saved_flows().iter().for_each(|notice| warning!("weir: {notice}"));
        }
        let watched = table.as_ref().zip(needs.as_ref().map(|needs| &needs.timeouts));
        let saved = if turn == Turn::Last { saver.complete(watched) } else { saver.step(watched) };
        match saved {
            Err(problem) => report.note(&path, Saved::Flows, Some(problem.to_string())),
            Ok(()) if saver.has_failed() => {}
            Ok(()) => report.note(&path, Saved::Flows, None),
        }
    })
}

impl SavingThreads {
    /// Writes the last changes, for a short time at most.
    fn end(self) {
        let until = Instant::now() + END_MAX;
        // The threads may have ended.
        self.0.iter().for_each(|thread| _ = thread.stop.send(()));
        for thread in self.0 {
            let _ended = thread.ended.recv_timeout(until.saturating_duration_since(Instant::now()));
        }
    }
}
