//! Requests about attacks, and their answers.

use crate::Share;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What to do with attacks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum AttackOperation {
    /// Lists the attacks that last and those that are over. The answer is [`AttacksListed`].
    List,
    /// Shows an attack. The answer is [`AttackEntry`].
    Show {
        /// Its number.
        attack: u32,
    },
    /// Carries out the actions against an attack that wait. The answer is [`AttacksChanged`].
    Accept {
        /// Its number.
        attack: u32,
    },
    /// Ends the actions against an attack that wait or are carried out. The answer is [`AttacksChanged`].
    Dismiss {
        /// Its number.
        attack: u32,
    },
    /// Sets how far decisions go. The answer is [`AttacksMode`].
    Mode {
        /// `watch`, `propose` or `act`.
        mode: String,
    },
    /// Lists what was learned. The answer is [`BaselineListed`](crate::BaselineListed).
    Baseline {
        /// Maximum number of prefixes, those with the most packets first.
        top: usize,
    },
    /// Sets a learned rate. The answer is [`BaselineChanged`](crate::BaselineChanged).
    SetBaseline {
        /// `source`, or a prefix.
        of: String,
        /// Which rate of the prefix, such as `unproven.udp`; none for `source`.
        #[serde(default)]
        rate: Option<String>,
        /// Packets a second.
        pps: u64,
    },
    /// Forgets what was learned. The answer is [`BaselineChanged`](crate::BaselineChanged).
    ResetBaseline {
        /// `all`, `source`, `known`, `reference`, `signatures`, or a prefix.
        of: String,
    },
}

/// The answer to [`AttackOperation::List`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttacksListed {
    /// How far decisions go: `watch`, `propose` or `act`.
    pub mode: String,
    /// What is measured.
    pub samples: SamplesStatus,
    /// Actions that could not be carried out, by the reason.
    pub not_carried_out: BTreeMap<String, u64>,
    /// What was told to others.
    #[serde(default)]
    pub events: EventsStatus,
    /// The attacks, in the order of their numbers.
    pub attacks: Vec<AttackEntry>,
}

/// What mitigation has seen since its start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SamplesStatus {
    /// One packet in this many is copied.
    pub one_in: u32,
    /// Copies that were read.
    pub seen: u64,
    /// Copies that were lost on their way.
    pub lost: u64,
    /// Copies of packets with a source inside that came from outside: forgeries.
    #[serde(default)]
    pub forged: u64,
    /// Which directions of traffic are seen: `both`, `one`, or `unknown` if too few conversations are seen.
    #[serde(default)]
    pub directions: String,
    /// Datagrams that were not judged, because answers are not seen.
    #[serde(default)]
    pub unjudged: u64,
    /// Windows that were measured.
    pub windows: u64,
    /// Windows with too few copies to conclude anything.
    pub blind_windows: u64,
    /// Why nothing is measured now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// What was told to others about attacks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventsStatus {
    /// Events in the file.
    pub written: u64,
    /// Events that could not be written.
    pub write_failed: u64,
    /// Events for which the queue had no room, because the disk is slow.
    pub write_lost: u64,
    /// Calls of the program that succeeded.
    pub called: u64,
    /// Calls that failed or took too long.
    pub call_failed: u64,
    /// Calls for which the queue had no room, because the program is slow.
    pub call_lost: u64,
    /// Attacks that were exported.
    #[serde(default)]
    pub exported: u64,
    /// Attacks that could not be exported, for instance because the folder has as many as it may have.
    #[serde(default)]
    pub export_failed: u64,
    /// Attacks that were not exported, because too many came at once.
    #[serde(default)]
    pub export_lost: u64,
    /// The last problem of each.
    pub problems: Vec<String>,
}

/// An attack.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttackEntry {
    /// Its number, unique in a run.
    pub attack: u32,
    /// The attacked address or prefix.
    pub victim: String,
    /// The kind, such as `syn-flood`.
    pub kind: String,
    /// Seconds since it was detected.
    pub age_s: f64,
    /// Seconds since it was last seen.
    pub seen_s: f64,
    /// Whether it is over.
    pub is_over: bool,
    /// The highest rate of packets without proof, packets a second.
    pub peak_pps: f64,
    /// What exceeded which threshold when it was detected.
    pub evidence: Vec<AttackEvidence>,
    /// What was decided, in order.
    pub actions: Vec<AttackAction>,
    /// The kinds of packets that it consists of, in the order in which they began. The first one has its kind.
    #[serde(default)]
    pub vectors: Vec<AttackVector>,
    /// Packets a second now, with what actions hold back; absent if it is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pps: Option<f64>,
    /// Bits a second now, from the mean length of its sampled packets; absent if that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bps: Option<f64>,
    /// Why no action is carried out; absent if one is, or if the attack is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle: Option<AttackIdle>,
    /// What its packets are; absent if too few were sampled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<AttackProfile>,
}

/// Why no action against an attack is carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttackIdle {
    /// The reason.
    pub why: String,
    /// What would help; absent if Weir goes on by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
}

/// The packets of an attack, from the last window with enough samples. Each list has the most frequent values first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttackProfile {
    /// Number of samples that it is from.
    pub samples: usize,
    /// Number of sources among them.
    pub sources_seen: usize,
    /// Mean length on the wire, bytes.
    pub mean_bytes: f64,
    /// Sources.
    pub sources: Vec<Share>,
    /// Source ports, with protocol: `udp 53`.
    pub source_ports: Vec<Share>,
    /// Destination ports.
    pub destination_ports: Vec<Share>,
    /// Lengths on the wire, bytes.
    pub lengths: Vec<Share>,
}

/// A kind of packets of an attack.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttackVector {
    /// The kind, such as `syn-flood`.
    pub kind: String,
    /// Seconds since it began.
    pub age_s: f64,
    /// Seconds since its rate last exceeded the threshold.
    pub seen_s: f64,
    /// Whether it is over.
    pub is_over: bool,
    /// Packets a second in the last window, with what actions hold back.
    pub pps: f64,
    /// The highest of these rates.
    pub peak_pps: f64,
    /// What exceeded which threshold when it began.
    pub evidence: Vec<AttackEvidence>,
    /// The numbers of the actions against it.
    pub actions: Vec<u32>,
}

/// A measurement that led to the detection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttackEvidence {
    /// What was measured.
    pub measure: String,
    /// Its value.
    pub value: f64,
    /// What is usual.
    pub usual: f64,
    /// The threshold; absent for measurements that only explain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<f64>,
}

/// An action against an attack.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttackAction {
    /// Its number, unique in a run.
    #[serde(default)]
    pub number: u32,
    /// The kind of the vector that it is for.
    #[serde(default)]
    pub kind: String,
    /// `drop`, `limit`, `block` or `posture`.
    pub action: String,
    /// The rule, entry or posture.
    pub rule: String,
    /// `watched`, `proposed`, `active`, or how it has ended: `quiet`, `merged`, `timeout`, `collateral`, `failed`, `removed`,
    /// `dismissed`, `stopped`.
    pub state: String,
    /// Where it is carried out: `slot attacks, rule 3`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// Seconds since it was decided or accepted.
    pub age_s: f64,
    /// Packets that its rule has dropped, counted by the datapath; absent if nothing counts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped: Option<u64>,
    /// Packets that it has hit, from the sample.
    pub packets: u64,
    /// Packets of proven sources.
    pub proven: u64,
    /// What it would have hit in the victim's sample.
    pub sample_attack: usize,
    /// Headers of that sample.
    pub sample_attack_of: usize,
    /// What it would have hit of legitimate headers.
    pub sample_legitimate: usize,
    /// Legitimate headers.
    pub sample_legitimate_of: usize,
    /// Why it could not be carried out, and how often in a row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// How often it was tried in vain.
    #[serde(default)]
    pub tries: u32,
}

/// The answer to [`AttackOperation::Mode`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttacksMode {
    /// The mode from now on.
    pub mode: String,
    /// Actions that are not carried out any more.
    pub undone: usize,
}

/// The answer to [`AttackOperation::Accept`] and [`AttackOperation::Dismiss`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttacksChanged {
    /// The number of the attack.
    pub attack: u32,
    /// Actions that were accepted or dismissed.
    pub changed: usize,
    /// Actions among them that were carried out, and are no more.
    #[serde(default)]
    pub undone: usize,
    /// Why some of them could not be carried out.
    pub problems: Vec<String>,
}
