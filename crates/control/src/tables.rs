//! Requests about tables, and their answers.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Maximum number of entries in an answer.
pub const TABLE_ENTRIES_MAX: usize = 1 << 16;

/// What to do with a table of the active generation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum TableOperation {
    /// Adds entries, all or none. The answer is [`TableChanged`].
    Add {
        /// An entry is an address, a prefix or a range. In a table with labels it has a comma and the label behind.
        entries: Vec<String>,
    },
    /// Removes entries. Entries that are not there are ignored. The answer is [`TableChanged`].
    Del {
        /// Addresses, prefixes and ranges, without labels.
        entries: Vec<String>,
    },
    /// Replaces all entries by those of a list file. The answer is [`TableChanged`].
    Replace {
        /// Its absolute path.
        file: PathBuf,
        /// Whether `max-change` of the table is ignored.
        #[serde(default)]
        force: bool,
    },
    /// Removes all entries. The answer is [`TableChanged`].
    Flush,
    /// Looks an address up. The answer is [`TableFound`].
    Get {
        /// The address.
        address: String,
    },
    /// Lists the first entries in the order of addresses. The answer is [`TableEntries`].
    List {
        /// Maximum number of entries. The server lists at most [`TABLE_ENTRIES_MAX`].
        top: usize,
    },
}

/// The result of a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableChanged {
    /// The table.
    pub table: String,
    /// Number of prefixes that were added or removed, or have another label.
    pub changed: usize,
    /// Number of entries now. A range is as many entries as it has prefixes.
    pub entries: usize,
    /// Notices about a list that was read, for instance about comments with addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
}

/// An entry of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableEntry {
    /// The prefix.
    pub entry: String,
    /// Its label; `None` in a set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
}

/// The answer to [`TableOperation::Get`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableFound {
    /// The table.
    pub table: String,
    /// The longest prefix that contains the address, if there is one.
    pub found: Option<TableEntry>,
}

/// The answer to [`TableOperation::List`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableEntries {
    /// The table.
    pub table: String,
    /// Number of all entries.
    pub total: usize,
    /// The first entries.
    pub entries: Vec<TableEntry>,
}
