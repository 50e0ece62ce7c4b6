//! Errors in lists.

use std::fmt;

use super::format::Format;
use crate::problem::{PREFIXES_MAX, Problem};

/// Maximum number of bad lines reported with their text. Further ones are only counted.
pub const ERRORS_MAX: usize = 20;

/// Maximum number of characters shown of a bad line.
const SHOWN_CHARS_MAX: usize = 60;

/// A line that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLine {
    /// Line number, from 1.
    pub line: u64,
    /// The line without its end, escaped and truncated.
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

/// Makes text printable: escapes control characters and invalid UTF-8, and truncates long lines.
pub(crate) fn shown(text: &[u8]) -> String {
    // A character has at most four bytes, so everything that is shown is inside the head.
    let head = &text[..text.len().min(4 * (SHOWN_CHARS_MAX + 1))];
    let head = String::from_utf8_lossy(head);
    let mut shown: String = head.chars().take(SHOWN_CHARS_MAX).map(printable).collect();
    if head.chars().count() > SHOWN_CHARS_MAX {
        shown.push('…');
    }
    shown
}

fn printable(char: char) -> char {
    // Also replaces the marks that change the writing direction, because they could make a line look like another.
    let turns = matches!(char, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    if char.is_control() || turns { char::REPLACEMENT_CHARACTER } else { char }
}

/// Why a list cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListError {
    /// The list has bad lines.
    Lines {
        /// The list.
        name: String,
        /// The first [`ERRORS_MAX`] bad lines, in order.
        lines: Vec<BadLine>,
        /// Number of bad lines.
        total: u64,
    },
    /// Lenient reading skipped bad lines, and no other line has an entry.
    NothingUnderstood {
        /// The list.
        name: String,
        /// The first bad line.
        first: BadLine,
        /// Number of bad lines.
        total: u64,
    },
    /// The file is empty, and no comment says that this is intended.
    Empty {
        /// The list.
        name: String,
    },
    /// The file is of a kind that is not a list.
    NoList {
        /// The list.
        name: String,
        /// The kind.
        what: &'static str,
    },
    /// The file has several sets of `ipset save`.
    Sets {
        /// The list.
        name: String,
        /// The first [`ERRORS_MAX`] names of the sets.
        sets: Vec<String>,
    },
    /// The options name a field, but the list is not a MaxMind DB.
    NoField {
        /// The list.
        name: String,
        /// Its format.
        format: Format,
    },
    /// All entries have an empty label.
    NoLabels {
        /// The list.
        name: String,
        /// Number of entries.
        entries: u64,
    },
    /// The list exceeds the maximum number of prefixes of a table.
    TooMany {
        /// The list.
        name: String,
    },
    /// Limits conflict.
    Limits {
        /// The first [`ERRORS_MAX`] conflicts, each with both places.
        conflicts: Vec<String>,
        /// Number of conflicts.
        total: u64,
    },
    /// A MaxMind DB is corrupt or does not suit the table.
    Database {
        /// The list.
        name: String,
        /// What is wrong.
        problem: String,
    },
    /// The labels of a list that Weir has written are not distinct, or its table is a set.
    Labels {
        /// The list.
        name: String,
        /// Number of labels.
        labels: usize,
    },
    /// A list that Weir has written has a number that no label has.
    LabelNumber {
        /// The list.
        name: String,
        /// The number, escaped.
        number: String,
        /// Number of labels.
        labels: usize,
    },
}

impl std::error::Error for ListError {}

impl fmt::Display for ListError {
    /// Prints one line for each bad line, then the number of the others.
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
            ListError::NothingUnderstood { name, first, total } => {
                write!(
                    f,
                    "{name}: none of its lines is an entry ({total} are bad), which `lenient` does not excuse; the first: {first}"
                )
            }
            ListError::Empty { name } => {
                write!(
                    f,
                    "{name}: the file is empty; a list that is meant to be says so in a comment, such as `# none`"
                )
            }
            ListError::NoList { name, what } => write!(f, "{name}: not a list but {what}"),
            ListError::Sets { name, sets } => {
                write!(
                    f,
                    "{name}: holds {} sets, and a table is one: {}; save each to a file (`ipset save NAME`)",
                    sets.len(),
                    sets.join(", ")
                )
            }
            ListError::NoField { name, format } => {
                write!(f, "{name}: a {} list has no fields to choose; only a MaxMind DB has", format.name())
            }
            ListError::NoLabels { name, entries } => write!(f, "{name}: none of its {entries} entries has a label"),
            ListError::TooMany { name } => write!(f, "{name}: more than {PREFIXES_MAX} prefixes"),
            ListError::Database { name, problem } => write!(f, "{name}: {problem}"),
            ListError::Labels { name, labels } => write!(f, "{name}: its {labels} labels are not those of a map"),
            ListError::LabelNumber { name, number, labels } => {
                write!(f, "{name}: there is no label {number}; the labels have the numbers 1 to {labels}")
            }
        }
    }
}
