//! Reads the list files of a policy's tables and limits.

use crate::error::LoadError;
use crate::image_facts::{self, Images};
use crate::regular_file;
use crate::stamp::{Stamp, Stamps};
use std::collections::HashMap;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::sync::Arc;
use weir_abi::{Family, Layout};
use weir_engine::descriptors;
use weir_policy::catalog::{Catalog, ImageFacts, LimitsFacts, PrefixCounts, TableFacts};
use weir_policy::check::{LimitKey, LimitsSource, ListSource, Members, TableSource};
use weir_policy::checked::TableKind;
use weir_tables::{
    BadLines, Entries, Kind, LabelLimits, LimitTable, PrefixLimits, RateOfLabel, ReadOptions, ReadReport, Remark, Table,
};

/// Maximum size of a list file in bytes.
const LIST_BYTES_MAX: u64 = 1 << 30;

/// A list of limits.
#[derive(Clone, Debug, PartialEq)]
pub enum ListOfLimits {
    /// Limits of prefixes.
    Prefixes(Arc<LimitTable>),
    /// Limits of a table's labels.
    Labels(Arc<RateOfLabel>),
}

impl ListOfLimits {
    /// Number of limits.
    pub fn len(&self) -> usize {
        match self {
            ListOfLimits::Prefixes(table) => [Family::Ipv4, Family::Ipv6].map(|family| table.len(family)).iter().sum(),
            ListOfLimits::Labels(rates) => rates.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The tables and limits of a policy, and the errors in their lists.
#[derive(Debug, Default)]
pub struct Lists {
    tables: HashMap<String, (Arc<Table>, TableFacts, Images)>,
    limits: HashMap<String, (ListOfLimits, LimitsFacts, [Images; 2])>,
    /// Errors. Each names its file and line.
    pub errors: Vec<String>,
    /// Notices, for instance about lines that were skipped in lenient mode.
    pub notices: Vec<String>,
    /// The files that were read.
    pub stamps: Stamps,
    /// A file that could not be opened because this process may not have more files open. It is not among the errors.
    pub no_descriptors: Option<LoadError>,
}

impl Lists {
    /// Reads the files of all tables and limits, with one thread per table or list.
    pub fn read(tables: &[TableSource], limits: &[LimitsSource]) -> Self {
        let mut lists = Lists::default();
        let (mut read_tables, mut read_limits) = (Vec::new(), Vec::new());
        std::thread::scope(|scope| {
            let tables: Vec<_> = tables.iter().map(|source| scope.spawn(move || read_source(source))).collect();
            let limits: Vec<_> = limits.iter().map(|source| scope.spawn(move || read_limits_source(source))).collect();
            read_tables.extend(tables.into_iter().map(|thread| thread.join().expect("reading a list does not panic")));
            read_limits.extend(limits.into_iter().map(|thread| thread.join().expect("reading a list does not panic")));
        });
        let tables = tables.iter().zip(read_tables);
        let tables = tables.filter_map(|(source, loaded)| Some((source.name.clone(), Arc::new(lists.note(loaded)?))));
        let tables = tables.collect();
        let limits = limits.iter().zip(read_limits);
        let limits = limits.filter_map(|(source, loaded)| Some((source.name.clone(), lists.note(loaded)?))).collect();
        lists.insert(tables, limits);
        lists
    }

    /// Adds the contents of tables and limits by name.
    pub(crate) fn insert(&mut self, tables: Vec<(String, Arc<Table>)>, limits: Vec<(String, ListOfLimits)>) {
        std::thread::scope(|scope| {
            let of_table = |table: Arc<Table>| {
                let (facts, images) = (table_facts(&table), image_facts::of_table(&table));
                (table, facts, images)
            };
            let of_limits = |held: ListOfLimits| {
                let (facts, images) = (limits_facts(&held), limits_images(&held));
                (held, facts, images)
            };
            let start = |(name, table)| (name, scope.spawn(move || of_table(table)));
            let tables: Vec<_> = tables.into_iter().map(start).collect();
            let start = |(name, held)| (name, scope.spawn(move || of_limits(held)));
            let limits: Vec<_> = limits.into_iter().map(start).collect();
            for (name, thread) in tables {
                self.tables.insert(name, thread.join().expect("counting a table does not panic"));
            }
            for (name, thread) in limits {
                self.limits.insert(name, thread.join().expect("counting a list does not panic"));
            }
        });
    }

    /// Stores errors and notices. Returns the result.
    fn note<T>(&mut self, loaded: Loaded<T>) -> Option<T> {
        self.errors.extend(loaded.errors);
        self.notices.extend(loaded.notices);
        self.stamps.extend(loaded.stamps);
        self.no_descriptors = self.no_descriptors.take().or(loaded.no_descriptors);
        loaded.held
    }

    /// Removes and returns a list of limits.
    pub fn take_limits(&mut self, name: &str) -> Option<ListOfLimits> {
        self.limits.remove(name).map(|(limits, ..)| limits)
    }

    /// Removes and returns a table.
    pub fn take(&mut self, name: &str) -> Option<Arc<Table>> {
        self.tables.remove(name).map(|(table, ..)| table)
    }
}

impl Catalog for Lists {
    fn table(&self, name: &str) -> Option<&TableFacts> {
        self.tables.get(name).map(|(_, facts, _)| facts)
    }

    fn limits(&self, name: &str) -> Option<&LimitsFacts> {
        self.limits.get(name).map(|(_, facts, _)| facts)
    }

    fn image(&self, tables: &[&str], layout: Layout) -> Option<ImageFacts> {
        if let [table] = tables {
            let (table, _, images) = self.tables.get(*table)?;
            let known = images.iter().find(|image| image.layout == layout).copied();
            // Of dynamic tables, which are small when they are loaded, and where the policy says so.
            let is_asked = matches!(layout, Layout::ExactLeaf | Layout::ExactLeaf6);
            return known.or_else(|| is_asked.then(|| image_facts::in_layout(table, layout)).flatten());
        }
        let tables: Vec<&Table> =
            tables.iter().map(|name| self.tables.get(*name).map(|(table, ..)| &**table)).collect::<Option<_>>()?;
        image_facts::of_sets(&tables).filter(|image| image.layout == layout)
    }

    fn limits_image(&self, list: &str, family: Family, layout: Layout) -> Option<ImageFacts> {
        let (_, _, [v4, v6]) = self.limits.get(list)?;
        let images = if family == Family::Ipv4 { v4 } else { v6 };
        images.iter().find(|image| image.layout == layout).copied()
    }
}

/// The result of reading one table or list.
pub(crate) struct Loaded<T> {
    /// The contents, unless there are errors.
    pub held: Option<T>,
    /// Errors. Each names its file and line.
    pub errors: Vec<String>,
    /// Notices about the files.
    pub notices: Vec<String>,
    /// The files that were opened.
    pub stamps: Stamps,
    /// A file that could not be opened because this process may not have more files open.
    pub no_descriptors: Option<LoadError>,
}

impl<T> Loaded<T> {
    /// Reads a file. Keeps why it cannot be read.
    fn bytes(&mut self, path: &str) -> Option<Vec<u8>> {
        match read_bytes(Path::new(path)) {
            Ok((bytes, stamp)) => {
                self.stamps.insert(path.into(), stamp);
                Some(bytes)
            }
            Err(error) => {
                self.unread(path, error);
                None
            }
        }
    }

    fn unread(&mut self, path: &str, error: io::Error) {
        match descriptors::limit_reached(&error) {
            true => self.no_descriptors = Some(LoadError::Unread { path: path.into(), error }),
            false => self.errors.push(format!("{path}: {error}")),
        }
    }
}

impl<T> Default for Loaded<T> {
    fn default() -> Self {
        Loaded { held: None, errors: vec![], notices: vec![], stamps: Stamps::new(), no_descriptors: None }
    }
}

/// Reads the elements and files of a list of limits.
pub(crate) fn read_limits_source(source: &LimitsSource) -> Loaded<ListOfLimits> {
    let mut loaded = Loaded::default();
    let (mut of_prefixes, mut of_labels) = (PrefixLimits::default(), LabelLimits::default());
    for member in &source.members {
        let inserted = match &member.key {
            &LimitKey::Prefix { family, first, length } => {
                of_prefixes.insert(address(family, first), length, member.limit, &member.citation)
            }
            LimitKey::Label(label) => of_labels.insert(label, member.limit, &member.citation),
        };
        if let Err(problem) = inserted {
            loaded.errors.push(format!("{}: {problem}", member.citation));
        }
    }
    for file in &source.files {
        let bad_lines = if file.lenient { BadLines::Skip } else { BadLines::Refuse };
        if file.field.is_some() {
            loaded.errors.push(format!("{}: a list of limits has no field", file.path));
            continue;
        }
        let Some(bytes) = loaded.bytes(&file.path) else { continue };
        let read = match source.of_labels {
            true => of_labels.read(&file.path, &bytes, bad_lines),
            false => of_prefixes.read(&file.path, &bytes, bad_lines),
        };
        match read {
            Ok(report) => notices(&file.path, file.field.as_deref(), &report, &mut loaded.notices),
            Err(error) => loaded.errors.push(error.to_string()),
        }
    }
    if loaded.errors.is_empty() {
        let given = of_prefixes.len() + of_labels.len();
        let settled = match source.of_labels {
            true => of_labels.settle().map(|rates| ListOfLimits::Labels(Arc::new(rates))),
            false => of_prefixes.settle().map(|table| ListOfLimits::Prefixes(Arc::new(table))),
        };
        match settled {
            Ok(held) => {
                loaded.notices.extend(repeated(&format!("limits {}", source.name), given - held.len(), "limits"));
                loaded.held = Some(held);
            }
            Err(error) => loaded.errors.push(error.to_string()),
        }
    }
    loaded
}

/// The notice about entries that were given again without a change.
fn repeated(of: &str, count: usize, what: &str) -> Option<String> {
    (count > 0).then(|| format!("{of}: {count} {what} were given again, which changes nothing"))
}

fn limits_facts(held: &ListOfLimits) -> LimitsFacts {
    match held {
        ListOfLimits::Prefixes(table) => {
            let counts =
                |family| PrefixCounts { entries: table.len(family), by_length: table.by_length(family).to_vec() };
            let (v4, v6) = (counts(Family::Ipv4), counts(Family::Ipv6));
            LimitsFacts { v4, v6, labels: 0, rates: table.rates() }
        }
        ListOfLimits::Labels(rates) => {
            LimitsFacts { labels: rates.len(), rates: rates.rates(), ..LimitsFacts::default() }
        }
    }
}

fn limits_images(held: &ListOfLimits) -> [Images; 2] {
    match held {
        ListOfLimits::Prefixes(table) => {
            [Family::Ipv4, Family::Ipv6].map(|family| image_facts::of_limits(table, family))
        }
        ListOfLimits::Labels(_) => <[Images; 2]>::default(),
    }
}

fn table_facts(table: &Table) -> TableFacts {
    TableFacts {
        entries: table.facts().entries,
        by_length: table.facts().by_length.clone(),
        labels: table.labels().iter().map(|label| label.to_string()).collect(),
    }
}

/// Reads the elements and files of a table.
pub(crate) fn read_source(source: &TableSource) -> Loaded<Table> {
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
        loaded.notices.extend(repeated(&format!("table {}", source.name), table.facts().repeated, "prefixes"));
        if table.facts().relabelled > 0 {
            loaded.notices.push(format!(
                "table {}: {} prefixes or ranges were given again with another label; the last one counts",
                source.name,
                table.facts().relabelled
            ));
        }
        if let Some([one, other]) = &table.facts().crossings.first {
            let count = table.facts().crossings.count;
            loaded.notices.push(format!(
                "table {}: {count} ranges partly overlap others with other labels; the smaller range decides; \
                 the first: {one} and {other}",
                source.name
            ));
        }
        loaded.held = Some(table);
    }
    loaded
}

/// Reads a list file as the contents of a table. The notices are about entries that may be a mistake.
///
/// # Errors
/// The file cannot be read, or has a bad line. The error names file and line.
pub fn read_table(path: &Path, family: Family, kind: Kind) -> Result<(Table, Vec<String>), LoadError> {
    let (bytes, _) = read_bytes(path).map_err(|error| LoadError::Unread { path: path.to_owned(), error })?;
    let (name, mut entries) = (path.display().to_string(), Entries::new(family, kind));
    let report = entries.read(&name, &bytes, &ReadOptions::default())?;
    let mut about = Vec::new();
    notices(&name, None, &report, &mut about);
    let table = entries.settle();
    about.extend(repeated(&name, table.facts().repeated, "prefixes"));
    Ok((table, about))
}

fn ends(family: Family, members: &Members) -> (IpAddr, IpAddr) {
    (address(family, members.first), address(family, members.last))
}

fn address(family: Family, number: u128) -> IpAddr {
    match family {
        Family::Ipv4 => IpAddr::from(Ipv4Addr::from(number as u32)),
        Family::Ipv6 => IpAddr::from(Ipv6Addr::from(number)),
    }
}

fn read_file<T>(file: &ListSource, entries: &mut Entries, loaded: &mut Loaded<T>) {
    let Some(bytes) = loaded.bytes(&file.path) else { return };
    let options = ReadOptions { field_path: file.field.clone(), lenient: file.lenient, ..ReadOptions::default() };
    match entries.read(&file.path, &bytes, &options) {
        Err(error) => loaded.errors.push(error.to_string()),
        Ok(report) => notices(&file.path, file.field.as_deref(), &report, &mut loaded.notices),
    }
}

/// Adds notices about a list: skipped lines, and content that may be a mistake.
fn notices(path: &str, field: Option<&str>, report: &ReadReport, notices: &mut Vec<String>) {
    if report.skipped > 0 {
        let first = report.first_skipped.first().map(|line| format!(", the first: {line}")).unwrap_or_default();
        notices.push(format!("{path}: {} bad lines skipped{first}", report.skipped));
    }
    let remarks = [
        (report.padded, "lines have octets with leading zeros, which were read as decimal numbers"),
        (report.unlabelled, "entries have an empty label and were left out"),
        (report.named, "lines have words behind the entry, which are ignored"),
        (report.commented, "comments contain an address, which is not an entry"),
        (report.passed_over, "lines contain an address in a field after the label, which is not an entry"),
        (report.timeouts, "entries have a timeout, which is ignored"),
    ];
    for (Remark { count, line }, what) in remarks.into_iter().filter(|(remark, _)| remark.count > 0) {
        let first = line.map(|line| format!(", the first in line {line}")).unwrap_or_default();
        notices.push(format!("{path}: {count} {what}{first}"));
    }
    if report.without_field > 0 {
        let field = field.unwrap_or_default();
        notices.push(format!("{path}: {} networks have no field `{field}` and were left out", report.without_field));
    }
    if let Some(line) = report.unended {
        notices.push(format!("{path}: the last line {line} has no line feed: the file may be truncated"));
    }
    if report.prefixes == 0 {
        notices.push(format!("{path}: has no entries"));
    }
}

/// Reads a file of at most [`LIST_BYTES_MAX`] bytes. The stamp is older than the content, so a file that changes while
/// it is read has another stamp afterwards.
fn read_bytes(path: &Path) -> io::Result<(Vec<u8>, Stamp)> {
    let file = regular_file::open(path)?;
    let metadata = file.metadata()?;
    let length = metadata.len();
    let too_long = || io::Error::other(format!("longer than {} MiB", LIST_BYTES_MAX >> 20));
    // A sparse file can be arbitrarily long, so the length is checked before reading.
    if length > LIST_BYTES_MAX {
        return Err(too_long());
    }
    let mut bytes = Vec::with_capacity(usize::try_from(length.min(LIST_BYTES_MAX)).unwrap_or(0));
    file.take(LIST_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LIST_BYTES_MAX {
        return Err(too_long());
    }
    Ok((bytes, Stamp::of(&metadata)))
}
