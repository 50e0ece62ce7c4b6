//! How full the tables and slots of the active generation are: the answer to [`Request::Room`](crate::Request::Room).

use serde::{Deserialize, Serialize};

/// The tables and slots of the active generation, in the order of the policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Room {
    /// The tables.
    pub tables: Vec<TableRoom>,
    /// The slots.
    pub slots: Vec<SlotRoom>,
}

/// How full a table is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableRoom {
    /// Its name.
    pub table: String,
    /// Number of entries.
    pub entries: usize,
    /// Maximum number of entries, if the table is dynamic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<usize>,
    /// Number of entries that the table refused so far because it was full, if it is dynamic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<u64>,
}

/// How full a slot is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotRoom {
    /// Its name.
    pub slot: String,
    /// Number of rules.
    pub rules: usize,
    /// Number of rules that the policy reserves.
    pub size: usize,
}
