//! What a card does for Weir (`ctl card`).

use serde::{Deserialize, Serialize};

/// The answer to [`Request::Card`](crate::Request::Card).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum CardReport {
    /// Of a card that answers rules.
    Hybrid(HybridStatus),
    /// Of a card that drops the sources of tables.
    Tables(CardStatus),
}

/// A card that answers rules for every packet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HybridStatus {
    /// What it is, and where.
    pub card: String,
    /// Its profile.
    pub profile: String,
    /// The active epoch.
    pub epoch: u16,
    /// Configurations since the start.
    pub changes: u64,
    /// How often it had lost its configuration and was opened again.
    #[serde(default)]
    pub reopened: u64,
    /// Whether frames without a seal are dropped.
    pub sealed: bool,
    /// Why the software decides alone, if it does.
    pub alone: Option<String>,
    /// Why the card does not answer, if it does not.
    pub problem: Option<String>,
    /// Bits of flags in the body, and bytes of the body and of the trailer of a packet with answers.
    pub flag_bits: usize,
    #[allow(missing_docs)]
    pub body_bytes: usize,
    #[allow(missing_docs)]
    pub trailer_bytes: usize,
    /// The tables of its lookups.
    pub lookups: Vec<String>,
    /// Rules of the base policy's `upstream`, in order.
    pub rules: Vec<HybridRule>,
    /// Packets that it has dropped since the last activation, and their bytes.
    pub packets: u64,
    #[allow(missing_docs)]
    pub bytes: u64,
    /// Share of all packets from the lower side that it has dropped.
    pub share: f64,
    /// Packets without a seal of the card since the last activation, which were dropped.
    pub unsealed: u64,
    /// Frames at its port since the last activation, by what they were.
    pub frames: CardFrames,
    /// How the choice of rules follows traffic, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follow: Option<Box<FollowStatus>>,
}

/// How the choice of rules that a card answers follows traffic.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FollowStatus {
    /// What the last window says: why the choice stays, or why the window is not judged.
    pub thinks: String,
    /// The rules that are offloaded by choice, as citations.
    pub rules: Vec<String>,
    /// The last window that was judged.
    pub window: Option<FollowWindow>,
    /// Changes since the start, and changes that failed.
    pub changes: u64,
    #[allow(missing_docs)]
    pub failed: u64,
    /// The last change.
    pub last: Option<FollowChange>,
}

/// A window of traffic, and what choices cost in it. Cycles are estimates.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FollowWindow {
    /// Its length.
    pub seconds: f64,
    /// Packets that the card has received.
    pub packets: u64,
    /// Packets per second that the card has received.
    pub pps: f64,
    /// The share that the card answered or dropped.
    pub answered: f64,
    /// The choice in force.
    pub current: CardCost,
    /// The software with a card that only seals packets.
    pub alone: CardCost,
    /// All rules that the card can take.
    pub all: CardCost,
    /// The best choice.
    pub chosen: CardCost,
    /// Its rules, as citations.
    pub rules: Vec<String>,
}

/// A change of the choice.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FollowChange {
    /// Time since then.
    pub ago_s: f64,
    /// How long it took, with the compiler.
    pub took_s: f64,
    /// The generation that was made for it.
    pub generation: u64,
    /// Why.
    pub why: String,
    /// What a packet cost in the last window before.
    pub before: CardCost,
    /// What it would have cost with the new choice.
    pub after: CardCost,
    /// The new choice, as citations.
    pub rules: Vec<String>,
}

/// What a packet costs. All cycles are estimates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CardCost {
    /// Cycles of the software for a packet that the card receives.
    pub cycles_per_packet: f64,
    /// Bits that the card appends to a packet with answers.
    pub trailer_bits: usize,
    /// The share of packets that the card drops.
    pub dropped: f64,
    /// The load of the link between card and host: 1 is all of it.
    pub link_load: f64,
}

/// Frames at the port of a card that answers rules. Together they are all that the port has received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CardFrames {
    /// Packets that the card's answers decided.
    pub answered: FramesShare,
    /// Packets that the software decided alone.
    pub alone: FramesShare,
    /// Answers of the card to control frames.
    pub control: FramesShare,
    /// Frames without a seal of the card, which were dropped.
    pub unsealed: FramesShare,
}

/// A number of frames, and its share of all frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FramesShare {
    /// The number.
    pub frames: u64,
    /// The share, from 0 to 1.
    pub share: f64,
}

/// A rule and where it is decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HybridRule {
    /// Its citation.
    pub at: String,
    /// Its category: `P1Dc`.
    pub category: String,
    /// `dropped` (by the card), `hardware`, `hybrid` or `software`.
    pub offload: String,
    /// Numbers of the metadata that it needs.
    pub metadata: Vec<u8>,
    /// Packets that the card has dropped for it since the start.
    pub dropped: u64,
}

/// A card that drops the sources of tables.
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
    /// Bytes of the dropped packets.
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
    /// Bytes of the dropped packets.
    pub bytes: u64,
    /// Seconds since the last one.
    pub last_s: Option<f64>,
}
