//! Reads list files: bytes to prefixes. There is one source file for each format.
//!
//! | format | a line or record | as written by |
//! | --- | --- | --- |
//! | plain | address, CIDR or `a-b`; `#` and `;` comments, text after a blank ignored | FireHOL netsets, Spamhaus DROP, ipsum |
//! | ipset | `add NAME ELEMENT ...` of one set of addresses or nets | `ipset save NAME` |
//! | CSV | `start,end,label` or `cidr,label`, for a set also without label | ip-location-db, IPinfo |
//! | CSV with the columns `duration` and `value` | the address is in the column `value` | CrowdSec |
//! | JSON lines | `{"cidr":"192.0.2.0/24","sblid":"SBL1",...}` | Spamhaus DROP |
//! | MaxMind DB | networks with data, the label at a field path | GeoLite2, DB-IP |
//!
//! The file name and the content determine the format. A bad line is an error with its number, unless reading is
//! lenient. An intended address that is missing in the table is a hole in the filter, so it is never skipped silently.
//! The report counts ignored text that could be an entry. `docs/reference/lists.md` has all rules. Text formats are
//! read in parallel, in chunks that end at line ends; the result does not depend on the chunks. No reader opens a file.

pub(crate) mod csv;
mod error;
mod foreign;
mod format;
mod ipset;
mod json_lines;
pub(crate) mod lines;
mod mmdb;
mod part;
mod plain;
pub(crate) mod reading;
mod report;
pub(crate) mod stray;
pub(crate) mod text;
mod written;

#[cfg(test)]
mod tests;

use crate::entries::Entries;
pub use error::{BadLine, ERRORS_MAX, ListError};
pub(crate) use foreign::recognise;
pub use format::Format;
pub use report::{ReadOptions, ReadReport, Remark};

impl Format {
    /// Recognises the format of a list from its name and its first line that is not a comment.
    pub fn detect(name: &str, bytes: &[u8]) -> Self {
        if mmdb::is_mmdb(bytes) || has_extension(name, "mmdb") {
            return Format::Mmdb;
        }
        let first = text::first_line(bytes);
        let word = first.split(|byte| matches!(byte, b' ' | b'\t' | b'#' | b';')).next().unwrap_or_default();
        match word {
            b"create" | b"add" => Format::Ipset,
            _ if json_lines::is_json_line(first) => Format::JsonLines,
            _ if has_extension(name, "csv") || word.contains(&b',') || first.starts_with(b"\"") => Format::Csv,
            _ => Format::Plain,
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
    /// There are bad lines, and `options` is not lenient. The first [`ERRORS_MAX`] bad lines are reported with
    /// their text. Lenient or not, the database cannot be read, or the file is not a list. After an error the table is
    /// unchanged.
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
