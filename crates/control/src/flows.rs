//! Requests about tracked flows, and their answers.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Maximum number of flows in an answer.
pub const FLOWS_MAX: usize = 1 << 16;

/// What to do with the flows of the active generation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum FlowOperation {
    /// Lists flows, the ones with the latest packets first. The answer is [`FlowsListed`].
    List {
        /// Maximum number of flows. The server lists at most [`FLOWS_MAX`].
        top: usize,
        /// Only flows in this state, as docs/reference/tracking.md names it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        state: Option<String>,
        /// Only flows whose opening packet has these matches, in the language of policies.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        matches: Option<String>,
    },
    /// Counts the flows by state. The answer is [`FlowsCounted`].
    Count,
    /// Ends flows: the next packet finds no flow. The answer is [`FlowsKilled`].
    Kill {
        /// Flows whose opening packet has these matches.
        matches: String,
    },
}

/// The answer to [`FlowOperation::List`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlowsListed {
    /// Number of flows that match the request. The list may contain fewer.
    pub total: usize,
    /// The flows.
    pub flows: Vec<FlowEntry>,
}

/// A flow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlowEntry {
    /// `tcp`, `udp`, `icmp`, `icmpv6`, or the number of another IP protocol.
    pub protocol: String,
    /// The address of the side that opened it.
    pub saddr: IpAddr,
    /// Its port; `None` without ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sport: Option<u16>,
    /// The address of the other side.
    pub daddr: IpAddr,
    /// Its port; `None` without ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dport: Option<u16>,
    /// The ids of the outer and the inner VLAN tag; 0 without a tag. `None` if both are 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<[u16; 2]>,
    /// The state.
    pub state: String,
    /// Whether the other side has answered.
    pub replied: bool,
    /// Whether windows are not checked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub liberal: bool,
    /// Seconds since the last packet that counts for the timeout.
    pub idle_s: f64,
    /// Seconds until it expires, if no packet follows.
    pub expires_s: f64,
}

/// The answer to [`FlowOperation::Count`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlowsCounted {
    /// Number of flows that the table holds.
    pub size: u32,
    /// Number of flows.
    pub flows: u64,
    /// Number of connections that are not open yet.
    pub embryonic: u64,
    /// Number of flows whose sender cannot prove its address.
    #[serde(default)]
    pub unproven: u64,
    /// Number of connections that close or were reset.
    #[serde(default)]
    pub closing: u64,
    /// Number of flows in each state that occurs.
    pub states: BTreeMap<String, u64>,
}

/// The answer to [`FlowOperation::Kill`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlowsKilled {
    /// Number of flows that were ended.
    pub killed: usize,
}
