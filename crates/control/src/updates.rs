//! Updates of tables and limits from list files: what was applied and what was refused.

use serde::{Deserialize, Serialize};
use std::fmt::{self, Display, Formatter};

/// A list of the policy. In JSON it is a field of the object: `"table": "bad"` or `"limits": "customers"`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ListName {
    /// A table.
    Table(String),
    /// A list of limits.
    Limits(String),
}

impl Display for ListName {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            ListName::Table(name) => write!(f, "table {name}"),
            ListName::Limits(name) => write!(f, "limits {name}"),
        }
    }
}

/// The answer to [`Request::Reload`](crate::Request::Reload).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reloaded {
    /// The new active generation, if the lists could not be changed in place.
    pub generation: Option<u64>,
    /// The lists that have changed.
    pub lists: Vec<ListChanged>,
    /// Notices about the lists that were read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
}

/// A list that has changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListChanged {
    /// The list.
    #[serde(flatten)]
    pub list: ListName,
    /// Number of entries before.
    pub entries_before: usize,
    /// Number of entries now.
    pub entries: usize,
}

/// Updates of the lists of a running Weir.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UpdatesStatus {
    /// The tables of the active generation that are updated when their files change.
    pub watched: Vec<String>,
    /// Number of updates that changed a list.
    pub applied: u64,
    /// Number of refused updates.
    pub refused: u64,
    /// The last applied update of each list.
    pub last: Vec<AppliedUpdate>,
    /// Refused updates of lists that have not been updated since.
    pub refusals: Vec<RefusedUpdate>,
}

/// An update that was applied.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AppliedUpdate {
    /// What has changed.
    #[serde(flatten)]
    pub changed: ListChanged,
    /// The cause: `reload`, `SIGHUP`, `watch` or `replace`.
    pub by: String,
    /// Seconds since then.
    pub ago_s: f64,
}

/// A refused update.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RefusedUpdate {
    /// The list.
    #[serde(flatten)]
    pub list: ListName,
    /// The file that the update came from.
    pub file: String,
    /// Why the last update was refused.
    pub reason: String,
    /// Seconds since the first update that was refused.
    pub since_s: f64,
    /// Number of updates that were refused since then.
    pub times: u64,
}
