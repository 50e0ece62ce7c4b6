//! What can be done about an attack, and the decisions that a caller carries out.

use crate::measure::{Pickup, Source};
use crate::prefix::Prefix;
use crate::signature::Signature;
use crate::victim::Evidence;
use serde::{Deserialize, Serialize};
use std::fmt::{self, Display, Formatter};
use weir_abi::PacketClass;

/// Number of an action, unique in a run.
pub type ActionId = u32;
/// Number of an attack, unique in a run.
pub type AttackId = u32;

/// How far decisions go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// Attacks are reported, and nothing is done.
    #[default]
    Watch,
    /// Actions wait until they are accepted.
    Propose,
    /// Actions are carried out.
    Act,
}

impl Mode {
    /// All modes.
    pub const ALL: [Mode; 3] = [Mode::Watch, Mode::Propose, Mode::Act];

    /// The mode with a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }

    /// The word on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Watch => "watch",
            Mode::Propose => "propose",
            Mode::Act => "act",
        }
    }
}

/// What an operator has prepared for attacks that no signature separates.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Prepared {
    /// Nothing: they are reported or limited.
    #[default]
    Nothing,
    /// A posture of the policy.
    Posture(String),
    /// A posture with a SYN proxy, which is simulated.
    SynProxy,
}

/// What is done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Measure {
    /// Packets that match are dropped.
    Drop(Signature),
    /// Packets that match are dropped above a rate.
    Limit(Signature, f64),
    /// Packets of a source to protected hosts are dropped until the timeout.
    Block(Source, u64),
    /// A posture of the policy is activated.
    Posture(String),
    /// A posture with a SYN proxy in front of these hosts, simulated for a recording.
    SynProxy(Prefix, Pickup),
}

impl Measure {
    /// The word in reports.
    pub fn name(&self) -> &'static str {
        match self {
            Measure::Drop(_) => "drop",
            Measure::Limit(..) => "limit",
            Measure::Block(..) => "block",
            Measure::Posture(_) | Measure::SynProxy(..) => "posture",
        }
    }

    /// The signature, if it has one.
    pub fn signature(&self) -> Option<&Signature> {
        match self {
            Measure::Drop(signature) | Measure::Limit(signature, _) => Some(signature),
            Measure::Block(..) | Measure::Posture(_) | Measure::SynProxy(..) => None,
        }
    }
}

impl Display for Measure {
    /// A rule or an entry in the policy language.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Measure::Drop(signature) => write!(f, "{signature} counter drop"),
            Measure::Limit(signature, pps) => write!(f, "{signature} counter limit rate {pps:.0}pps"),
            Measure::Block((is_ipv6, address), timeout_ns) => {
                let source = Prefix::of(*is_ipv6, *address, u8::MAX);
                write!(f, "{source} timeout {}s", timeout_ns / 1_000_000_000)
            }
            Measure::Posture(name) => write!(f, "posture {name}"),
            Measure::SynProxy(victim, pickup) => {
                let settings = if *pickup == Pickup::Off { ", pickup off" } else { "" };
                write!(f, "{} tcp synproxy{settings}", Signature::new(*victim, Vec::new()))
            }
        }
    }
}

/// What an action would have done to the sample that it was derived from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trial {
    /// Packets of the victim's sample that it would have hit.
    pub attack: usize,
    /// Packets of that sample.
    pub attack_of: usize,
    /// Legitimate packets of the reference that it would have hit.
    pub legitimate: usize,
    /// Legitimate packets of the reference.
    pub legitimate_of: usize,
}

/// An action with the reason for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Action {
    /// Its number.
    pub id: ActionId,
    /// The attack that it is for.
    pub attack: AttackId,
    /// What is done.
    pub measure: Measure,
    /// What it would have hit.
    pub trial: Trial,
}

/// Why an action ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ending {
    /// The action hit nothing for some time, or a blocked source became slow.
    Quiet,
    /// Another rule has taken its place: a coarser one, or one that differs from it in one field and has packets.
    Merged,
    /// Its time was over.
    Timeout,
    /// The action hit packets of proven sources.
    Collateral,
    /// The action could not be carried out.
    Failed,
    /// Another program has removed the rule that carried it out.
    Removed,
    /// The operator has dismissed it.
    Dismissed,
    /// Mitigation has stopped, or no longer acts.
    Stopped,
}

impl Ending {
    /// The word in reports.
    pub fn name(self) -> &'static str {
        match self {
            Ending::Quiet => "quiet",
            Ending::Merged => "merged",
            Ending::Timeout => "timeout",
            Ending::Collateral => "collateral",
            Ending::Failed => "failed",
            Ending::Removed => "removed",
            Ending::Dismissed => "dismissed",
            Ending::Stopped => "stopped",
        }
    }
}

/// A decision. The caller carries it out before the next window.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// An attack has been detected.
    Detected {
        /// Its number.
        attack: AttackId,
        /// The victim.
        victim: Prefix,
        /// What exceeded which threshold.
        evidence: Vec<Evidence>,
    },
    /// An attack has another vector.
    VectorBegan {
        /// The number of the attack.
        attack: AttackId,
        /// The class of the vector.
        class: PacketClass,
    },
    /// A vector has ended before its attack.
    VectorEnded {
        /// The number of the attack.
        attack: AttackId,
        /// The class of the vector.
        class: PacketClass,
    },
    /// Carry out an action.
    Apply(Action),
    /// An action waits for approval.
    Propose(Action),
    /// Undo an action.
    Undo(ActionId, Ending),
    /// An attack is over, and all its actions are undone.
    Ended(AttackId),
}

/// What an action has hit in a window, of the packets that were seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hit {
    /// The action.
    pub action: ActionId,
    /// Packets that it dropped, of those that were seen.
    pub packets: u64,
    /// Packets that a card dropped for it. Cards count every packet, whatever part of them is seen.
    pub by_card: u64,
    /// Packets that its rule's own counter says it has dropped. It counts every packet, as cards do. `None` if nothing
    /// counts them.
    pub counted: Option<u64>,
    /// Packets among `packets` by class.
    pub classes: [u64; PacketClass::COUNT],
    /// Packets among `packets` that belong to conversations of proven sources.
    pub proven: u64,
    /// Packets among `packets` that answers vouch for.
    pub vouched: u64,
    /// Packets among `packets` that belong to streams without proof.
    pub streamed: u64,
    /// Connections that have completed their handshake with a SYN proxy.
    pub completed: u64,
    /// SYNs of these connections. They pass after all, and were among `packets` in this window or before.
    pub released: u64,
}

impl Hit {
    /// The action has hit nothing.
    pub fn none(action: ActionId) -> Self {
        Hit {
            action,
            packets: 0,
            by_card: 0,
            counted: None,
            classes: [0; PacketClass::COUNT],
            proven: 0,
            vouched: 0,
            streamed: 0,
            completed: 0,
            released: 0,
        }
    }
}
