//! What can be wrong with a list.

use std::fmt;

use super::Format;
use crate::problem::{PREFIXES_MAX, Problem};

/// Bad lines that are reported with their text; more are only counted.
pub const ERRORS_MAX: usize = 20;

/// Characters of a bad line that are shown.
const SHOWN_CHARS_MAX: usize = 60;

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
    /// Lines are bad, which the reader was told to pass over, and no other has an entry.
    NothingUnderstood {
        /// The list.
        name: String,
        /// The first bad line.
        first: BadLine,
        /// How many there are.
        total: u64,
    },
    /// The file is empty, and no comment says that it is meant to be.
    Empty {
        /// The list.
        name: String,
    },
    /// The file is of a kind that is no list.
    NoList {
        /// The list.
        name: String,
        /// What it is.
        what: &'static str,
    },
    /// Several sets of `ipset save`.
    Sets {
        /// The list.
        name: String,
        /// Their names, the first [`ERRORS_MAX`].
        sets: Vec<String>,
    },
    /// A field was asked for, and the list is no MaxMind DB.
    NoField {
        /// The list.
        name: String,
        /// Its format.
        format: Format,
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
            ListError::TooMany { name } => write!(f, "{name}: more than {PREFIXES_MAX} prefixes"),
            ListError::Database { name, problem } => write!(f, "{name}: {problem}"),
        }
    }
}
