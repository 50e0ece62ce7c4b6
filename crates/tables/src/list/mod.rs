//! Reads list files: bytes to prefixes. There is one source file for each format.
//!
//! | format | a line or record | as written by |
//! | --- | --- | --- |
//! | plain | address, CIDR or `a-b`; `#` and `;` comments, text after a blank ignored | FireHOL netsets, Spamhaus DROP, ipsum |
//! | ipset | `add NAME ELEMENT ...` of one set of addresses or nets | `ipset save NAME` |
//! | CSV | `start,end,label` or `cidr,label`, for a set also without label | ip-location-db, IPinfo |
//! | MaxMind DB | networks with data, the label at a field path | GeoLite2, DB-IP |
//!
//! The file name and the content determine the format. A bad line is an error with its number, unless reading is
//! lenient. An intended address that is missing in the table is a hole in the filter, so it is never skipped silently.
//! The report counts ignored text that could be an entry. `docs/lists.md` has all rules. Text formats are read in
//! parallel, in chunks that end at line ends; the result does not depend on the chunks. No reader opens a file.

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
    /// Path of the label in a MaxMind DB record, such as `country.iso_code`. Array elements are named by index. A set
    /// takes only networks that have the field.
    pub field_path: Option<String>,
    /// Whether bad lines are skipped and counted instead of refused.
    pub lenient: bool,
    /// Maximum number of threads; `None` uses all processors.
    pub threads: Option<NonZero<usize>>,
}

/// A summary of a list that was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadReport {
    /// The recognised format.
    pub format: Format,
    /// Number of lines of a text format, or of networks of a MaxMind DB.
    pub lines: u64,
    /// Number of prefixes added, including duplicates.
    pub prefixes: u64,
    /// CIDRs with host bits (`10.1.2.3/8`), which were cleared.
    pub host_bits: Remark,
    /// Comments that contain an address. The address is not in the table.
    pub commented: Remark,
    /// CSV lines with an address in a field after the label. The address is not in the table.
    pub passed_over: Remark,
    /// Entries with a timeout (ipset), which a table ignores.
    pub timeouts: Remark,
    /// The last line, if it has no line end: the file may be truncated.
    pub unended: Option<u64>,
    /// Networks of a MaxMind DB that lack the requested field. They were left out.
    pub without_field: u64,
    /// Bad lines that lenient reading skipped.
    pub skipped: u64,
    /// The first [`ERRORS_MAX`] skipped lines.
    pub first_skipped: Vec<BadLine>,
}

/// A property of lines that the user should know about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remark {
    /// Number of such lines.
    pub count: u64,
    /// The first such line.
    pub line: Option<u64>,
}

impl Remark {
    /// Counts one more line.
    pub(crate) fn note(&mut self, line: u64) {
        self.count += 1;
        self.line.get_or_insert(line);
    }

    /// Adds the count of a later part of the list. Its line numbers start after line `before`.
    fn add(&mut self, later: Remark, before: u64) {
        self.count += later.count;
        self.line = self.line.or(later.line.map(|line| line + before));
    }
}

/// Format of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Format {
    /// One element per line.
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
    /// Recognises the format of a list from its name and its first line that is not a comment.
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

    /// The name in reports.
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
    /// Adds the prefixes of a list. `name` is used in messages and to recognise the format.
    ///
    /// # Errors
    /// There are bad lines, of which the first [`ERRORS_MAX`] are reported with their text, and `options` is not
    /// lenient. Lenient or not, the database cannot be read or the file is not a list. The table is then unchanged.
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
