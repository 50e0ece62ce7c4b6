//! Requests about tables, and their answers.

use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::path::PathBuf;

/// Maximum number of entries in an answer.
pub const TABLE_ENTRIES_MAX: usize = 1 << 16;

/// What to do with a table of the active generation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum TableOperation {
    /// Adds entries, all or none. The answer is [`TableChanged`].
    Add(GivenEntries),
    /// Adds entries, all or none. The timeouts of those that are there begin anew. The answer is [`TableChanged`].
    Update(GivenEntries),
    /// Removes entries. Entries that are not there are ignored, and so are labels. The answer is [`TableChanged`].
    Del(GivenEntries),
    /// Replaces all entries by the entries of a list file. The answer is [`TableChanged`].
    Replace {
        /// Its absolute path.
        file: PathBuf,
        /// Whether all entries take effect at once.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        atomic: bool,
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
    /// Lists entries. The answer is [`TableEntries`].
    List(Listing),
}

/// Which entries of a table are listed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listing {
    /// Maximum number of entries. The server lists at most [`TABLE_ENTRIES_MAX`].
    pub top: usize,
    /// What comes first; `None` for the order of addresses. Needs counters, and leaves out entries without packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<ListOrder>,
    /// Lists entries that no packet hit for this time, in milliseconds. Needs counters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_ms: Option<u64>,
    /// Lists entries from this address on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<IpAddr>,
}

/// An order of entries with counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ListOrder {
    /// The most packets first.
    Packets,
    /// The most packets a second first. The server counts for a second.
    Rate,
}

/// The entries of a change, and how they change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GivenEntries {
    /// An entry is an address, a prefix or a range. In a table with labels, a comma and the label follow, unless the
    /// entry is to be removed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub entries: Vec<String>,
    /// The absolute path of a list file with more entries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// The timeout of the entries in milliseconds; 0 for none. Without it, the table's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Whether all entries take effect at once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub atomic: bool,
}

impl GivenEntries {
    /// Entries as text, with no timeout of their own.
    pub fn of(entries: &[&str]) -> Self {
        GivenEntries { entries: entries.iter().map(|&entry| entry.to_owned()).collect(), ..Self::default() }
    }
}

/// The result of a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableChanged {
    /// The table.
    pub table: String,
    /// Number of prefixes that were added or removed, or have another label.
    pub changed: usize,
    /// Number of entries that an update found in the table, and whose timeout begins anew. `None` after other changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refreshed: Option<usize>,
    /// Number of entries now. A range is as many entries as it has prefixes.
    pub entries: usize,
    /// Whether the table follows list files, so that a reload undoes the change.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reload_undoes: bool,
    /// Notices about a list that was read, for instance about comments with addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
}

/// An entry of a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TableEntry {
    /// The prefix.
    pub entry: String,
    /// Its label; `None` in a set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Number of packets that rules matched by it; `None` in a table without counters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets: Option<u64>,
    /// Bytes of the packets; `None` in a table without counters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Seconds since the last of them; `None` if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_s: Option<f64>,
    /// Packets a second, in a list by rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pps: Option<f64>,
    /// Bits a second, in a list by rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bps: Option<f64>,
    /// Seconds until it expires; `None` if it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_s: Option<f64>,
}

/// The answer to [`TableOperation::Get`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TableFound {
    /// The table.
    pub table: String,
    /// The longest prefix that contains the address, if there is one.
    pub found: Option<TableEntry>,
}

/// The answer to [`TableOperation::List`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TableEntries {
    /// The table.
    pub table: String,
    /// Number of all entries.
    pub total: usize,
    /// Maximum number of entries, if the table is dynamic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<usize>,
    /// Number of entries that the table refused so far because it was full, if it is dynamic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<u64>,
    /// The first entries.
    pub entries: Vec<TableEntry>,
}
