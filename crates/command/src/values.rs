//! Times and numbers on the command line.

use std::time::Duration;
use weir_control::{TABLE_ENTRIES_MAX, TOP_MAX};
use weir_policy::time::milliseconds;
use weir_state::tables::TIMEOUT_MS_MAX;

/// `500ms`, `60s`, `5m`, `1h`.
pub fn time(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let unit_ms = match &text[digits..] {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err("a time like 500ms, 60s, 5m".to_owned()),
    };
    let number: u64 = text[..digits].parse().map_err(|_| "a time like 500ms, 60s, 5m".to_owned())?;
    number.checked_mul(unit_ms).map(Duration::from_millis).ok_or_else(|| "too long a time".to_owned())
}

/// A timeout of entries in milliseconds, written as in policies: `500ms`, `1h30m`. `0s` is none.
pub fn timeout_ms(text: &str) -> Result<u64, String> {
    match milliseconds(text) {
        Some(ms) if ms <= TIMEOUT_MS_MAX && !text.is_empty() => Ok(ms),
        _ => Err("a time of at most 365d like 500ms, 30s, 10m, 1h30m; 0s for none".to_owned()),
    }
}

/// A slot and a rule: `attacks=udp sport 53 drop`.
pub fn slot_rule(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once('=').filter(|(slot, _)| !slot.is_empty());
    let (slot, rule) = parts.ok_or("a slot and a rule, such as attacks='udp sport 53 drop'")?;
    Ok((slot.to_owned(), rule.to_owned()))
}

/// The number of limits to show.
pub fn top(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(top) if (1..=TOP_MAX).contains(&top) => Ok(top),
        _ => Err(format!("a number from 1 to {TOP_MAX}")),
    }
}

/// The number of entries to show.
pub fn entries(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(entries) if (1..=TABLE_ENTRIES_MAX).contains(&entries) => Ok(entries),
        _ => Err(format!("a number from 1 to {TABLE_ENTRIES_MAX}")),
    }
}
