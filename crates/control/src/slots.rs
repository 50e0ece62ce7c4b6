//! Requests about slots of rules, and their answers.

use serde::{Deserialize, Serialize};

/// What to do with a slot of the active generation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum SlotOperation {
    /// Appends a rule. The answer is [`SlotChanged`] with its number.
    Add {
        /// The rule, in the language of policies.
        rule: String,
        /// The rule is removed after this time.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout_ms: Option<u64>,
    },
    /// Puts a rule in place of another one. The answer is [`SlotChanged`].
    Replace {
        /// The number of the rule, which the new rule keeps.
        number: u32,
        /// The new rule.
        rule: String,
        /// The rule is removed after this time.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout_ms: Option<u64>,
    },
    /// Removes a rule. The answer is [`SlotChanged`].
    Del {
        /// Its number.
        number: u32,
    },
    /// Removes all rules. The answer is [`SlotChanged`].
    Flush,
    /// Lists the rules. The answer is [`SlotListed`].
    List,
}

/// The answer to a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotChanged {
    /// The number of the rule that was added or replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u32>,
    /// Number of rules after the change.
    pub rules: usize,
    /// Number of rules that the policy reserves.
    pub size: usize,
}

/// The answer to [`SlotOperation::List`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SlotListed {
    /// The name of the slot.
    pub slot: String,
    /// Number of rules that the policy reserves.
    pub size: usize,
    /// The rules in the order in which packets meet them.
    pub rules: Vec<SlotRuleListed>,
}

/// A rule of a slot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SlotRuleListed {
    /// Its number, unique in the slot.
    pub number: u32,
    /// The rule.
    pub rule: String,
    /// Packets that matched.
    pub packets: u64,
    /// Bytes on the wire of the packets that matched.
    pub bytes: u64,
    /// Packets of them that it dropped.
    pub dropped: u64,
    /// Packets a second that match now.
    pub rate_pps: f64,
    /// Seconds until it is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_s: Option<f64>,
}
