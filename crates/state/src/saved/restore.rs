//! Reads tables from the folder of saved state.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs;
use std::io;
use std::net::IpAddr;

use weir_tables::Entries;

use super::folder::{Folder, JOURNAL, SNAPSHOT};
use super::frame::{Frames, Purpose};
use super::log::Clocks;
use super::record::{Record, TableKey, read};
use crate::tables::SavedTable;

/// What the folder contains.
#[derive(Default)]
pub struct Restored {
    /// The tables, without entries that have expired.
    pub tables: Vec<SavedTable>,
    /// What is damaged or missing, for the log.
    pub notices: Vec<String>,
}

/// The contents of a table: entries with their labels, and when they expire in milliseconds since 1970.
#[derive(Default)]
struct Contents {
    labels: Vec<Box<str>>,
    ids: HashMap<Box<str>, usize>,
    entries: HashMap<(IpAddr, u8), (usize, Option<u64>)>,
}

type Tables = HashMap<TableKey, Contents>;

/// Reads the newest snapshot that is whole, and the journals since then. Damage is told, not an error: what is whole
/// counts.
///
/// # Errors
/// The folder or a file cannot be read.
pub fn restore(folder: &Folder, clocks: Clocks) -> io::Result<Restored> {
    let mut notices = Vec::new();
    let (mut tables, mut since) = (Tables::new(), 0);
    for number in folder.numbers(SNAPSHOT)?.into_iter().rev() {
        let path = folder.numbered(number, SNAPSHOT);
        match read_snapshot(&fs::read(&path)?, number) {
            Ok(found) => {
                (tables, since) = (found, number);
                break;
            }
            Err(problem) => notices.push(format!("{}: {problem}; an earlier snapshot is used", path.display())),
        }
    }
    let journals: Vec<u64> = folder.numbers(JOURNAL)?.into_iter().filter(|&number| number >= since).collect();
    for (index, &number) in journals.iter().enumerate() {
        if index > 0 && journals[index - 1] + 1 != number {
            notices.push(format!("{}: the journal before it is missing", folder.numbered(number, JOURNAL).display()));
        }
        let path = folder.numbered(number, JOURNAL);
        let bytes = fs::read(&path)?;
        if let Some(problem) = replay(&mut tables, &bytes, number) {
            notices.push(format!("{}: {problem}", path.display()));
        }
    }
    let mut tables: Vec<(TableKey, Contents)> = tables.into_iter().collect();
    tables.sort_by(|(one, _), (other, _)| one.cmp(other));
    let tables = tables.into_iter().map(|(key, contents)| contents.table(&key, clocks)).collect();
    Ok(Restored { tables, notices })
}

fn read_snapshot(bytes: &[u8], number: u64) -> Result<Tables, String> {
    let mut frames = Frames::open(bytes, Purpose::Snapshot, number)?;
    let (mut tables, mut count) = (Tables::new(), 0);
    loop {
        let at = frames.at();
        let payload = frames.next().map_err(|damage| format!("byte {at}: {damage}"))?;
        let payload = payload.ok_or_else(|| format!("byte {at}: the end is missing"))?;
        match read(payload) {
            Some((Record::End(frames), _)) if frames == count => return Ok(tables),
            Some((record, _)) => apply(&mut tables, record),
            None => return Err(format!("byte {at}: unknown record")),
        }
        count += 1;
    }
}

/// Applies the changes of a journal that are complete. Returns what is wrong with the rest.
fn replay(tables: &mut Tables, bytes: &[u8], number: u64) -> Option<String> {
    let mut frames = match Frames::open(bytes, Purpose::Journal, number) {
        Ok(frames) => frames,
        // A process that was killed had no time for changes.
        Err(_) if bytes.is_empty() => return None,
        Err(problem) => return Some(problem),
    };
    let mut begun = frames.at();
    let mut of_change = Vec::new();
    let problem = loop {
        match frames.next() {
            Ok(None) if of_change.is_empty() => return None,
            Ok(None) => break "incomplete".to_owned(),
            Err(damage) => break damage,
            Ok(Some(payload)) => match read(payload) {
                None | Some((Record::End(_), _)) => break "unknown record".to_owned(),
                Some((record, more)) => {
                    of_change.push(record);
                    if !more {
                        of_change.drain(..).for_each(|record| apply(tables, record));
                        begun = frames.at();
                    }
                }
            },
        }
    };
    Some(format!("byte {begun} of {}: {problem}; the changes from there on are lost", bytes.len()))
}

fn apply(tables: &mut Tables, record: Record<'_>) {
    match record {
        Record::Put(key, entries) => {
            let Contents { labels, ids, entries: held } = tables.entry(key).or_default();
            for entry in entries {
                let id = entry.label.map_or(0, |label| match ids.entry(label.into()) {
                    Entry::Occupied(known) => *known.get(),
                    Entry::Vacant(new) => {
                        labels.push(label.into());
                        *new.insert(labels.len() - 1)
                    }
                });
                held.insert((entry.addr, entry.len), (id, entry.until_ms));
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
        for ((addr, len), (label, until_ms)) in self.entries {
            let until_ns = until_ms.map(|ms| clocks.at_ns(ms));
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
