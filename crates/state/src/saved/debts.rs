//! The file with the debts of limits. It is written anew each time.
//!
//! ```text
//!   frame    name: length u16, bytes    written u64    count u32 of debts, each
//!     entry    kind u8: 0 the first, 4 or 6 a prefix: address, length u8, 1 a label: length u8, bytes
//!     limiter u32   until u64: the time of day at which the bucket is full, in nanoseconds since 1970
//!   last     length 0xffff, count u64 of the frames before it
//! ```
//! `written` is the time of day of the frame: a bucket then was in debt for `until - written`, and never gets more.
//! Version 1 of the format has no `written`; the time at which the file was last changed takes its place.

use std::io::{self, Write};
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::cursor::Cursor;
use super::folder::{DEBTS, Folder};
use super::frame::{FrameReader, Purpose, append_frame, header, is_of_other_version};
use super::log::Clocks;
use super::record::append_prefix;
use super::state_file::StateFile;
use crate::limits::{EntryName, LimitStore, SavedDebt, SavedDebts};

/// Interval of writing debts, and how much longer it is at least than the writing.
const INTERVAL: Duration = Duration::from_secs(1);
const SHARE: u32 = 20;
/// Bytes that are written and synced at once, so that the disk has time for the journal between them.
const PIECE_BYTES: usize = 1 << 20;
/// Number of debts in a frame.
const FRAME_DEBTS_MAX: usize = 1 << 14;
/// The length of no name.
const LAST: u16 = u16::MAX;
/// The file that is written.
const NEW: &str = "debts.new";

const FIRST: u8 = 0;
const LABEL: u8 = 1;
const PREFIX4: u8 = 4;
const PREFIX6: u8 = 6;

/// Writes the debts of limits to a folder. It belongs to a thread of its own: millions of debts take seconds on a slow
/// disk, and changes of tables must not wait for them.
pub struct DebtSaver {
    folder: Arc<OnceLock<Folder>>,
    /// When debts are written again.
    due: Option<Instant>,
    has_failed: bool,
}

impl DebtSaver {
    /// A saver that writes to the folder as soon as it is open.
    pub(super) fn new(folder: Arc<OnceLock<Folder>>) -> Self {
        DebtSaver { folder, due: None, has_failed: false }
    }

    /// Writes the debts of limits, at most once a second and for a twentieth of the time.
    ///
    /// # Errors
    /// The disk refuses. The previous file stays.
    pub fn step(&mut self, limits: &LimitStore) -> io::Result<()> {
        let begun = Instant::now();
        let Some(folder) = self.folder.get().filter(|_| self.due.is_none_or(|due| due <= begun)) else {
            return Ok(());
        };
        let clocks = Clocks::now();
        let written = write(folder, &limits.debts(clocks.now_ns), clocks);
        if written.is_err() {
            // The disk may be full. What cannot be removed is replaced the next time.
            let _removed = folder.remove(NEW);
        }
        self.has_failed = written.is_err();
        self.due = Some(begun + INTERVAL.max(SHARE * begun.elapsed()));
        written
    }

    /// Whether the last attempt failed.
    pub fn has_failed(&self) -> bool {
        self.has_failed
    }
}

/// Writes debts to the file.
pub(super) fn write(folder: &Folder, debts: &[SavedDebts], clocks: Clocks) -> io::Result<()> {
    let mut file = folder.create(NEW)?;
    let mut bytes = header(Purpose::Debts, 0);
    let mut frames = 0u64;
    for list in debts {
        for some in list.debts.chunks(FRAME_DEBTS_MAX) {
            append_frame(&mut bytes, |bytes| {
                bytes.extend((list.name.len() as u16).to_le_bytes());
                bytes.extend(list.name.as_bytes());
                bytes.extend(clocks.day_ns.to_le_bytes());
                bytes.extend((some.len() as u32).to_le_bytes());
                some.iter().for_each(|debt| append(bytes, debt, clocks));
            });
            frames += 1;
            if bytes.len() >= PIECE_BYTES {
                file.write_all(&bytes)?;
                file.sync_data()?;
                bytes.clear();
            }
        }
    }
    append_frame(&mut bytes, |bytes| {
        bytes.extend(LAST.to_le_bytes());
        bytes.extend(frames.to_le_bytes());
    });
    file.write_all(&bytes)?;
    file.sync_data()?;
    folder.publish(NEW, DEBTS)
}

fn append(bytes: &mut Vec<u8>, debt: &SavedDebt, clocks: Clocks) {
    match &debt.entry {
        EntryName::First => bytes.push(FIRST),
        EntryName::Prefix(addr, len) => {
            bytes.push(if addr.is_ipv4() { PREFIX4 } else { PREFIX6 });
            append_prefix(bytes, (*addr, *len));
        }
        EntryName::Label(label) => {
            bytes.extend([LABEL, label.len() as u8]);
            bytes.extend(label.as_bytes());
        }
    }
    bytes.extend(debt.limiter.to_le_bytes());
    bytes.extend(clocks.day_at_ns(debt.until_ns).to_le_bytes());
}

/// Reads the debts that are not paid yet. Without a file there are none. A file that cannot be used is told in
/// `notices`; then there are none either. It is set aside if it cannot be read, or if another version of Weir wrote it.
///
/// # Errors
/// The file cannot be set aside.
pub(super) fn read(folder: &Folder, clocks: Clocks, notices: &mut Vec<String>) -> io::Result<Vec<SavedDebts>> {
    let (problem, is_kept) = match folder.read(DEBTS) {
        Ok(None) => return Ok(Vec::new()),
        Err(problem) => (problem, true),
        Ok(Some(file)) => match parse(&file, clocks) {
            Ok(debts) => return Ok(debts),
            Err(problem) => (problem, is_of_other_version(&file.head(), Purpose::Debts)),
        },
    };
    let kept = if is_kept { format!("; it is kept as {}", folder.set_aside(DEBTS)?) } else { String::new() };
    notices.push(format!("{}: {problem}{kept}; limits begin with full buckets", folder.shown(DEBTS)));
    Ok(Vec::new())
}

fn parse(file: &StateFile, clocks: Clocks) -> Result<Vec<SavedDebts>, String> {
    let reader = file.reader().map_err(|error| error.to_string())?;
    let mut frames = FrameReader::open_numbered(reader, Purpose::Debts, 0)?;
    let written_ns = (frames.version() < 2).then(|| file.modified_ns());
    let mut all: Vec<SavedDebts> = Vec::new();
    let mut count = 0;
    loop {
        let at = frames.at();
        let payload = frames.next().map_err(|damage| format!("byte {at}: {damage}"))?;
        let payload = payload.ok_or_else(|| format!("byte {at}: the end is missing"))?;
        match frame(payload, written_ns, clocks).ok_or_else(|| format!("byte {at}: unknown record"))? {
            Frame::Last(frames) if frames == count => return Ok(all),
            Frame::Last(_) => return Err(format!("byte {at}: frames are missing")),
            Frame::Debts(more) => match all.last_mut().filter(|last| last.name == more.name) {
                Some(last) => last.debts.extend(more.debts),
                None => all.push(more),
            },
        }
        count += 1;
    }
}

enum Frame {
    Debts(SavedDebts),
    Last(u64),
}

/// Reads a frame. `written_ns` is the time of day at which it was written, if it does not say that itself.
fn frame(payload: &[u8], written_ns: Option<u64>, clocks: Clocks) -> Option<Frame> {
    let mut cursor = Cursor(payload);
    let length = cursor.u16()?;
    if length == LAST {
        return cursor.u64().map(Frame::Last).filter(|_| cursor.0.is_empty());
    }
    let name = cursor.text(usize::from(length))?.to_owned();
    let written_ns = written_ns.or_else(|| cursor.u64())?;
    let debts = cursor.list(|cursor| {
        let entry = entry(cursor)?;
        let (limiter, until) = (cursor.u32()?, cursor.u64()?);
        Some(clocks.at_day_ns(until, written_ns).map(|until_ns| SavedDebt { entry, limiter, until_ns }))
    })?;
    let debts = debts.into_iter().flatten().collect();
    cursor.0.is_empty().then_some(Frame::Debts(SavedDebts { name, debts }))
}

fn entry(cursor: &mut Cursor<'_>) -> Option<EntryName> {
    let prefix = |(addr, len): (IpAddr, u8)| EntryName::Prefix(addr, len);
    match cursor.u8()? {
        FIRST => Some(EntryName::First),
        PREFIX4 => cursor.prefix(false).map(prefix),
        PREFIX6 => cursor.prefix(true).map(prefix),
        LABEL => {
            let length = usize::from(cursor.u8()?);
            Some(EntryName::Label(cursor.text(length)?.into()))
        }
        _ => None,
    }
}
