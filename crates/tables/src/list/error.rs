//! What can be wrong with a list.

use std::fmt;

use weir_abi::{Family, LimitProblem};

use crate::entries::{LABEL_BYTES_MAX, PREFIXES_MAX};
use crate::prefix::family_name;

/// Bad lines that are reported with their text; more are only counted.
pub const ERRORS_MAX: usize = 20;

/// Characters of a bad line that are shown.
const SHOWN_CHARS_MAX: usize = 60;

/// Why an element or a line was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// No address, CIDR or range.
    #[error("not an {} address, prefix or range", family_name(*.0))]
    NotAnAddress(Family),
    /// An address of the other family; the table's family is named.
    #[error("address of the other family in an {} table", family_name(*.0))]
    OtherFamily(Family),
    /// Nothing after the slash.
    #[error("prefix length missing after `/`")]
    NoLength,
    /// A prefix length beyond the family's bits.
    #[error("prefix length above {}", .0.bits())]
    LongLength(Family),
    /// The range's end is below its start.
    #[error("range ends before it starts")]
    RangeBackwards,
    /// The table has labels, the line has none.
    #[error("label missing")]
    NoLabel,
    /// A label longer than [`LABEL_BYTES_MAX`].
    #[error("label longer than {LABEL_BYTES_MAX} bytes")]
    LongLabel,
    /// A label that is not UTF-8.
    #[error("label is not UTF-8 text")]
    LabelEncoding,
    /// A quoted field that does not end on its line, or goes on after its end.
    #[error("unbalanced quotes")]
    Quotes,
    /// A line of an ipset file that is neither `create` nor `add`.
    #[error("not a `create` or `add` line of `ipset save`")]
    NotIpset,
    /// A set that holds more than addresses or nets.
    #[error("set type `{0}` not supported: only hash:ip, hash:net and bitmap:ip are lists of addresses")]
    SetType(String),
    /// A line of a list of limits without a rate.
    #[error("rate missing after `,`")]
    NoRate,
    /// A rate or burst that cannot be.
    #[error(transparent)]
    Limit(#[from] LimitProblem),
    /// A range in a list of limits.
    #[error("a range is no prefix: give each of its prefixes a limit")]
    RangeLimited,
    /// An exception within a set of nets.
    #[error("`nomatch` entries are not supported: a table has no exceptions")]
    Nomatch,
}

/// A line that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLine {
    /// Its number, from 1.
    pub line: u64,
    /// The line, without its end, escaped and cut.
    pub text: String,
    /// What is wrong.
    pub problem: Problem,
}

impl BadLine {
    pub(crate) fn new(line: u64, text: &[u8], problem: Problem) -> Self {
        BadLine { line, text: shown(text), problem }
    }
}

impl fmt::Display for BadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: `{}`: {}", self.line, self.text, self.problem)
    }
}

/// Text as it can be printed: control characters and broken UTF-8 escaped, the rest of a long line left out.
pub(crate) fn shown(text: &[u8]) -> String {
    // A character has at most four bytes, so the cut never reaches into what is shown.
    let head = &text[..text.len().min(4 * (SHOWN_CHARS_MAX + 1))];
    let head = String::from_utf8_lossy(head);
    let mut shown: String = head.chars().take(SHOWN_CHARS_MAX).map(printable).collect();
    if head.chars().count() > SHOWN_CHARS_MAX {
        shown.push('…');
    }
    shown
}

fn printable(char: char) -> char {
    // Also the marks that turn the writing direction, which could make a line look like another.
    let turns = matches!(char, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    if char.is_control() || turns { char::REPLACEMENT_CHARACTER } else { char }
}

/// Why a list could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListError {
    /// Lines are bad.
    Lines {
        /// The list.
        name: String,
        /// The first [`ERRORS_MAX`] of them, in order.
        lines: Vec<BadLine>,
        /// How many there are.
        total: u64,
    },
    /// More prefixes than a table can have.
    TooMany {
        /// The list.
        name: String,
    },
    /// Limits contradict each other.
    Limits {
        /// The first [`ERRORS_MAX`] contradictions, each naming both places.
        conflicts: Vec<String>,
        /// How many there are.
        total: u64,
    },
    /// A MaxMind DB is broken or not what the table needs.
    Database {
        /// The list.
        name: String,
        /// What is wrong.
        problem: String,
    },
}

impl std::error::Error for ListError {}

impl fmt::Display for ListError {
    /// One line for each bad line, then how many more there are.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListError::Lines { name, lines, total } => {
                for (index, BadLine { line, text, problem }) in lines.iter().enumerate() {
                    let separator = if index == 0 { "" } else { "\n" };
                    write!(f, "{separator}{name}:{line}: `{text}`: {problem}")?;
                }
                match total - lines.len() as u64 {
                    0 => Ok(()),
                    more => write!(f, "\n{name}: {more} more bad lines"),
                }
            }
            ListError::Limits { conflicts, total } => {
                f.write_str(&conflicts.join("\n"))?;
                match total - conflicts.len() as u64 {
                    0 => Ok(()),
                    more => write!(f, "\n{more} more limits contradict each other"),
                }
            }
            ListError::TooMany { name } => write!(f, "{name}: more than {PREFIXES_MAX} prefixes"),
            ListError::Database { name, problem } => write!(f, "{name}: {problem}"),
        }
    }
}
