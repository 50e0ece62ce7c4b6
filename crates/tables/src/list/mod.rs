//! List files: bytes to prefixes. One file here for each format, one table of formats below.
//!
//! | format | a line or record | as written by |
//! | --- | --- | --- |
//! | plain | address, CIDR or `a-b`; `#` and `;` comments, text after a blank ignored | FireHOL netsets, Spamhaus DROP, ipsum |
//! | ipset | `add NAME ELEMENT ...` of sets of addresses or nets | `ipset save` |
//! | CSV | `start,end,label` or `cidr,label`, for a set also without label | ip-location-db, IPinfo |
//! | MaxMind DB | networks with data, the label at a field path | GeoLite2, DB-IP |
//!
//! The format is taken from the name and the content. A bad line is an error with its number unless the reader is lenient:
//! an address that was meant and is not in the table is a hole, so it is never passed over in silence. Text formats are
//! read in parallel, in chunks cut at line ends; the result is the same as read in one. No reader opens a file.

pub(crate) mod csv;
mod error;
mod ipset;
pub(crate) mod lines;
mod mmdb;
mod plain;

#[cfg(test)]
mod tests;

use std::num::NonZero;

use crate::entries::Entries;
pub use error::{BadLine, ERRORS_MAX, ListError, Problem};

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
    pub host_bits: u64,
    /// Line of the first of them.
    pub host_bits_line: Option<u64>,
    /// Bad lines that were passed over, as the reader was lenient.
    pub skipped: u64,
    /// The first [`ERRORS_MAX`] of them.
    pub first_skipped: Vec<BadLine>,
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
    /// All bad lines (the first [`ERRORS_MAX`] with their text) unless `options` is lenient, or a database that cannot be
    /// read. The table then has what it had before.
    pub fn read(&mut self, name: &str, bytes: &[u8], options: &ReadOptions) -> Result<ReadReport, ListError> {
        match Format::detect(name, bytes) {
            Format::Mmdb => mmdb::read(self, name, bytes, options),
            format => lines::read(self, format, name, bytes, options),
        }
    }
}
