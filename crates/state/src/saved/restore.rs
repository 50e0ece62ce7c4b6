//! Reads tables from the folder of saved state.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::Path;

use weir_tables::Entries;

use super::debts;
use super::flow_reader::{self, SavedFlows};
use super::folder::{Folder, JOURNAL, SNAPSHOT};
use super::frame::{Frames, HEADER_BYTES, Purpose};
use super::log::Clocks;
use super::record::{Record, TableKey, read};
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

/// The contents of a table: entries with their labels, and when they expire in milliseconds since 1970.
#[derive(Default)]
struct Contents {
    labels: Vec<Box<str>>,
    ids: HashMap<Box<str>, usize>,
    entries: HashMap<(IpAddr, u8), (usize, Option<u64>)>,
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
    for number in folder.numbers(SNAPSHOT)?.into_iter().rev() {
        let path = folder.numbered(number, SNAPSHOT);
        match read_file(&path).and_then(|bytes| read_snapshot(&bytes, number)) {
            Ok(found) => {
                (tables, base) = (found, Some(number));
                break;
            }
            Err(problem) => refused.push((path, problem)),
        }
    }
    for (path, problem) in refused {
        let instead = if base.is_some() { "an earlier snapshot is used" } else { "no snapshot is used" };
        let kept = folder.set_aside(&path)?;
        notices.push(format!("{}: {problem}; it is kept as {kept}; {instead}", path.display()));
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
    let (mut next, mut is_broken) = (first, false);
    for number in folder.numbers(JOURNAL)?.into_iter().filter(|&number| number >= first) {
        let path = folder.numbered(number, JOURNAL);
        is_broken |= number != next;
        next = number + 1;
        if is_broken && is_empty(&path) {
            fs::remove_file(&path)?;
            continue;
        }
        let replayed = match is_broken {
            true => Err("changes before it are missing".to_owned()),
            false => read_file(&path).and_then(|bytes| replay(tables, &bytes, number)),
        };
        match replayed {
            Ok(damage) => notices.extend(damage.map(|damage| format!("{}: {damage}", path.display()))),
            Err(problem) => {
                is_broken = true;
                let kept = folder.set_aside(&path)?;
                notices.push(format!("{}: {problem}; it is kept as {kept}; its changes are lost", path.display()));
            }
        }
    }
    Ok(())
}

fn read_file(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| error.to_string())
}

/// Whether a journal has no changes.
fn is_empty(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|file| file.is_file() && file.len() <= HEADER_BYTES as u64)
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
///
/// # Errors
/// It is no such journal.
fn replay(tables: &mut Tables, bytes: &[u8], number: u64) -> Result<Option<String>, String> {
    if bytes.is_empty() {
        // A process that was killed had no time for changes.
        return Ok(None);
    }
    let mut frames = Frames::open(bytes, Purpose::Journal, number)?;
    let mut begun = frames.at();
    let mut of_change = Vec::new();
    let problem = loop {
        match frames.next() {
            Ok(None) if of_change.is_empty() => return Ok(None),
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
    Ok(Some(format!("byte {begun} of {}: {problem}; the changes from there on are lost", bytes.len())))
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
