//! Writes changes and snapshots to the folder.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::debts::DebtSaver;
use super::flow_saver::FlowSaver;
use super::folder::{Folder, Numbered, higher};
use super::frame::{HEADER_BYTES, Purpose, header};
use super::log::{ChangeLog, Clocks, DayWatch, Waiting};
use super::record::{SavedEntry, Written, append_end, append_put};
use crate::tables::{SavedTable, TableBinding, TableStore};

/// A journal may have this many bytes, and twice the bytes of the snapshot, before another snapshot is made.
const JOURNAL_BYTES_MIN: u64 = 4 << 20;
/// Entries of a snapshot that are written before changes are written again.
const ENTRIES_AT_ONCE: usize = 1 << 16;
/// Pause after an error of the disk.
const RETRY: Duration = Duration::from_secs(2);
/// Snapshots that are kept, with the journals since then.
const SNAPSHOTS_KEPT: usize = 2;
/// The files of a snapshot until they are complete.
pub(super) const NEW_SNAPSHOT: &str = "tables.new";
const NEW_JOURNAL: &str = "journal.new";

/// Writes the dynamic tables of a store to a folder.
pub struct Saver {
    path: PathBuf,
    /// Set once it is open.
    folder: Arc<OnceLock<Folder>>,
    log: Arc<ChangeLog>,
    /// The journal with all changes since the last snapshot. `None` if some were lost: then only a snapshot helps.
    journal: Option<Journal>,
    /// Number of the last journal.
    number: u64,
    /// Bytes of the last snapshot.
    snapshot_bytes: u64,
    is_snapshot_due: bool,
    /// How often another folder was opened, when it was last looked at.
    reopened: u64,
    /// Notices a clock that was set, after which a snapshot says what is left of the timeouts.
    day: DayWatch,
    failed: Option<Instant>,
    /// Names of the files that are set aside, if the folder could not be read at the start.
    unread: Vec<String>,
}

/// The journal that is written.
struct Journal {
    file: File,
    bytes: u64,
}

impl Saver {
    /// A saver that writes to the folder at `path`. `folder` is the folder, if it could be opened and read already.
    /// All changes since then are in `log`.
    pub fn new(path: PathBuf, folder: Option<Folder>, log: Arc<ChangeLog>) -> Self {
        let mut saver = Saver {
            path,
            folder: Arc::default(),
            log,
            journal: None,
            number: 0,
            snapshot_bytes: 0,
            is_snapshot_due: false,
            reopened: 0,
            day: DayWatch::default(),
            failed: None,
            unread: Vec::new(),
        };
        if let Some(folder) = folder {
            // An error returns with the first step.
            saver.journal = saver.first_journal(&folder).ok();
            let _is_first = saver.folder.set(folder);
        }
        saver
    }

    /// A saver of debts for the same folder.
    pub fn debts(&self) -> DebtSaver {
        DebtSaver::new(self.folder.clone())
    }

    /// A saver of flows for the same folder.
    pub fn flows(&self) -> FlowSaver {
        FlowSaver::new(self.folder.clone())
    }

    /// Writes the changes that wait, and a snapshot if one is needed. To be called several times a second. `active` is
    /// the active generation.
    ///
    /// # Errors
    /// The disk refuses. A later call makes a snapshot of everything, but not before [`RETRY`]. Changes are written
    /// meanwhile, if the error was not in writing them.
    pub fn step(&mut self, store: &TableStore, active: Option<&TableBinding>) -> io::Result<()> {
        self.step_at(store, active, Clocks::now())
    }

    /// Like [`Saver::step`], at a time.
    ///
    /// # Errors
    /// As for [`Saver::step`].
    pub fn step_at(&mut self, store: &TableStore, active: Option<&TableBinding>, clocks: Clocks) -> io::Result<()> {
        self.is_snapshot_due |= self.day.has_moved(clocks);
        self.follow_folder()?;
        let waits = self.failed.is_some_and(|failed| failed.elapsed() < RETRY);
        if waits && self.journal.is_none() {
            return Ok(());
        }
        let waiting = self.log.take();
        let mut done = self.write_changes(&waiting);
        if done.is_ok() && self.is_snapshot_due && !waits {
            done = self.make_snapshot(store, active, clocks);
        }
        if done.is_err() {
            self.failed = Some(Instant::now());
        } else if !waits {
            self.failed = None;
        }
        done
    }

    /// Whether not everything up to the last step is on disk.
    pub fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Names of the files that are set aside, once: when a folder is open that could not be read at the start.
    pub fn take_unread(&mut self) -> Vec<String> {
        std::mem::take(&mut self.unread)
    }

    /// If another folder was opened, notes that nothing is in it.
    fn follow_folder(&mut self) -> io::Result<()> {
        let Some(folder) = self.folder.get() else { return Ok(()) };
        let reopened = folder.reopened();
        if reopened != self.reopened {
            (self.journal, self.unread) = (None, folder.unread()?);
            (self.reopened, self.is_snapshot_due) = (reopened, true);
        }
        Ok(())
    }

    /// Begins a journal that continues the journals in the folder, or the last snapshot if its journal is missing.
    fn first_journal(&mut self, folder: &Folder) -> io::Result<Journal> {
        let last = |kind: Numbered| folder.numbers(kind).map(|numbers| numbers.last().copied().unwrap_or(0));
        self.number = last(Numbered::Snapshot)?.max(higher(last(Numbered::Journal)?, 1)?);
        let name = Numbered::Journal.file(self.number);
        let journal = Journal::create(folder, &name, self.number);
        if journal.is_err() {
            // A journal without a header is as good as none.
            let _removed = folder.remove(&name);
        }
        journal
    }

    /// Writes changes to the journal, and notes whether a snapshot is due.
    fn write_changes(&mut self, waiting: &Waiting) -> io::Result<()> {
        if waiting.is_incomplete {
            self.journal = None;
        }
        self.is_snapshot_due |= waiting.wants_snapshot;
        let bytes_max = JOURNAL_BYTES_MIN.max(2 * self.snapshot_bytes);
        let written = self.journal.as_mut().map_or(Ok(()), |journal| journal.write(&waiting.bytes));
        if written.is_err() {
            // What was written last may be torn.
            self.journal = None;
        }
        self.is_snapshot_due |= self.journal.as_ref().is_none_or(|journal| journal.bytes >= bytes_max);
        written
    }

    fn make_snapshot(&mut self, store: &TableStore, active: Option<&TableBinding>, clocks: Clocks) -> io::Result<()> {
        let folder = self.folder.clone();
        if folder.get().is_none() {
            let opened = Folder::open(&self.path)?;
            // These files were not read, so they must not be removed.
            opened.set_all_aside()?;
            self.unread = opened.unread()?;
            let _is_first = folder.set(opened);
        }
        let folder = folder.get().expect("it was opened above");
        let made = self.write_snapshot(folder, store, active, clocks);
        match made {
            Ok(()) => self.day.note(clocks),
            // The disk may be full. What cannot be removed is replaced the next time.
            Err(_) => [NEW_SNAPSHOT, NEW_JOURNAL].iter().for_each(|name| _ = folder.remove(name)),
        }
        made
    }

    /// Writes a snapshot and the journal that follows it to new files. The old journal goes on until both have their
    /// names, so an error loses nothing.
    fn write_snapshot(
        &mut self,
        folder: &Folder,
        store: &TableStore,
        active: Option<&TableBinding>,
        clocks: Clocks,
    ) -> io::Result<()> {
        let file = folder.create(NEW_SNAPSHOT)?;
        // Creating the file may have opened another folder.
        self.follow_folder()?;
        let mut before = Waiting::default();
        // Changes from here on belong to the new journal. It has those that the tables include already before the
        // snapshot has its name.
        let tables = store.save(active, || before = self.log.take());
        self.write_changes(&before)?;
        // A number is left out where changes are missing. A reader stops there.
        let continues = self.journal.is_some();
        let number = higher(self.number.max(folder.last_number()?), if continues { 1 } else { 2 })?;
        let mut journal = Journal::create(folder, NEW_JOURNAL, number)?;
        let mut snapshot = SnapshotFile::create(file, number, clocks)?;
        let mut has_lost = false;
        for table in &tables {
            snapshot.write(table, |file| {
                if !has_lost {
                    let waiting = self.log.take();
                    if waiting.wants_snapshot {
                        self.log.demand_snapshot();
                    }
                    has_lost = waiting.is_incomplete;
                    self.write_changes(&waiting)?;
                    journal.write(if has_lost { &[] } else { &waiting.bytes })?;
                }
                file.sync_data()
            })?;
        }
        let snapshot_bytes = snapshot.end()?;
        let name = Numbered::Journal.file(number);
        folder.rename(NEW_JOURNAL, &name)?;
        // If changes were dropped meanwhile, the next step makes another snapshot.
        (self.journal, self.number) = (Some(journal).filter(|_| !has_lost), number);
        if let Err(error) = folder.publish(NEW_SNAPSHOT, &Numbered::Snapshot.file(number)) {
            if !continues {
                self.journal = None;
                let _removed = folder.remove(&name);
            }
            return Err(error);
        }
        (self.snapshot_bytes, self.is_snapshot_due) = (snapshot_bytes, has_lost);
        remove_old(folder)
    }
}

/// Removes all but the last snapshots and the journals since then.
fn remove_old(folder: &Folder) -> io::Result<()> {
    let snapshots = folder.numbers(Numbered::Snapshot)?;
    let Some(&first) = snapshots.iter().rev().nth(SNAPSHOTS_KEPT - 1) else { return Ok(()) };
    for (kind, numbers) in [(Numbered::Snapshot, snapshots), (Numbered::Journal, folder.numbers(Numbered::Journal)?)] {
        for number in numbers.into_iter().filter(|&number| number < first) {
            folder.remove(&kind.file(number))?;
        }
    }
    folder.sync()
}

impl Journal {
    fn create(folder: &Folder, name: &str, number: u64) -> io::Result<Self> {
        let mut file = folder.create(name)?;
        file.write_all(&header(Purpose::Journal, number))?;
        file.sync_all()?;
        folder.sync()?;
        Ok(Journal { file, bytes: HEADER_BYTES as u64 })
    }

    /// Appends frames, for good.
    fn write(&mut self, frames: &[u8]) -> io::Result<()> {
        if frames.is_empty() {
            return Ok(());
        }
        self.file.write_all(frames)?;
        self.bytes += frames.len() as u64;
        self.file.sync_data()
    }
}

/// A snapshot while it is written.
pub(super) struct SnapshotFile {
    file: File,
    frames: u64,
    bytes: u64,
    clocks: Clocks,
}

impl SnapshotFile {
    pub(super) fn create(mut file: File, number: u64, clocks: Clocks) -> io::Result<Self> {
        file.write_all(&header(Purpose::Snapshot, number))?;
        Ok(SnapshotFile { file, frames: 0, bytes: HEADER_BYTES as u64, clocks })
    }

    /// Writes a table. `between` runs after each piece of it.
    pub(super) fn write(
        &mut self,
        table: &SavedTable,
        mut between: impl FnMut(&File) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut entries = table.saved(self.clocks);
        // A table without entries has one record too.
        let mut is_first = true;
        loop {
            let some: Vec<SavedEntry<'_>> = entries.by_ref().take(ENTRIES_AT_ONCE).collect();
            if some.is_empty() && !is_first {
                return Ok(());
            }
            is_first = false;
            let mut frames = Vec::new();
            let written = Written { at_ms: self.clocks.present_ms(), entries: &some[..] };
            self.frames += append_put(&mut frames, &table.key, written, false);
            self.file.write_all(&frames)?;
            self.bytes += frames.len() as u64;
            between(&self.file)?;
        }
    }

    /// Completes the file. Returns its bytes.
    pub(super) fn end(mut self) -> io::Result<u64> {
        let mut frame = Vec::new();
        append_end(&mut frame, self.frames);
        self.file.write_all(&frame)?;
        self.file.sync_all()?;
        Ok(self.bytes + frame.len() as u64)
    }
}
