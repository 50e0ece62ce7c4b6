//! What can be wrong with a list.

use std::fmt;

use weir_abi::{Family, LimitProblem};

use super::Format;
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
    /// Another address where text may stand.
    #[error("a second address on the line: an entry has a line of its own, a comment begins with `#`")]
    SecondAddress,
    /// `start,end` in a set, without a header that says so.
    #[error("two addresses on the line: write a range as `first-last`, or name the columns in a header (`start,end`)")]
    TwoAddresses,
    /// A file of ranges has a line that is none.
    #[error("not the first and last address of a range, which the first line has")]
    NotARange,
    /// A line of a CSV file is longer or shorter than the first.
    #[error("{found} fields, where the first line has {expected}")]
    Columns {
        /// Fields of this line.
        found: usize,
        /// Fields of the first line that is no header.
        expected: usize,
    },
    /// `10.0.0.0 /8`
    #[error("a blank before `/`")]
    BlankInPrefix,
    /// A character that other programs take for a line end, or that shows as nothing.
    #[error("a control character, or a line end that is neither LF, CR LF nor CR")]
    Control,
    /// A line of an ipset file that is neither `create` nor `add`.
    #[error("not a `create` or `add` line of `ipset save`")]
    NotIpset,
    /// A set that holds more than addresses or nets.
    #[error("set type `{0}` not supported: only hash:ip, hash:net and bitmap:ip are lists of addresses")]
    SetType(String),
    /// A set whose entries stand for networks of which the file does not say the length beside them.
    #[error("`netmask` and `bitmask` are not supported: each address of such a set stands for more than itself")]
    SetMask,
    /// An option of `create` or `add` that is not known, or another entry on the line.
    #[error("`{0}` is no option of `ipset save`")]
    SetOption(String),
    /// A line of a list of limits without a rate.
    #[error("rate missing after `,`")]
    NoRate,
    /// A rate or burst that cannot be.
    #[error(transparent)]
    Limit(#[from] LimitProblem),
    /// Another limit where text may stand.
    #[error("a second limit on the line: each has a line of its own, a comment begins with `#`")]
    SecondLimit,
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
