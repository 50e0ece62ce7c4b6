//! What a card does for Weir (`ctl card`).

use crate::{InterfaceStats, OutcomeStats};
use serde::{Deserialize, Serialize};

/// What a card has dropped, in the snapshot of all counters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CardCounts {
    /// Packets from the lower side.
    pub upstream: OutcomeStats,
    /// The card as an interface, which has received what it dropped.
    pub interface: InterfaceStats,
}

/// The answer to [`Request::Card`](crate::Request::Card).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CardStatus {
    /// What it is, and where.
    pub card: String,
    /// Which part of it drops packets: `hybrid`, `card`, `card-cpu`.
    pub placement: String,
    /// The tables whose sources it drops.
    pub tables: Vec<CardTableStatus>,
    /// Its places: the hardware table, the CPU.
    pub places: Vec<CardPlace>,
    /// The share of all packets from the lower side since the last activation that the card has dropped.
    pub share: f64,
    /// The share of the packets of blocked sources in the last period that the card has dropped.
    pub share_blocked: f64,
    /// Packets of blocked sources a second in the last period, dropped by card and software.
    pub blocked_pps: f64,
    /// The entries with the most packets.
    pub entries: Vec<CardEntry>,
}

/// A table of the active policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CardTableStatus {
    /// Its name.
    pub table: String,
    /// The citation of the rule for which the card's packets count.
    pub rule: Option<String>,
    /// Why the card drops nothing by it.
    pub problem: Option<String>,
    /// Citations of rules in front that do not see what the card drops.
    pub unseen: Vec<String>,
}

/// A place of the card where packets are dropped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CardPlace {
    /// `table` or `cpu`.
    pub place: String,
    /// Entries that it can have.
    pub capacity: usize,
    /// Entries now.
    pub entries: usize,
    /// Milliseconds that a change takes.
    pub update_ms: f64,
    /// Changes that were made.
    pub updates: u64,
    /// Changes that the card refused.
    pub refused: u64,
    /// Packets that it has dropped.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// An entry of the card.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CardEntry {
    /// The source.
    pub entry: String,
    /// The table that it is of.
    pub table: String,
    /// The place where it is.
    pub place: String,
    /// Packets that it has dropped since it was added to the card.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Seconds since the last one.
    pub last_s: Option<f64>,
}
