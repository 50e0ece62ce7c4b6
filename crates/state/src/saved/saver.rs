//! Writes changes and snapshots to the folder.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::debts;
use super::folder::{Folder, JOURNAL, SNAPSHOT};
use super::frame::{HEADER_BYTES, Purpose, header};
use super::log::{ChangeLog, Clocks, Waiting};
use super::record::{SavedEntry, append_end, append_put};
use crate::limits::LimitStore;
use crate::tables::{SavedTable, TableBinding, TableStore};

/// A journal may have this many bytes, and twice those of the snapshot, before another snapshot is made.
const JOURNAL_BYTES_MIN: u64 = 4 << 20;
/// Entries of a snapshot that are written before changes are written again.
const ENTRIES_AT_ONCE: usize = 1 << 16;
/// Pause after an error of the disk.
const RETRY: Duration = Duration::from_secs(2);
/// Interval of writing debts, and how much longer it is at least than the writing.
const DEBTS_INTERVAL: Duration = Duration::from_secs(1);
const DEBTS_SHARE: u32 = 20;
/// Snapshots that are kept, with the journals since then.
const SNAPSHOTS_KEPT: usize = 2;

/// Writes the dynamic tables of a store to a folder.
pub struct Saver {
    path: PathBuf,
    folder: Option<Folder>,
    log: Arc<ChangeLog>,
    journal: Option<Journal>,
    /// Bytes of the last snapshot.
    snapshot_bytes: u64,
    failed: Option<Instant>,
    /// When debts are written again.
    debts_due: Option<Instant>,
    debts_failed: bool,
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
        let (journal, snapshot_bytes, failed, debts_due, debts_failed) = (None, 0, None, None, false);
        let mut saver = Saver { path, folder, log, journal, snapshot_bytes, failed, debts_due, debts_failed };
        if saver.folder.is_some() {
            // An error returns with the first step.
            saver.journal = saver.begin_journal().ok().map(|(_, journal)| journal);
        }
        saver
    }

    /// Writes the changes that wait, and a snapshot if one is needed. To be called several times a second. `active` is
    /// the active generation.
    ///
    /// # Errors
    /// The disk refuses. A later call makes a snapshot of everything, but not before [`RETRY`].
    pub fn step(&mut self, store: &TableStore, active: Option<&TableBinding>) -> io::Result<()> {
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

    /// Writes the debts of limits, at most once a second and for a twentieth of the time.
    ///
    /// # Errors
    /// The disk refuses.
    pub fn write_debts(&mut self, limits: &LimitStore) -> io::Result<()> {
        let begun = Instant::now();
        let Some(folder) = self.folder.as_ref().filter(|_| self.debts_due.is_none_or(|due| due <= begun)) else {
            return Ok(());
        };
        let clocks = Clocks::now();
        let written = debts::write(folder, &limits.debts(clocks.now_ns), clocks);
        self.debts_failed = written.is_err();
        self.debts_due = Some(begun + DEBTS_INTERVAL.max(DEBTS_SHARE * begun.elapsed()));
        written
    }

    /// Whether everything up to the last step is on disk.
    pub fn has_failed(&self) -> bool {
        self.failed.is_some() || self.debts_failed
    }

    fn try_step(&mut self, store: &TableStore, active: Option<&TableBinding>) -> io::Result<()> {
        let Waiting { bytes, is_incomplete, wants_snapshot } = self.log.take();
        if is_incomplete {
            self.journal = None;
        }
        if let Some(journal) = &mut self.journal {
            journal.write(&bytes)?;
            if !wants_snapshot && journal.bytes < JOURNAL_BYTES_MIN.max(2 * self.snapshot_bytes) {
                return Ok(());
            }
        }
        self.make_snapshot(store, active)
    }

    /// Begins a journal that continues the last one, or the next snapshot.
    fn begin_journal(&mut self) -> io::Result<(u64, Journal)> {
        if self.folder.is_none() {
            self.folder = Some(Folder::open(&self.path)?);
        }
        let folder = self.folder.as_ref().expect("it was opened above");
        let number = 1 + folder.last_number()?;
        Ok((number, Journal::create(folder, number)?))
    }

    fn make_snapshot(&mut self, store: &TableStore, active: Option<&TableBinding>) -> io::Result<()> {
        let (number, mut journal) = self.begin_journal()?;
        let mut before = Waiting::default();
        // Changes from here on belong to the new journal.
        let tables = store.save(active, || before = self.log.take());
        // Until the snapshot is complete, the new journal must continue the old one. Otherwise it would have later
        // changes without earlier ones.
        let mut continues = self.journal.is_some() && !before.is_incomplete;
        let mut has_lost = false;
        if let Some(mut old) = self.journal.take().filter(|_| continues) {
            old.write(&before.bytes)?;
        }
        let folder = self.folder.as_ref().expect("a journal was begun in it");
        let new = folder.file("tables.new");
        let mut snapshot = SnapshotFile::create(folder.create(&new)?, number)?;
        for table in &tables {
            snapshot.write(table, |file| {
                if continues {
                    let Waiting { bytes, is_incomplete, wants_snapshot } = self.log.take();
                    if wants_snapshot {
                        self.log.demand_snapshot();
                    }
                    (continues, has_lost) = (!is_incomplete, is_incomplete);
                    journal.write(if continues { &bytes } else { &[] })?;
                }
                file.sync_data()
            })?;
        }
        self.snapshot_bytes = snapshot.end()?;
        folder.publish(&new, &folder.numbered(number, SNAPSHOT))?;
        remove_old(folder)?;
        // If changes were dropped meanwhile, the next step makes another snapshot.
        self.journal = Some(journal).filter(|_| !has_lost);
        Ok(())
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
