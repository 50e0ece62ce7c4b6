//! The counters of a running Weir (`ctl stats`). One snapshot contains all of them. Text, JSON and metrics are printed
//! from it.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// All counters (`ctl stats`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// Packets from the lower side.
    pub upstream: DirectionStats,
    /// Packets from the upper side.
    pub downstream: DirectionStats,
    /// The counters of each worker.
    pub workers: Vec<WorkerStats>,
    /// The counters of each interface, over all workers.
    pub interfaces: Vec<InterfaceStats>,
    /// What rules have added to tables since the start.
    pub additions: AdditionStats,
    /// What a card has dropped. It is a part of `upstream` and of `interfaces`, beside the workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub card: Option<CardCounts>,
    /// Where the engine `p4` has tracked packets since the start, with a controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracked: Option<TrackedAt>,
}

/// How many packets P4 pipelines and their controllers have tracked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrackedAt {
    /// The pipelines.
    pub pipeline: u64,
    /// The controllers.
    pub controller: u64,
}

/// What a card has dropped, in the snapshot of all counters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CardCounts {
    /// Packets from the lower side.
    pub upstream: OutcomeStats,
    /// The card as an interface, which has received what it dropped.
    pub interface: InterfaceStats,
}

/// What rules have added to tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct AdditionStats {
    /// New entries.
    pub added: u64,
    /// Entries whose timeout began again.
    pub updated: u64,
    /// Additions that were lost: a tick had too many, a queue was full, or a table could not change in time.
    pub additions_overflow: u64,
    /// Additions that a full table refused.
    pub table_full: u64,
    /// Additions that were refused because they overlap a protected table.
    pub protected: u64,
}

/// The counters of a worker. For an engine in the kernel, a worker is a CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerStats {
    /// Its number, from 0.
    pub worker: usize,
    /// Packets from the lower side.
    pub upstream: OutcomeStats,
    /// Packets from the upper side.
    pub downstream: OutcomeStats,
    /// The counters of its queues, by interface.
    pub interfaces: Vec<InterfaceStats>,
}

/// Verdicts of a worker on the packets of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutcomeStats {
    /// Since the last activation.
    #[serde(flatten)]
    pub current: Outcome,
    /// Since the start.
    pub total: Outcome,
}

/// Counters of one direction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectionStats {
    /// Since the last activation.
    #[serde(flatten)]
    pub current: Tally,
    /// Since the start.
    pub total: Tally,
}

/// Counters of an interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceStats {
    /// Its name.
    pub interface: String,
    /// `lower`, `upper` or `divert`.
    pub side: String,
    /// Packets received.
    pub rx_packets: u64,
    /// Bytes of the received packets.
    pub rx_bytes: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes of the sent packets.
    pub tx_bytes: u64,
    /// Received packets that were lost because the receive queue was full. `None` where they are not counted (engine
    /// `xdp` on virtual interfaces).
    pub rx_missed: Option<u64>,
    /// Received packets that were lost because they are longer than the engine receives.
    #[serde(default)]
    pub rx_too_long: u64,
    /// Received packets that were copied to the divert interface. Diverted packets do not count.
    pub sampled: u64,
    /// Accepted packets that could not be sent, by reason.
    pub tx_dropped: TxDropped,
}

/// Accepted packets that could not be sent, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct TxDropped {
    /// The transmit queue was full.
    pub tx_full: u64,
    /// The interface was down or gone.
    pub link_down: u64,
    /// The packet was longer than the interface can send.
    pub tx_too_long: u64,
    /// The interface does not send packets of XDP programs.
    pub tx_unsupported: u64,
    /// The driver accepted the packet but could not send it.
    pub tx_error: u64,
    /// There is no divert interface.
    pub no_divert: u64,
}

impl TxDropped {
    /// Number of accepted packets that this interface should have sent but did not.
    pub fn unsent(&self) -> u64 {
        self.tx_full + self.link_down + self.tx_too_long + self.tx_unsupported + self.tx_error
    }
}

/// Counters of one direction, since the last activation or since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Packets received: the sum of `passed`, `dropped`, `diverted` and `replied`.
    pub packets: u64,
    /// Bytes on the wire of the received packets.
    pub bytes: u64,
    /// Packets accepted.
    pub passed: u64,
    /// Packets dropped.
    pub dropped: u64,
    /// Packets diverted.
    pub diverted: u64,
    /// Packets that were answered.
    #[serde(default)]
    pub replied: u64,
    /// Packets that were copied to the divert interface. Diverted packets do not count.
    pub sampled: u64,
    /// Counters of all rules of all policies in this time.
    pub rules: Vec<RuleCount>,
    /// Packets by the reason of their verdict.
    pub reasons: BTreeMap<String, u64>,
    /// Packets that were dropped, by the reason of their verdict. Their sum is `dropped`.
    #[serde(default)]
    pub drops: BTreeMap<String, u64>,
    /// Counters of all tables of all policies in this time.
    pub tables: Vec<TableCount>,
    /// Packets of the port behind a card that answers rules; nothing without such a card.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_card: Option<FromCard>,
}

/// Packets from a card's port that a chain has decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FromCard {
    /// Packets that the card's answers decided.
    pub answered: u64,
    /// Packets that the software decided alone.
    pub alone: u64,
}

/// The sum of the counters of the rules that look up a table, whether they want a match or not. A rule with several
/// tables counts for each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableCount {
    /// Its name.
    pub table: String,
    /// Packets.
    pub packets: u64,
    /// Bytes of the packets.
    pub bytes: u64,
}

/// Numbers of verdicts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Packets received: the sum of `passed`, `dropped`, `diverted` and `replied`.
    pub packets: u64,
    /// Bytes on the wire of the received packets.
    pub bytes: u64,
    /// Packets accepted.
    pub passed: u64,
    /// Packets dropped.
    pub dropped: u64,
    /// Packets diverted.
    pub diverted: u64,
    /// Packets that were answered.
    #[serde(default)]
    pub replied: u64,
}

/// The name under which the counts of unloaded policies are summed up, once there are too many to list.
pub const GONE: &str = "(policies that are gone)";

/// The counters of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleCount {
    /// Its position: `edge.weir:12`.
    pub at: String,
    /// Its text.
    pub rule: String,
    /// Packets that matched.
    pub packets: u64,
    /// Bytes of the packets that matched.
    pub bytes: u64,
}

impl Outcome {
    /// The sum of both.
    pub fn plus(self, other: Outcome) -> Self {
        Outcome {
            packets: self.packets + other.packets,
            bytes: self.bytes + other.bytes,
            passed: self.passed + other.passed,
            dropped: self.dropped + other.dropped,
            diverted: self.diverted + other.diverted,
            replied: self.replied + other.replied,
        }
    }
}

impl Tally {
    /// Adds the counts of another tally. Rules are equal if `at` and `rule` are, tables if their names are.
    pub fn add(&mut self, other: &Tally) {
        let Tally { packets, bytes, passed, dropped, diverted, replied, sampled, rules, reasons, .. } = other;
        let Tally { drops, tables, from_card, .. } = other;
        if let Some(FromCard { answered, alone }) = from_card {
            let sum = self.from_card.get_or_insert_default();
            sum.answered += answered;
            sum.alone += alone;
        }
        self.packets += packets;
        self.bytes += bytes;
        self.passed += passed;
        self.dropped += dropped;
        self.diverted += diverted;
        self.replied += replied;
        self.sampled += sampled;
        for (place, rule) in rules.iter().enumerate() {
            let same = |known: &RuleCount| known.at == rule.at && known.rule == rule.rule;
            // Tallies of the same policy have the same order of rules.
            let found = match self.rules.get(place) {
                Some(known) if same(known) => Some(place),
                _ => self.rules.iter().position(same),
            };
            match found {
                Some(place) => {
                    self.rules[place].packets += rule.packets;
                    self.rules[place].bytes += rule.bytes;
                }
                None => self.rules.push(rule.clone()),
            }
        }
        for table in tables {
            match self.tables.iter_mut().find(|known| known.table == table.table) {
                Some(known) => {
                    known.packets += table.packets;
                    known.bytes += table.bytes;
                }
                None => self.tables.push(table.clone()),
            }
        }
        for (reason, packets) in reasons {
            *self.reasons.entry(reason.clone()).or_default() += packets;
        }
        for (reason, packets) in drops {
            *self.drops.entry(reason.clone()).or_default() += packets;
        }
    }
}
