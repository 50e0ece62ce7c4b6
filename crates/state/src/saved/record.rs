//! Records of tables: what an entry is after a change, not what the change was. So records can be applied twice, and
//! from any time on.
//!
//! ```text
//!   record   kind u8  family u8  labels u8  name: length u16, bytes  then
//!   put      written u64    labels: count u32, each length u8, bytes    entries: count u32, each
//!              address 4 or 16  length u8  until u64     and, in a map, label u32: position from 1 in the record
//!   remove   entries: count u32, each address, length
//!   clear    nothing
//!   end      count u64 of the frames before it; it has no table
//! ```
//! `until` is the time of day at which the entry expires, in milliseconds since 1970, or 0. `written` is the time of
//! day of the record itself: the entry then had `until - written` left, and never gets more. Version 1 of the format
//! has no `written`; the time at which the file was last changed takes its place. In the kind of a record, the highest
//! bit says that the next record belongs to the same change.

use std::net::IpAddr;

use weir_abi::Family;
use weir_tables::Kind;

use super::cursor::Cursor;
use super::frame::append_frame;

/// Number of entries in a record, so that a frame stays far below its limit.
const RECORD_ENTRIES_MAX: usize = 1 << 15;

const PUT: u8 = 1;
const REMOVE: u8 = 2;
const CLEAR: u8 = 3;
const END: u8 = 4;
const MORE: u8 = 0x80;

/// A table as it is known on disk.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TableKey {
    /// Its name in policies.
    pub name: String,
    /// Whether its entries are IPv6.
    pub is_ipv6: bool,
    /// Whether its entries have labels.
    pub has_labels: bool,
}

impl TableKey {
    /// The table with a name and a type.
    pub fn new(name: &str, family: Family, kind: Kind) -> Self {
        TableKey { name: name.to_owned(), is_ipv6: family == Family::Ipv6, has_labels: kind == Kind::Labels }
    }

    /// The family of its entries.
    pub fn family(&self) -> Family {
        if self.is_ipv6 { Family::Ipv6 } else { Family::Ipv4 }
    }

    /// Whether it is a set or has labels.
    pub fn kind(&self) -> Kind {
        if self.has_labels { Kind::Labels } else { Kind::Set }
    }
}

/// An entry on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavedEntry<'a> {
    /// The lowest address.
    pub addr: IpAddr,
    /// Length of the prefix in bits.
    pub len: u8,
    /// Its label in a map.
    pub label: Option<&'a str>,
    /// The time of day at which it expires, in milliseconds since 1970.
    pub until_ms: Option<u64>,
}

/// Entries at the time of day, in milliseconds since 1970, at which they are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Written<T> {
    /// The time of day.
    pub at_ms: u64,
    /// The entries.
    pub entries: T,
}

/// Where the time of day of records is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WrittenAt {
    /// In each record.
    InRecord,
    /// Outside of the file, in milliseconds since 1970.
    At(u64),
}

impl WrittenAt {
    /// Of the records in a file of this version, which was last changed at this time.
    pub fn of(version: u32, modified_ns: u64) -> Self {
        if version < 2 { WrittenAt::At(modified_ns.div_ceil(1_000_000)) } else { WrittenAt::InRecord }
    }
}

/// A record.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Record<'a> {
    /// The table has these entries. An empty list says that there is such a table.
    Put(TableKey, Written<Vec<SavedEntry<'a>>>),
    /// The table does not have these prefixes.
    Remove(TableKey, Vec<(IpAddr, u8)>),
    /// The table has no entries.
    Clear(TableKey),
    /// The snapshot is complete. It has this many frames before.
    End(u64),
}

/// Appends frames that say that a table has these entries, and returns their number. With `more`, the next frame
/// belongs to the same change.
pub(crate) fn append_put(bytes: &mut Vec<u8>, key: &TableKey, all: Written<&[SavedEntry<'_>]>, more: bool) -> u64 {
    let mut frames = 0;
    let mut chunks = all.entries.chunks(RECORD_ENTRIES_MAX);
    let mut chunk = chunks.next().unwrap_or_default();
    loop {
        let next = chunks.next();
        append_frame(bytes, |bytes| {
            begin(bytes, PUT, key, more || next.is_some());
            bytes.extend(all.at_ms.to_le_bytes());
            put(bytes, key, chunk);
        });
        frames += 1;
        match next {
            Some(next) => chunk = next,
            None => return frames,
        }
    }
}

fn put(bytes: &mut Vec<u8>, key: &TableKey, entries: &[SavedEntry<'_>]) {
    let mut labels: Vec<&str> = Vec::new();
    let ids: Vec<u32> = match key.has_labels {
        true => entries.iter().map(|entry| position(&mut labels, entry.label.unwrap_or_default())).collect(),
        false => Vec::new(),
    };
    bytes.extend((labels.len() as u32).to_le_bytes());
    for label in labels {
        bytes.push(label.len() as u8);
        bytes.extend(label.as_bytes());
    }
    bytes.extend((entries.len() as u32).to_le_bytes());
    for (index, entry) in entries.iter().enumerate() {
        append_prefix(bytes, (entry.addr, entry.len));
        bytes.extend(entry.until_ms.unwrap_or(0).to_le_bytes());
        if let Some(id) = ids.get(index) {
            bytes.extend(id.to_le_bytes());
        }
    }
}

/// Position of a label from 1. Entries in order often have the label of the entry before.
fn position<'a>(labels: &mut Vec<&'a str>, label: &'a str) -> u32 {
    let known = labels.iter().rposition(|&known| known == label);
    let index = known.unwrap_or_else(|| {
        labels.push(label);
        labels.len() - 1
    });
    index as u32 + 1
}

/// Appends frames that say that a table does not have these prefixes.
pub(crate) fn append_remove(bytes: &mut Vec<u8>, key: &TableKey, prefixes: &[(IpAddr, u8)]) {
    let mut chunks = prefixes.chunks(RECORD_ENTRIES_MAX).peekable();
    while let Some(chunk) = chunks.next() {
        append_frame(bytes, |bytes| {
            begin(bytes, REMOVE, key, chunks.peek().is_some());
            bytes.extend((chunk.len() as u32).to_le_bytes());
            chunk.iter().for_each(|&prefix| append_prefix(bytes, prefix));
        });
    }
}

/// Appends a frame that says that a table has no entries.
pub(crate) fn append_clear(bytes: &mut Vec<u8>, key: &TableKey, more: bool) {
    append_frame(bytes, |bytes| begin(bytes, CLEAR, key, more));
}

/// Appends the last frame of a snapshot.
pub(super) fn append_end(bytes: &mut Vec<u8>, frames: u64) {
    append_frame(bytes, |bytes| {
        bytes.push(END);
        bytes.extend(frames.to_le_bytes());
    });
}

fn begin(bytes: &mut Vec<u8>, kind: u8, key: &TableKey, more: bool) {
    bytes.extend([if more { kind | MORE } else { kind }, u8::from(key.is_ipv6), u8::from(key.has_labels)]);
    bytes.extend((key.name.len() as u16).to_le_bytes());
    bytes.extend(key.name.as_bytes());
}

pub(super) fn append_prefix(bytes: &mut Vec<u8>, (addr, len): (IpAddr, u8)) {
    match addr {
        IpAddr::V4(addr) => bytes.extend(addr.octets()),
        IpAddr::V6(addr) => bytes.extend(addr.octets()),
    }
    bytes.push(len);
}

/// Reads a payload. Returns the record and whether the next one belongs to the same change.
///
/// # Errors
/// It is no record: another program wrote it, since its check is right.
pub(super) fn read(payload: &[u8], written: WrittenAt) -> Option<(Record<'_>, bool)> {
    let mut cursor = Cursor(payload);
    let kind = cursor.u8()?;
    if kind == END {
        return Some((Record::End(cursor.u64()?), false)).filter(|_| cursor.0.is_empty());
    }
    let (is_ipv6, has_labels) = (cursor.u8()? == 1, cursor.u8()? == 1);
    let length = usize::from(cursor.u16()?);
    let name = cursor.text(length)?.to_owned();
    let key = TableKey { name, is_ipv6, has_labels };
    let record = match kind & !MORE {
        PUT => {
            let at_ms = match written {
                WrittenAt::InRecord => cursor.u64()?,
                WrittenAt::At(at_ms) => at_ms,
            };
            let mut labels = Vec::new();
            for _ in 0..cursor.u32()? {
                let length = usize::from(cursor.u8()?);
                labels.push(cursor.text(length)?);
            }
            let entry = |cursor: &mut Cursor<'_>| {
                let ((addr, len), until_ms) = (cursor.prefix(is_ipv6)?, cursor.u64()?);
                let label = match has_labels {
                    true => Some(*labels.get((cursor.u32()? as usize).checked_sub(1)?)?),
                    false => None,
                };
                Some(SavedEntry { addr, len, label, until_ms: Some(until_ms).filter(|&ms| ms > 0) })
            };
            Record::Put(key, Written { at_ms, entries: cursor.list(entry)? })
        }
        REMOVE => Record::Remove(key, cursor.list(|cursor| cursor.prefix(is_ipv6))?),
        CLEAR => Record::Clear(key),
        _ => return None,
    };
    cursor.0.is_empty().then_some((record, kind & MORE != 0))
}

#[cfg(test)]
mod tests {
    use super::super::frame::{Frames, Purpose, header};
    use super::*;

    #[test]
    fn records_are_read_as_they_were_written() {
        let set = TableKey::new("suspects", Family::Ipv6, Kind::Set);
        let map = TableKey::new("geo", Family::Ipv4, Kind::Labels);
        let addr6: IpAddr = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9].into();
        let one = [SavedEntry { addr: addr6, len: 64, label: None, until_ms: Some(1_700_000_000_123) }];
        let labelled = |n: u32| SavedEntry {
            addr: IpAddr::from(n.to_be_bytes()),
            len: 32,
            label: Some(if n.is_multiple_of(3) { "AA" } else { "B,\u{e9}" }),
            until_ms: None,
        };
        let many: Vec<SavedEntry<'_>> = (0..RECORD_ENTRIES_MAX as u32 + 1).map(labelled).collect();
        let mut bytes = header(Purpose::Journal, 1);
        append_clear(&mut bytes, &set, true);
        fn at<'a, 'b>(entries: &'a [SavedEntry<'b>]) -> Written<&'a [SavedEntry<'b>]> {
            Written { at_ms: 1_700_000_000_000, entries }
        }
        append_put(&mut bytes, &set, at(&one), false);
        append_put(&mut bytes, &map, at(&many), false);
        append_put(&mut bytes, &map, at(&[]), false);
        append_remove(&mut bytes, &set, &[(addr6, 128)]);
        append_end(&mut bytes, 6);
        let mut frames = Frames::open(&bytes, Purpose::Journal, 1).expect("it has a header");
        let mut found = Vec::new();
        while let Some(payload) = frames.next().expect("it is whole") {
            found.push(read(payload, WrittenAt::InRecord).expect("a record"));
            for cut in 0..payload.len().min(200) {
                assert_eq!(read(&payload[..cut], WrittenAt::InRecord), None);
            }
        }
        let (first, rest) = many.split_at(RECORD_ENTRIES_MAX);
        let put = |key: &TableKey, entries: &[SavedEntry<'static>]| {
            Record::Put(key.clone(), Written { at_ms: 1_700_000_000_000, entries: entries.to_vec() })
        };
        let expected = [
            (Record::Clear(set.clone()), true),
            (put(&set, &one), false),
            (put(&map, first), true),
            (put(&map, rest), false),
            (put(&map, &[]), false),
            (Record::Remove(set, vec![(addr6, 128)]), false),
            (Record::End(6), false),
        ];
        assert!(found == expected);
    }
}
