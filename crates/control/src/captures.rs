//! Captures: copies of packets with their verdicts.

use serde::{Deserialize, Serialize};

/// Which packets a client wants to look at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct CaptureFilter {
    /// A rule of the active policy, by place (`edge.weir:26`), text, or both.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// A built-in reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Matches of the language, as rules of slots have them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub matches: Option<String>,
    /// `accept`, `drop`, `divert`, `reply`; none: all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<String>,
    /// `lower` or `upper`, where packets arrive; `None`: both.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub side: Option<String>,
    /// One packet in so many, chosen by chance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every: Option<u32>,
    /// Bytes of a packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snap: Option<u32>,
    /// Ends after so many packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Copies per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget_pps: Option<u32>,
}

/// The answer to [`Request::Capture`](crate::Request::Capture). Behind its line the connection carries a pcapng file,
/// as packets are decided. It ends with statistics of an interface, when the client ends its half of the connection or
/// has what it wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureStarted {
    /// The generation that was active.
    pub generation: u64,
    /// The rules that are meant, as place and text.
    pub rules: Vec<String>,
}
