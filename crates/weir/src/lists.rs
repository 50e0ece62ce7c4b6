//! Reads the list files that a policy's tables name.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use weir_abi::Family;
use weir_policy::catalog::{Catalog, TableFacts};
use weir_policy::check::{ListSource, Members, TableSource};
use weir_policy::checked::TableKind;
use weir_tables::{Entries, Kind, ReadOptions, Table};

/// Bytes of one list file.
const LIST_BYTES_MAX: u64 = 1 << 30;

/// The tables of a policy, or what is wrong with their lists.
#[derive(Debug, Default)]
pub struct Lists {
    tables: HashMap<String, (Table, TableFacts)>,
    /// Errors, each naming its file and line.
    pub errors: Vec<String>,
    /// What lenient reading skipped and other things worth knowing.
    pub notices: Vec<String>,
}

impl Lists {
    /// Reads the files of all tables, those of different tables at the same time.
    pub fn read(sources: &[TableSource]) -> Self {
        let mut lists = Lists::default();
        let read: Vec<Loaded> = std::thread::scope(|scope| {
            let threads: Vec<_> = sources.iter().map(|source| scope.spawn(move || load(source))).collect();
            threads.into_iter().map(|thread| thread.join().expect("reading a list does not panic")).collect()
        });
        for (source, loaded) in sources.iter().zip(read) {
            lists.errors.extend(loaded.errors);
            lists.notices.extend(loaded.notices);
            if let Some(table) = loaded.table {
                lists.tables.insert(source.name.clone(), table);
            }
        }
        lists
    }

    /// Takes a table out.
    pub fn take(&mut self, name: &str) -> Option<Table> {
        self.tables.remove(name).map(|(table, _)| table)
    }
}

impl Catalog for Lists {
    fn table(&self, name: &str) -> Option<&TableFacts> {
        self.tables.get(name).map(|(_, facts)| facts)
    }
}

/// One table, read.
#[derive(Default)]
struct Loaded {
    table: Option<(Table, TableFacts)>,
    errors: Vec<String>,
    notices: Vec<String>,
}

fn load(source: &TableSource) -> Loaded {
    let kind = match source.kind {
        TableKind::Set => Kind::Set,
        TableKind::Labels => Kind::Labels,
    };
    let mut entries = Entries::new(source.family, kind);
    let mut loaded = Loaded::default();
    for members in &source.members {
        let (first, last) = ends(source.family, members);
        if let Err(problem) = entries.insert_range(first, last, members.label.as_deref()) {
            loaded.errors.push(format!("table {}: {first}-{last}: {problem}", source.name));
        }
    }
    for file in &source.files {
        read_file(file, &mut entries, &mut loaded);
    }
    if loaded.errors.is_empty() {
        let table = entries.settle();
        let facts = TableFacts {
            entries: table.facts().entries,
            by_length: table.facts().by_length.clone(),
            labels: table.labels().iter().map(|label| label.to_string()).collect(),
        };
        if table.facts().relabelled > 0 {
            loaded.notices.push(format!(
                "table {}: {} prefixes were given again with another label; the last one counts",
                source.name,
                table.facts().relabelled
            ));
        }
        loaded.table = Some((table, facts));
    }
    loaded
}

fn ends(family: Family, members: &Members) -> (IpAddr, IpAddr) {
    let address = |number: u128| match family {
        Family::Ipv4 => IpAddr::from(Ipv4Addr::from(number as u32)),
        Family::Ipv6 => IpAddr::from(Ipv6Addr::from(number)),
    };
    (address(members.first), address(members.last))
}

fn read_file(file: &ListSource, entries: &mut Entries, loaded: &mut Loaded) {
    let bytes = match read_bytes(Path::new(&file.path)) {
        Ok(bytes) => bytes,
        Err(error) => return loaded.errors.push(format!("{}: {error}", file.path)),
    };
    let options = ReadOptions { field_path: file.field.clone(), lenient: file.lenient, ..ReadOptions::default() };
    match entries.read(&file.path, &bytes, &options) {
        Err(error) => loaded.errors.push(error.to_string()),
        Ok(report) => {
            if report.skipped > 0 {
                let first = report.first_skipped.first().map(|line| format!(", the first: {line}")).unwrap_or_default();
                loaded.notices.push(format!("{}: {} bad lines skipped{first}", file.path, report.skipped));
            }
            if report.host_bits > 0 {
                let first = report.host_bits_line.map(|line| format!(", the first in line {line}")).unwrap_or_default();
                loaded.notices.push(format!(
                    "{}: {} prefixes with host bits set, which were cleared{first}",
                    file.path, report.host_bits
                ));
            }
        }
    }
}

/// The whole file, unless it is too long to be a list.
fn read_bytes(path: &Path) -> Result<Vec<u8>, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let length = file.metadata().map_err(|error| error.to_string())?.len();
    let mut bytes = Vec::with_capacity(usize::try_from(length.min(LIST_BYTES_MAX)).unwrap_or(0));
    file.take(LIST_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > LIST_BYTES_MAX {
        return Err(format!("longer than {} MiB", LIST_BYTES_MAX >> 20));
    }
    Ok(bytes)
}
