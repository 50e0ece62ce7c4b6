//! The file with the debts of limits. It is written anew each time.
//!
//! ```text
//!   frame    name: length u16, bytes    count u32 of debts, each
//!     entry    kind u8: 0 the first, 4 or 6 a prefix: address, length u8, 1 a label: length u8, bytes
//!     limiter u32   until u64: the time of day at which the bucket is full, in nanoseconds since 1970
//!   last     length 0xffff, count u64 of the frames before it
//! ```

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::net::IpAddr;

use super::cursor::Cursor;
use super::folder::Folder;
use super::frame::{Frames, Purpose, append_frame, header};
use super::log::Clocks;
use super::record::append_prefix;
use crate::limits::{EntryName, SavedDebt, SavedDebts};

const FILE: &str = "debts";
/// Number of debts in a frame.
const FRAME_DEBTS_MAX: usize = 1 << 14;
/// The length of no name.
const LAST: u16 = u16::MAX;

const FIRST: u8 = 0;
const LABEL: u8 = 1;
const PREFIX4: u8 = 4;
const PREFIX6: u8 = 6;

/// Writes all debts.
///
/// # Errors
/// The disk refuses. The previous file stays.
pub(super) fn write(folder: &Folder, debts: &[SavedDebts], clocks: Clocks) -> io::Result<()> {
    let mut bytes = header(Purpose::Debts, 0);
    let mut frames = 0u64;
    for list in debts {
        for some in list.debts.chunks(FRAME_DEBTS_MAX) {
            append_frame(&mut bytes, |bytes| {
                bytes.extend((list.name.len() as u16).to_le_bytes());
                bytes.extend(list.name.as_bytes());
                bytes.extend((some.len() as u32).to_le_bytes());
                some.iter().for_each(|debt| append(bytes, debt, clocks));
            });
            frames += 1;
        }
    }
    append_frame(&mut bytes, |bytes| {
        bytes.extend(LAST.to_le_bytes());
        bytes.extend(frames.to_le_bytes());
    });
    let new = folder.file("debts.new");
    let mut file = folder.create(&new)?;
    file.write_all(&bytes)?;
    file.sync_data()?;
    folder.publish(&new, &folder.file(FILE))
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

/// Reads the debts that are not paid yet. Without a file there are none. The error says what is wrong with the file;
/// then there are none either.
///
/// # Errors
/// The file cannot be read.
pub(super) fn read(folder: &Folder, clocks: Clocks) -> io::Result<Result<Vec<SavedDebts>, String>> {
    let path = folder.file(FILE);
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Ok(Vec::new())),
        Err(error) => return Err(error),
    };
    let problem = |problem: String| format!("{}: {problem}; limits begin with full buckets", path.display());
    Ok(parse(&bytes, clocks).map_err(problem))
}

fn parse(bytes: &[u8], clocks: Clocks) -> Result<Vec<SavedDebts>, String> {
    let mut frames = Frames::open(bytes, Purpose::Debts, 0)?;
    let mut all: Vec<SavedDebts> = Vec::new();
    let mut count = 0;
    loop {
        let at = frames.at();
        let payload = frames.next().map_err(|damage| format!("byte {at}: {damage}"))?;
        let payload = payload.ok_or_else(|| format!("byte {at}: the end is missing"))?;
        match frame(payload, clocks).ok_or_else(|| format!("byte {at}: unknown record"))? {
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

fn frame(payload: &[u8], clocks: Clocks) -> Option<Frame> {
    let mut cursor = Cursor(payload);
    let length = cursor.u16()?;
    if length == LAST {
        return cursor.u64().map(Frame::Last).filter(|_| cursor.0.is_empty());
    }
    let name = cursor.text(usize::from(length))?.to_owned();
    let debts = cursor.list(|cursor| {
        let entry = entry(cursor)?;
        let (limiter, until) = (cursor.u32()?, cursor.u64()?);
        Some(clocks.at_day_ns(until).map(|until_ns| SavedDebt { entry, limiter, until_ns }))
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
