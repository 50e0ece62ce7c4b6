//! Reads tables from the folder of saved state.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::net::IpAddr;

use weir_tables::Entries;

use super::debts;
use super::flow_reader::{self, SavedFlows};
use super::folder::{Folder, Numbered};
use super::frame::{FrameReader, HEADER_BYTES, Purpose};
use super::log::Clocks;
use super::record::{Record, TableKey, WrittenAt, read};
use super::state_file::{Reader, StateFile};
use crate::limits::SavedDebts;
use crate::tables::SavedTable;

/// What the folder contains.
#[derive(Default)]
pub struct Restored {
    /// The tables, without entries that have expired.
    pub tables: Vec<SavedTable>,
    /// The debts of limits, without those that are paid.
    pub debts: Vec<SavedDebts>,
    /// The flows, if there is a file of them.
    pub flows: Option<SavedFlows>,
    /// What is damaged or missing, for the log.
    pub notices: Vec<String>,
    /// Names of the files that are set aside, now or earlier.
    pub unread: Vec<String>,
}

/// When an entry expires, and when that was written, in milliseconds since 1970.
#[derive(Clone, Copy)]
struct Deadline {
    until_ms: u64,
    written_ms: u64,
}

/// The contents of a table: entries with their labels, and when they expire.
#[derive(Default)]
struct Contents {
    labels: Vec<Box<str>>,
    ids: HashMap<Box<str>, usize>,
    entries: HashMap<(IpAddr, u8), (usize, Option<Deadline>)>,
}

type Tables = HashMap<TableKey, Contents>;

/// Reads the newest snapshot that is whole, and the journals since then up to the first that is missing or cannot be
/// read. Damage is told, not an error: what is whole counts. A file that is not used is set aside.
///
/// # Errors
/// The folder cannot be read, or a file cannot be set aside.
pub fn restore(folder: &Folder, clocks: Clocks) -> io::Result<Restored> {
    let mut notices = Vec::new();
    let (mut tables, mut base, mut refused) = (Tables::new(), None, Vec::new());
    for name in folder.misnumbered()? {
        let kept = folder.set_aside(&name)?;
        notices.push(format!("{}: Weir gives no file this number; it is kept as {kept}", folder.shown(&name)));
    }
    for number in folder.numbers(Numbered::Snapshot)?.into_iter().rev() {
        let name = Numbered::Snapshot.file(number);
        match read_file(folder, &name).and_then(|file| read_snapshot(&file, number)) {
            Ok(found) => {
                (tables, base) = (found, Some(number));
                break;
            }
            Err(problem) => refused.push((name, problem)),
        }
    }
    for (name, problem) in refused {
        let instead = if base.is_some() { "an earlier snapshot is used" } else { "no snapshot is used" };
        let kept = folder.set_aside(&name)?;
        notices.push(format!("{}: {problem}; it is kept as {kept}; {instead}", folder.shown(&name)));
    }
    replay_journals(folder, &mut tables, base, &mut notices)?;
    let mut tables: Vec<(TableKey, Contents)> = tables.into_iter().collect();
    tables.sort_by(|(one, _), (other, _)| one.cmp(other));
    let tables = tables.into_iter().map(|(key, contents)| contents.table(&key, clocks)).collect();
    let debts = debts::read(folder, clocks, &mut notices)?;
    let flows = flow_reader::find(folder, &mut notices)?;
    Ok(Restored { tables, debts, flows, notices, unread: folder.unread()? })
}

/// Applies the journals since the snapshot `base`. Without one, the tables begin empty with journal 1.
fn replay_journals(
    folder: &Folder,
    tables: &mut Tables,
    base: Option<u64>,
    notices: &mut Vec<String>,
) -> io::Result<()> {
    let first = base.unwrap_or(1);
    let (mut next, mut is_broken) = (Some(first), false);
    for number in folder.numbers(Numbered::Journal)?.into_iter().filter(|&number| number >= first) {
        let name = Numbered::Journal.file(number);
        is_broken |= Some(number) != next;
        next = number.checked_add(1);
        let file = read_file(folder, &name);
        if is_broken && file.as_ref().is_ok_and(|file| file.bytes() <= HEADER_BYTES as u64) {
            // It has no changes.
            folder.remove(&name)?;
            continue;
        }
        let replayed = file.and_then(|file| match is_broken {
            true => Err("changes before it are missing".to_owned()),
            false => replay(tables, &file, number),
        });
        match replayed {
            Ok(damage) => notices.extend(damage.map(|damage| format!("{}: {damage}", folder.shown(&name)))),
            Err(problem) => {
                is_broken = true;
                let kept = folder.set_aside(&name)?;
                notices.push(format!("{}: {problem}; it is kept as {kept}; its changes are lost", folder.shown(&name)));
            }
        }
    }
    Ok(())
}

fn read_file(folder: &Folder, name: &str) -> Result<StateFile, String> {
    folder.read(name)?.ok_or_else(|| "it is gone".to_owned())
}

/// The frames of a file, and where the time of day of its records is.
fn frames(file: &StateFile, purpose: Purpose, number: u64) -> Result<(FrameReader<Reader<'_>>, WrittenAt), String> {
    let reader = file.reader().map_err(|error| error.to_string())?;
    let frames = FrameReader::open_numbered(reader, purpose, number)?;
    let written = WrittenAt::of(frames.version(), file.modified_ns());
    Ok((frames, written))
}

fn read_snapshot(file: &StateFile, number: u64) -> Result<Tables, String> {
    let (mut frames, written) = frames(file, Purpose::Snapshot, number)?;
    let (mut tables, mut count) = (Tables::new(), 0);
    loop {
        let at = frames.at();
        let payload = frames.next().map_err(|damage| format!("byte {at}: {damage}"))?;
        let payload = payload.ok_or_else(|| format!("byte {at}: the end is missing"))?;
        match read(payload, written) {
            Some((Record::End(frames), _)) if frames == count => return Ok(tables),
            Some((record, _)) => apply(&mut tables, record),
            None => return Err(format!("byte {at}: unknown record")),
        }
        count += 1;
    }
}

/// Applies the changes of a journal that are complete. Returns what is wrong with the rest.
///
/// # Errors
/// It is no such journal.
fn replay(tables: &mut Tables, file: &StateFile, number: u64) -> Result<Option<String>, String> {
    if file.bytes() == 0 {
        // A process that was killed had no time for changes.
        return Ok(None);
    }
    let (mut frames, written) = frames(file, Purpose::Journal, number)?;
    let mut begun = frames.at();
    // The payloads of a change until it is complete.
    let mut of_change: Vec<Vec<u8>> = Vec::new();
    let problem = loop {
        match frames.next() {
            Ok(None) if of_change.is_empty() => return Ok(None),
            Ok(None) => break "incomplete".to_owned(),
            Err(damage) => break damage,
            Ok(Some(payload)) => match read(payload, written) {
                None | Some((Record::End(_), _)) => break "unknown record".to_owned(),
                Some((_, true)) => of_change.push(payload.to_vec()),
                Some((record, false)) => {
                    let before = of_change.iter().filter_map(|payload| read(payload, written));
                    before.for_each(|(record, _)| apply(tables, record));
                    apply(tables, record);
                    of_change.clear();
                    begun = frames.at();
                }
            },
        }
    };
    Ok(Some(format!("byte {begun} of {}: {problem}; the changes from there on are lost", file.bytes())))
}

fn apply(tables: &mut Tables, record: Record<'_>) {
    match record {
        Record::Put(key, put) => {
            let Contents { labels, ids, entries: held } = tables.entry(key).or_default();
            for entry in put.entries {
                let id = entry.label.map_or(0, |label| match ids.entry(label.into()) {
                    Entry::Occupied(known) => *known.get(),
                    Entry::Vacant(new) => {
                        labels.push(label.into());
                        *new.insert(labels.len() - 1)
                    }
                });
                let deadline = entry.until_ms.map(|until_ms| Deadline { until_ms, written_ms: put.at_ms });
                held.insert((entry.addr, entry.len), (id, deadline));
            }
        }
        Record::Remove(key, prefixes) => {
            if let Some(contents) = tables.get_mut(&key) {
                prefixes.iter().for_each(|prefix| _ = contents.entries.remove(prefix));
            }
        }
        Record::Clear(key) => _ = tables.insert(key, Contents::default()),
        Record::End(_) => {}
    }
}

impl Contents {
    fn table(self, key: &TableKey, clocks: Clocks) -> SavedTable {
        let mut entries = Entries::new(key.family(), key.kind());
        let mut deadlines = Vec::new();
        for ((addr, len), (label, deadline)) in self.entries {
            let until_ns = deadline.map(|Deadline { until_ms, written_ms }| clocks.at_ns(until_ms, written_ms));
            if until_ns == Some(None) {
                continue;
            }
            let label = self.labels.get(label).map(|label| &**label);
            // A record was made from an entry, so this cannot fail.
            if entries.insert_prefix(addr, len, label).is_ok() {
                deadlines.extend(until_ns.flatten().map(|until| ((addr, len), until)));
            }
        }
        SavedTable::new(&key.name, entries.settle(), deadlines, clocks.now_ns)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::fs::{self, File};
    use std::time::{Duration, UNIX_EPOCH};

    use super::super::frame::{append_frame, header_of};
    use super::*;

    const DAY_MS: u64 = 24 * 3600 * 1000;

    /// A snapshot of version 1 with 10.0.0.1, which expires at `until_ms`.
    fn former_snapshot(until_ms: u64) -> Vec<u8> {
        let mut bytes = header_of(1, Purpose::Snapshot, 3);
        append_frame(&mut bytes, |bytes| {
            bytes.extend([1, 0, 0, 1, 0, b't', 0, 0, 0, 0, 1, 0, 0, 0, 10, 0, 0, 1, 32]);
            bytes.extend(until_ms.to_le_bytes());
        });
        append_frame(&mut bytes, |bytes| {
            bytes.push(4);
            bytes.extend(1u64.to_le_bytes());
        });
        bytes
    }

    /// A file of the former format does not say when a deadline was written, so it was when the file was last changed.
    #[test]
    fn a_file_of_the_former_format_is_read_and_no_clock_gives_its_timeouts_more() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tables-3.snapshot");
        let changed_ms = 20_000 * DAY_MS;
        fs::write(&path, former_snapshot(changed_ms + 600_000)).unwrap();
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_modified(UNIX_EPOCH + Duration::from_millis(changed_ms))
            .unwrap();
        let folder = Folder::open(folder.path()).unwrap();
        for (day_ms, left_ms) in
            [(0, Some(600_000)), (changed_ms + 100_000, Some(500_000)), (changed_ms + DAY_MS, None)]
        {
            let clocks = Clocks { now_ns: 1_000_000_000, day_ns: day_ms * 1_000_000 };
            let restored = restore(&folder, clocks).unwrap();
            assert_eq!((restored.notices, restored.tables.len()), (vec![], 1));
            let saved: Vec<_> = restored.tables[0].saved(clocks).map(|entry| entry.until_ms).collect();
            let expected: Vec<_> = left_ms.map(|left_ms| Some(day_ms + left_ms)).into_iter().collect();
            assert_eq!(saved, expected, "at day {day_ms}");
        }
    }
}
