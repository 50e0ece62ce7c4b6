//! What a reader is asked to do and what it found.

use std::num::NonZero;

use super::error::BadLine;
use super::format::Format;

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
    /// Lines with leading zeros in an octet (`192.0.2.007`), which was read as a decimal number.
    pub padded: Remark,
    /// Entries with an empty label. They were left out.
    pub unlabelled: Remark,
    /// Lines with words behind the entry, such as the names of a hosts file. They are ignored, like numbers.
    pub named: Remark,
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
    /// The first [`ERRORS_MAX`](super::ERRORS_MAX) skipped lines.
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
    pub(super) fn add(&mut self, later: Remark, before: u64) {
        self.count += later.count;
        self.line = self.line.or(later.line.map(|line| line + before));
    }
}
