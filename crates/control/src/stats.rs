//! What a running Weir has counted: `ctl stats`. One snapshot holds all of it; text, JSON and metrics are printers of this type.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `ctl stats`: everything that is counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// Packets from the lower side.
    pub upstream: DirectionStats,
    /// Packets from the upper side.
    pub downstream: DirectionStats,
    /// What each worker had of it.
    pub workers: Vec<WorkerStats>,
    /// Interfaces, over all workers.
    pub interfaces: Vec<InterfaceStats>,
}

/// A worker's part; of an engine in the kernel a processor's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerStats {
    /// Its number, from 0.
    pub worker: usize,
    /// Packets from the lower side.
    pub upstream: OutcomeStats,
    /// Packets from the upper side.
    pub downstream: OutcomeStats,
    /// Its queues of each interface.
    pub interfaces: Vec<InterfaceStats>,
}

/// Verdicts on a worker's packets of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutcomeStats {
    /// Since the last activation.
    #[serde(flatten)]
    pub current: Outcome,
    /// Since the start.
    pub total: Outcome,
}

/// One direction since the last activation, and in total.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectionStats {
    /// Since the last activation.
    #[serde(flatten)]
    pub current: Tally,
    /// Since the start.
    pub total: Tally,
}

/// What was received and sent at an interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceStats {
    /// Its name.
    pub interface: String,
    /// `lower`, `upper`, `divert`.
    pub side: String,
    /// Packets received.
    pub rx_packets: u64,
    /// Their bytes.
    pub rx_bytes: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Their bytes.
    pub tx_bytes: u64,
    /// Packets that nobody decided about, because the receive queue was full; null where nobody counts them (engine `xdp` on virtual wires).
    pub rx_missed: Option<u64>,
    /// Packets received of which a copy was handed to the divert interface. Those that are diverted themselves are none.
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
    /// The interface takes none so long.
    pub tx_too_long: u64,
    /// The interface takes none from XDP programs.
    pub tx_unsupported: u64,
    /// The driver took it, and could not send it.
    pub tx_error: u64,
    /// There is no interface to divert to.
    pub no_divert: u64,
}

impl TxDropped {
    /// Accepted packets that were to go out of the interface and did not.
    pub fn unsent(&self) -> u64 {
        self.tx_full + self.link_down + self.tx_too_long + self.tx_unsupported + self.tx_error
    }
}

/// The packets of one direction, since the last activation or since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Packets received: the sum of the next three.
    pub packets: u64,
    /// Their bytes on the wire.
    pub bytes: u64,
    /// Packets accepted.
    pub passed: u64,
    /// Packets dropped.
    pub dropped: u64,
    /// Packets diverted.
    pub diverted: u64,
    /// Packets of which a copy went to the divert interface. Those that went there themselves are none.
    pub sampled: u64,
    /// Every rule that a policy of the time had, with what matched it.
    pub rules: Vec<RuleCount>,
    /// Packets by the reason of their verdict.
    pub reasons: BTreeMap<String, u64>,
    /// Every table that a policy of the time had, with what the rules counted that ask it.
    pub tables: Vec<TableCount>,
}

/// What the rules counted that ask a table, whichever answer they wanted. A rule that asks two counts for both.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableCount {
    /// Its name.
    pub table: String,
    /// Packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Verdicts on packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Packets received: the sum of `passed`, `dropped` and `diverted`.
    pub packets: u64,
    /// Their bytes on the wire.
    pub bytes: u64,
    /// Packets accepted.
    pub passed: u64,
    /// Packets dropped.
    pub dropped: u64,
    /// Packets diverted.
    pub diverted: u64,
}

/// Stands among rules, reasons and tables for those of unloaded policies, once there are too many to list.
pub const GONE: &str = "(policies that are gone)";

/// What a rule counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleCount {
    /// `edge.weir:12`
    pub at: String,
    /// The rule.
    pub rule: String,
    /// Packets that matched.
    pub packets: u64,
    /// Their bytes.
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
        }
    }
}

impl Tally {
    /// Adds another's counts. Rules are the same if `at` and text are, tables if the name is.
    pub fn add(&mut self, other: &Tally) {
        let Tally { packets, bytes, passed, dropped, diverted, sampled, rules, reasons, tables } = other;
        self.packets += packets;
        self.bytes += bytes;
        self.passed += passed;
        self.dropped += dropped;
        self.diverted += diverted;
        self.sampled += sampled;
        for (place, rule) in rules.iter().enumerate() {
            let same = |known: &RuleCount| known.at == rule.at && known.rule == rule.rule;
            // Counts of the same policy have their rules in the same order.
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
    }
}
