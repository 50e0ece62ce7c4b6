//! Answers to requests about tables.

use weir_abi::EntryCounts;
use weir_abi::entry::hit_time;
use weir_command::failure::Failure;
use weir_control::TableEntry;
use weir_state::tables::{TableError, TableView};
use weir_tables::live::LiveEntry;

/// An entry and what it has counted.
pub struct Counted<'a> {
    /// The entry.
    pub one: LiveEntry<'a>,
    /// Its counts, if the table has counters.
    pub counts: Option<EntryCounts>,
}

/// An entry with its counts and the time that it has left.
pub fn entry(table: &TableView<'_>, Counted { one, counts }: &Counted<'_>, now_ns: u64) -> TableEntry {
    let seconds = |ns: u64| (ns / 1_000_000) as f64 / 1000.0;
    let timeout_s = table.left_ns(one, now_ns).map(seconds);
    let now = hit_time(now_ns);
    TableEntry {
        entry: one.to_string(),
        label: one.label.map(str::to_owned),
        packets: counts.map(|counts| counts.packets),
        bytes: counts.map(|counts| counts.bytes),
        last_s: counts.and_then(|counts| counts.idle_s(now)).map(f64::round),
        pps: None,
        bps: None,
        timeout_s,
    }
}

/// Why a table refuses a request.
pub fn refused(error: TableError) -> Failure {
    match error {
        TableError::Partial { .. } => Failure::Runtime(error.to_string()),
        error => Failure::Rejected(format!("weir: {error}")),
    }
}
