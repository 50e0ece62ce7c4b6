//! Writes changes and snapshots to the folder.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

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
    folder: Option<Folder>,
    log: Arc<ChangeLog>,
    journal: Option<Journal>,
    /// Number of the last snapshot and its bytes.
    snapshot: (u64, u64),
    failed: Option<Instant>,
}

/// The journal that is written.
struct Journal {
    file: File,
    bytes: u64,
}

impl Saver {
    /// A saver that writes to the folder at `path`. `folder` is the folder, if it could be opened already.
    pub fn new(path: PathBuf, folder: Option<Folder>, log: Arc<ChangeLog>) -> Self {
        Saver { path, folder, log, journal: None, snapshot: (0, 0), failed: None }
    }

    /// Writes the changes that wait, and a snapshot if one is needed. To be called several times a second. `active` is
    /// the active generation.
    ///
    /// # Errors
    /// The disk refuses. A later call makes a snapshot of everything, but not before [`RETRY`].
    pub fn step(&mut self, store: &TableStore, active: &TableBinding) -> io::Result<()> {
        if self.failed.is_some_and(|failed| failed.elapsed() < RETRY) {
            return Ok(());
        }
        let done = self.try_step(store, active);
        self.failed = done.is_err().then(Instant::now);
        if done.is_err() {
            // What was written last may be torn.
            self.journal = None;
        }
        done
    }

    /// Whether everything up to the last step is on disk.
    pub fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    fn try_step(&mut self, store: &TableStore, active: &TableBinding) -> io::Result<()> {
        let Waiting { bytes, is_incomplete } = self.log.take();
        let (_, snapshot_bytes) = self.snapshot;
        if let Some(journal) = &mut self.journal {
            journal.write(&bytes)?;
            if !is_incomplete && journal.bytes < JOURNAL_BYTES_MIN.max(2 * snapshot_bytes) {
                return Ok(());
            }
        }
        self.make_snapshot(store, active)
    }

    fn make_snapshot(&mut self, store: &TableStore, active: &TableBinding) -> io::Result<()> {
        if self.folder.is_none() {
            self.folder = Some(Folder::open(&self.path)?);
        }
        let folder = self.folder.as_ref().expect("it was opened above");
        let last = [SNAPSHOT, JOURNAL].map(|kind| folder.numbers(kind).map(|all| all.last().copied().unwrap_or(0)));
        let [snapshots, journals] = last;
        let number = snapshots?.max(journals?).max(self.snapshot.0) + 1;
        let mut journal = Journal::create(folder, number)?;
        let mut before = Waiting::default();
        // Changes from here on belong to the new journal.
        let tables = store.save(active, || before = self.log.take());
        if let Some(old) = &mut self.journal {
            old.write(&before.bytes)?;
        }
        self.journal = None;
        let (new, path) = (folder.file("tables.new"), folder.numbered(number, SNAPSHOT));
        let mut snapshot = SnapshotFile::create(folder.create(&new)?, number)?;
        for table in &tables {
            snapshot.write(table, |at_once| {
                let Waiting { bytes, is_incomplete } = self.log.take();
                if is_incomplete {
                    self.log.demand_snapshot();
                }
                journal.write(&bytes)?;
                at_once.sync_data()
            })?;
        }
        let bytes = snapshot.end()?;
        folder.publish(&new, &path)?;
        self.journal = Some(journal);
        self.snapshot = (number, bytes);
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
    fn create(folder: &Folder, number: u64) -> io::Result<Self> {
        let mut file = folder.create(&folder.numbered(number, JOURNAL))?;
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
