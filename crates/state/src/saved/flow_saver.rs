//! Writes established flows to a file, while packets pass.
//!
//! ```text
//!   table of flows ──some slots at a time──> what has changed ──> flows
//!                                        └─> what is there ─────> flows.new      if `flows` is too large, or there is none
//! ```
//! A mark for each slot says which flow is on disk. A pass goes over all slots and writes records of those whose flow
//! is another one, has another state, or is used again after some time. So a flow that is used all the time is written
//! again rarely, and one that does not change is not. If the file has become large, a pass writes all flows to a new
//! one besides. That replaces the file when the pass is complete; until then the file goes on.
//!
//! Packets wait for nothing: slots are read as `weir ctl flows` reads them.

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use weir_abi::flow::{Proxied, TICKS, Timeouts, age, ticks, timeout_ticks};

use super::flow_record::{FRAME_RECORDS_MAX, FrameTime, Record, append, is_kept};
use super::folder::{FLOWS, Folder};
use super::frame::{HEADER_BYTES, Purpose, header};
use super::log::{Clocks, DayWatch};
use crate::flows::{FlowTable, KnownFlow, Slot};

/// Slots that a step reads, at least four times a second.
const SLOTS_AT_ONCE: usize = 1 << 18;
/// Time from the beginning of a pass to the beginning of the next.
const PASS: Duration = Duration::from_secs(1);
/// The pause after a step is this many times as long as the step.
const SHARE: u32 = 4;
/// Bytes after which a file is synced, so that the disk has time for other files in between.
const PIECE_BYTES: usize = 1 << 20;
/// A file may have this many bytes, and twice the bytes of its flows alone, before another one is made.
const FILE_BYTES_MIN: u64 = 4 << 20;
/// The record of a flow in use is written again after an eighth of its timeout, and after this time at the latest.
const RENEWED_MS: u64 = 60_000;
const RENEWED_SHARE: u32 = 8;
/// The file that is written until it is complete.
const NEW: &str = "flows.new";
/// Pause after an error of the disk.
const RETRY: Duration = Duration::from_secs(2);

/// Writes the flows of a table to a folder. It belongs to a thread of its own.
pub struct FlowSaver {
    folder: Arc<OnceLock<Folder>>,
    watched: Option<Watched>,
    /// How often another folder was opened, when it was last looked at.
    reopened: u64,
    /// Notices a clock that was set, after which all flows are written again.
    day: DayWatch,
    due: Option<Instant>,
    has_failed: bool,
}

/// The table whose flows are written.
struct Watched {
    table: Weak<FlowTable>,
    /// What is on disk of each slot: 0 is nothing, else [`Watched::mark`].
    marks: Vec<u64>,
    /// Makes it unlikely that two flows have one mark, even if an attacker chooses their keys.
    seed: u64,
    /// Where the next step begins.
    next: usize,
    began: Instant,
    /// The file, once there is one of this table.
    log: Option<FlowFile>,
    /// The file that replaces it at the end of the pass.
    new: Option<FlowFile>,
    /// Bytes of the file when it was new.
    new_bytes: u64,
}

impl FlowSaver {
    /// A saver that writes to the folder as soon as it is open.
    pub(super) fn new(folder: Arc<OnceLock<Folder>>) -> Self {
        FlowSaver { folder, watched: None, reopened: 0, day: DayWatch::default(), due: None, has_failed: false }
    }

    /// Writes what has changed in some of the slots, at most for a fifth of the time. To be called several times a
    /// second. The timeouts are the timeouts of the active policy. Without a table, the file stays as it is.
    ///
    /// # Errors
    /// The disk refuses. A later call writes all flows to a new file, but not before [`RETRY`].
    pub fn step(&mut self, table: Option<(&Arc<FlowTable>, &Timeouts)>) -> io::Result<()> {
        match self.due.is_some_and(|due| due > Instant::now()) {
            true => Ok(()),
            false => self.write(table, SLOTS_AT_ONCE, PASS),
        }
    }

    /// Writes what has changed in all slots.
    ///
    /// # Errors
    /// The disk refuses.
    pub fn complete(&mut self, table: Option<(&Arc<FlowTable>, &Timeouts)>) -> io::Result<()> {
        // The rest of a pass, and a whole one.
        self.write(table, usize::MAX, Duration::ZERO)?;
        self.write(table, usize::MAX, Duration::ZERO)
    }

    /// Whether the last attempt failed.
    pub fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Goes on with a pass for up to `slots` slots, or begins the next if it is due.
    fn write(&mut self, table: Option<(&Arc<FlowTable>, &Timeouts)>, slots: usize, pass: Duration) -> io::Result<()> {
        let (Some(folder), Some((table, timeouts))) = (self.folder.get(), table) else {
            self.watched = None;
            return Ok(());
        };
        let (begun, clocks) = (Instant::now(), Clocks::now());
        if self.day.has_moved(clocks) || self.reopened != folder.reopened() {
            // The times in the file are times of the former clock, or the file is in another folder.
            self.watched = None;
            self.day.note(clocks);
            self.reopened = folder.reopened();
        }
        let is_same = |watched: &Watched| watched.table.as_ptr() == Arc::as_ptr(table);
        let watched = match self.watched.take().filter(is_same) {
            Some(watched) => self.watched.insert(watched),
            None => self.watched.insert(Watched::of(table)),
        };
        let written = match watched.next > 0 || watched.log.is_none() || watched.began.elapsed() >= pass {
            true => watched.step(folder, table, timeouts, slots),
            false => Ok(()),
        };
        self.has_failed = written.is_err();
        if self.has_failed {
            // What was written last may be torn. The disk may be full: what cannot be removed is replaced the next
            // time.
            self.watched = None;
            let _removed = folder.remove(NEW);
        }
        self.due = Some(begun + if self.has_failed { RETRY } else { (1 + SHARE) * begun.elapsed() });
        written
    }
}

impl Watched {
    fn of(table: &Arc<FlowTable>) -> Self {
        let (marks, seed) = (vec![0; table.slot_count()], RandomState::new().hash_one(()));
        let (table, began) = (Arc::downgrade(table), Instant::now());
        Watched { table, marks, seed, next: 0, began, log: None, new: None, new_bytes: 0 }
    }

    fn step(&mut self, folder: &Folder, table: &FlowTable, timeouts: &Timeouts, slots: usize) -> io::Result<()> {
        if self.next == 0 {
            self.began = Instant::now();
            let bytes_max = FILE_BYTES_MIN.max(2 * self.new_bytes);
            if self.log.as_ref().is_none_or(|log| log.bytes > bytes_max) {
                self.new = Some(FlowFile::create(folder, self.marks.len())?);
            }
        }
        let end = self.marks.len().min(self.next.saturating_add(slots));
        while self.next < end {
            let until = end.min(self.next + FRAME_RECORDS_MAX);
            let clocks = Clocks::now();
            let time = FrameTime { day_ns: clocks.day_ns, now: ticks(clocks.now_ns) };
            let (changed, all) = self.records(table, timeouts, time.now, until);
            for (file, records) in [(&mut self.log, &changed), (&mut self.new, &all)] {
                file.as_mut().map_or(Ok(()), |file| file.write(time, records))?;
            }
            self.next = until;
        }
        for file in [&mut self.log, &mut self.new] {
            file.as_mut().map_or(Ok(()), FlowFile::sync)?;
        }
        if self.next == self.marks.len() {
            self.next = 0;
            if let Some(new) = self.new.take() {
                folder.publish(NEW, FLOWS)?;
                self.new_bytes = new.bytes;
                self.log = Some(new);
            }
        }
        Ok(())
    }

    /// The records of the slots from the next one on: those that have changed, and, if there is a new file, all flows.
    /// Marks them as written.
    fn records(
        &mut self,
        table: &FlowTable,
        timeouts: &Timeouts,
        now: u32,
        until: usize,
    ) -> (Vec<Record>, Vec<Record>) {
        let (mut changed, mut all) = (Vec::new(), Vec::new());
        for number in self.next..until {
            let (mark, slot) = (self.marks[number], number as u32);
            let flow = match table.slot(number) {
                Slot::Flow(known) => Some(known)
                    .filter(|known| is_kept(known) && !timeouts.has_passed(&known.flow, known.key.protocol(), now)),
                // The next pass finds it changed.
                Slot::Busy | Slot::Free => None,
            };
            let Some(known) = flow else {
                if mark != 0 {
                    changed.push(Record { slot, flow });
                    self.marks[number] = 0;
                }
                continue;
            };
            let current = self.mark(&known);
            let is_due = is_older(mark, current, timeouts.of(&known.flow, known.key.protocol()));
            if is_due {
                changed.push(Record { slot, flow });
            }
            if self.new.is_some() {
                all.push(Record { slot, flow });
            }
            if is_due || self.new.is_some() {
                self.marks[number] = current;
            }
        }
        (changed, all)
    }

    /// The mark of a flow on disk: the time of its last packet in the low 32 bits, and a hash of the rest in the
    /// others.
    fn mark(&self, KnownFlow { key, flow, proxied }: &KnownFlow) -> u64 {
        let words = key.words.into_iter().chain([u64::from(key.is_ipv6) << 8 | flow.state as u64]);
        let words = words.chain(proxied.iter().flat_map(Proxied::pack));
        let mixed = words.fold(self.seed, |hash, word| {
            let product = u128::from(hash ^ word) * 0x9e37_79b9_7f4a_7c15;
            (product >> 64) as u64 ^ product as u64
        });
        mixed << 32 | 1 << 31 | u64::from(flow.time)
    }
}

/// Whether a record with the mark `old` does not do for the flow with the mark `new`, whose timeout in ticks is given.
fn is_older(old: u64, new: u64, timeout: u32) -> bool {
    let time = |mark: u64| mark as u32 & (TICKS - 1);
    let renewed = timeout_ticks(RENEWED_MS).min(timeout / RENEWED_SHARE);
    old >> 31 != new >> 31 || age(time(new), time(old)) > renewed
}

/// The file while it is written.
struct FlowFile {
    file: File,
    bytes: u64,
    unsynced: usize,
}

impl FlowFile {
    fn create(folder: &Folder, slots: usize) -> io::Result<Self> {
        let mut file = folder.create(NEW)?;
        file.write_all(&header(Purpose::Flows, slots as u64))?;
        Ok(FlowFile { file, bytes: HEADER_BYTES as u64, unsynced: HEADER_BYTES })
    }

    fn write(&mut self, time: FrameTime, records: &[Record]) -> io::Result<()> {
        let mut bytes = Vec::new();
        append(&mut bytes, time, records);
        self.file.write_all(&bytes)?;
        self.bytes += bytes.len() as u64;
        self.unsynced += bytes.len();
        if self.unsynced >= PIECE_BYTES { self.sync() } else { Ok(()) }
    }

    fn sync(&mut self) -> io::Result<()> {
        if self.unsynced > 0 {
            self.file.sync_data()?;
        }
        self.unsynced = 0;
        Ok(())
    }
}
