//! List files: bytes to prefixes. One file here for each format, one table of formats below.
//!
//! | format | a line or record | as written by |
//! | --- | --- | --- |
//! | plain | address, CIDR or `a-b`; `#` and `;` comments, text after a blank ignored | FireHOL netsets, Spamhaus DROP, ipsum |
//! | ipset | `add NAME ELEMENT ...` of one set of addresses or nets | `ipset save NAME` |
//! | CSV | `start,end,label` or `cidr,label`, for a set also without label | ip-location-db, IPinfo |
//! | MaxMind DB | networks with data, the label at a field path | GeoLite2, DB-IP |
//!
//! The format is taken from the name and the content. A bad line is an error with its number unless the reader is lenient:
//! an address that was meant and is not in the table is a hole, so it is never passed over in silence. What is ignored and
//! could be meant is counted in the report. `docs/lists.md` says all rules. Text formats are read in parallel, in chunks cut
//! at line ends; the result is the same as read in one. No reader opens a file.

pub(crate) mod csv;
mod error;
mod foreign;
mod ipset;
pub(crate) mod lines;
mod mmdb;
mod plain;
pub(crate) mod stray;

#[cfg(test)]
mod tests;

use std::num::NonZero;

use crate::entries::Entries;
pub use error::{BadLine, ERRORS_MAX, ListError};
pub(crate) use foreign::recognise;

/// How to read a list.
#[derive(Clone, Debug, Default)]
pub struct ReadOptions {
    /// Where the label stands in a MaxMind DB record, such as `country.iso_code`. Array elements go by their index. For a
    /// set, only networks that have the field are taken.
    pub field_path: Option<String>,
    /// Whether bad lines are counted instead of refused.
    pub lenient: bool,
    /// Threads to use at most; all that the machine has if `None`.
    pub threads: Option<NonZero<usize>>,
}

/// What a list held.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadReport {
    /// Format that was recognised.
    pub format: Format,
    /// Lines of a text format, networks of a MaxMind DB.
    pub lines: u64,
    /// Prefixes that were added, duplicates included.
    pub prefixes: u64,
    /// CIDRs with host bits set (`10.1.2.3/8`), which were cleared.
    pub host_bits: Remark,
    /// Comments that name an address, which is not in the table for that.
    pub commented: Remark,
    /// CSV lines with an address in a field behind the label, which is not in the table for that.
    pub passed_over: Remark,
    /// Entries with a timeout (ipset), which a table does not know.
    pub timeouts: Remark,
    /// The last line, if nothing ends it: the file may be cut short.
    pub unended: Option<u64>,
    /// Networks of a MaxMind DB without the field that was asked for. They were left out.
    pub without_field: u64,
    /// Bad lines that were passed over, as the reader was lenient.
    pub skipped: u64,
    /// The first [`ERRORS_MAX`] of them.
    pub first_skipped: Vec<BadLine>,
}

/// Something that lines have in common and that is worth knowing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remark {
    /// How many lines.
    pub count: u64,
    /// The first of them.
    pub line: Option<u64>,
}

impl Remark {
    /// One more line.
    pub(crate) fn note(&mut self, line: u64) {
        self.count += 1;
        self.line.get_or_insert(line);
    }

    /// Adds what a later part of the list has, whose lines count from `before`.
    fn add(&mut self, later: Remark, before: u64) {
        self.count += later.count;
        self.line = self.line.or(later.line.map(|line| line + before));
    }
}

/// Format of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Format {
    /// One element a line.
    #[default]
    Plain,
    /// `ipset save`.
    Ipset,
    /// Comma-separated values.
    Csv,
    /// MaxMind DB.
    Mmdb,
}

impl Format {
    /// Recognises the format of a list from its name and its first line that is no comment.
    pub fn detect(name: &str, bytes: &[u8]) -> Self {
        if mmdb::is_mmdb(bytes) || has_extension(name, "mmdb") {
            return Format::Mmdb;
        }
        let first = lines::first_line(bytes);
        let word = first.split(|byte| matches!(byte, b' ' | b'\t' | b'#' | b';')).next().unwrap_or_default();
        match word {
            b"create" | b"add" => Format::Ipset,
            _ if has_extension(name, "csv") || word.contains(&b',') || first.starts_with(b"\"") => Format::Csv,
            _ => Format::Plain,
        }
    }

    /// The name that reports use.
    pub const fn name(self) -> &'static str {
        match self {
            Format::Plain => "plain",
            Format::Ipset => "ipset save",
            Format::Csv => "CSV",
            Format::Mmdb => "MaxMind DB",
        }
    }
}

fn has_extension(name: &str, extension: &str) -> bool {
    name.rsplit_once('.').is_some_and(|(_, found)| found.eq_ignore_ascii_case(extension))
}

impl Entries {
    /// Adds a list's prefixes. `name` is for messages and for the format.
    ///
    /// # Errors
    /// All bad lines (the first [`ERRORS_MAX`] with their text) unless `options` is lenient, a database that cannot be read,
    /// or a file that is no list, however lenient the reader. The table then has what it had before.
    pub fn read(&mut self, name: &str, bytes: &[u8], options: &ReadOptions) -> Result<ReadReport, ListError> {
        if !mmdb::is_mmdb(bytes) {
            recognise(name, bytes)?;
        }
        match Format::detect(name, bytes) {
            Format::Mmdb => mmdb::read(self, name, bytes, options),
            format if options.field_path.is_some() => Err(ListError::NoField { name: name.to_owned(), format }),
            format => lines::read(self, format, name, bytes, options),
        }
    }
}
