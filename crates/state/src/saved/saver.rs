//! Writes changes and snapshots to the folder.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::debts::DebtSaver;
use super::flow_saver::FlowSaver;
use super::folder::{Folder, JOURNAL, SNAPSHOT};
use super::frame::{HEADER_BYTES, Purpose, header};
use super::log::{ChangeLog, Clocks, Waiting};
use super::record::{SavedEntry, append_end, append_put};
use crate::tables::{SavedTable, TableBinding, TableStore};

/// A journal may have this many bytes, and twice those of the snapshot, before another snapshot is made.
const JOURNAL_BYTES_MIN: u64 = 4 << 20;
/// Entries of a snapshot that are written before changes are written again.
const ENTRIES_AT_ONCE: usize = 1 << 16;
/// Pause after an error of the disk.
const RETRY: Duration = Duration::from_secs(2);
/// Snapshots that are kept, with the journals since then.
const SNAPSHOTS_KEPT: usize = 2;

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
        let waits = self.failed.is_some_and(|failed| failed.elapsed() < RETRY);
        if waits && self.journal.is_none() {
            return Ok(());
        }
        let waiting = self.log.take();
        let mut done = self.write_changes(&waiting);
        if done.is_ok() && self.is_snapshot_due && !waits {
            done = self.make_snapshot(store, active);
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

    /// Begins a journal that continues those in the folder, or the last snapshot if its journal is missing.
    fn first_journal(&mut self, folder: &Folder) -> io::Result<Journal> {
        let last = |kind: &str| folder.numbers(kind).map(|numbers| numbers.last().copied().unwrap_or(0));
        self.number = last(SNAPSHOT)?.max(last(JOURNAL)? + 1);
        let path = folder.numbered(self.number, JOURNAL);
        let journal = Journal::create(folder, &path, self.number);
        if journal.is_err() {
            // A journal without a header is as good as none.
            let _removed = fs::remove_file(path);
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

    fn make_snapshot(&mut self, store: &TableStore, active: Option<&TableBinding>) -> io::Result<()> {
        let folder = self.folder.clone();
        if folder.get().is_none() {
            let opened = Folder::open(&self.path)?;
            // Nobody has read these files, so nobody may remove them.
            opened.set_all_aside()?;
            self.unread = opened.unread()?;
            let _is_first = folder.set(opened);
        }
        let folder = folder.get().expect("it was opened above");
        let new = [folder.file("tables.new"), folder.file("journal.new")];
        let made = self.write_snapshot(folder, &new, store, active);
        if made.is_err() {
            // The disk may be full. What cannot be removed is replaced the next time.
            new.iter().for_each(|file| _ = fs::remove_file(file));
        }
        made
    }

    /// Writes a snapshot and the journal that follows it to new files. The old journal goes on until both have their
    /// names, so an error loses nothing.
    fn write_snapshot(
        &mut self,
        folder: &Folder,
        [new, new_journal]: &[PathBuf; 2],
        store: &TableStore,
        active: Option<&TableBinding>,
    ) -> io::Result<()> {
        let file = folder.create(new)?;
        let mut before = Waiting::default();
        // Changes from here on belong to the new journal. It has those that the tables include already before the
        // snapshot has its name.
        let tables = store.save(active, || before = self.log.take());
        self.write_changes(&before)?;
        // A number is left out where changes are missing. A reader stops there.
        let continues = self.journal.is_some();
        let number = self.number.max(folder.last_number()?) + if continues { 1 } else { 2 };
        let mut journal = Journal::create(folder, new_journal, number)?;
        let mut snapshot = SnapshotFile::create(file, number)?;
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
        let path = folder.numbered(number, JOURNAL);
        fs::rename(new_journal, &path)?;
        // If changes were dropped meanwhile, the next step makes another snapshot.
        (self.journal, self.number) = (Some(journal).filter(|_| !has_lost), number);
        if let Err(error) = folder.publish(new, &folder.numbered(number, SNAPSHOT)) {
            if !continues {
                self.journal = None;
                let _removed = fs::remove_file(path);
            }
            return Err(error);
        }
        (self.snapshot_bytes, self.is_snapshot_due) = (snapshot_bytes, has_lost);
        remove_old(folder)
    }
}

/// Removes all but the last snapshots and the journals since then.
fn remove_old(folder: &Folder) -> io::Result<()> {
    let snapshots = folder.numbers(SNAPSHOT)?;
    let Some(&first) = snapshots.iter().rev().nth(SNAPSHOTS_KEPT - 1) else { return Ok(()) };
    for (kind, numbers) in [(SNAPSHOT, snapshots), (JOURNAL, folder.numbers(JOURNAL)?)] {
        for number in numbers.into_iter().filter(|&number| number < first) {
            fs::remove_file(folder.numbered(number, kind))?;
        }
    }
    folder.sync()
}

impl Journal {
    fn create(folder: &Folder, path: &Path, number: u64) -> io::Result<Self> {
        let mut file = folder.create(path)?;
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
struct SnapshotFile {
    file: File,
    frames: u64,
    bytes: u64,
    clocks: Clocks,
}

impl SnapshotFile {
    fn create(mut file: File, number: u64) -> io::Result<Self> {
        file.write_all(&header(Purpose::Snapshot, number))?;
        Ok(SnapshotFile { file, frames: 0, bytes: HEADER_BYTES as u64, clocks: Clocks::now() })
    }

    /// Writes a table. `between` runs after each piece of it.
    fn write(&mut self, table: &SavedTable, mut between: impl FnMut(&File) -> io::Result<()>) -> io::Result<()> {
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
            self.frames += append_put(&mut frames, &table.key, &some, false);
            self.file.write_all(&frames)?;
            self.bytes += frames.len() as u64;
            between(&self.file)?;
        }
    }

    /// Completes the file. Returns its bytes.
    fn end(mut self) -> io::Result<u64> {
        let mut frame = Vec::new();
        append_end(&mut frame, self.frames);
        self.file.write_all(&frame)?;
        self.file.sync_all()?;
        Ok(self.bytes + frame.len() as u64)
    }
}
