//! What is exported to collectors of sFlow and IPFIX.

use serde::{Deserialize, Serialize};

/// Exports since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportStatus {
    /// Packets are sampled as one of so many.
    pub every: u32,
    /// Packets that were sampled.
    pub samples: u64,
    /// Packets that were chosen, but lost for lack of room.
    pub lost: u64,
    /// What a collector of sFlow gets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sflow: Option<SampleExportStatus>,
    /// What a collector of IPFIX gets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipfix: Option<FlowExportStatus>,
}

/// What a collector of sFlow gets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampleExportStatus {
    /// The collector.
    #[serde(flatten)]
    pub collector: CollectorStatus,
    /// Notifications of dropped packets.
    pub notifications: u64,
    /// Dropped packets without a notification, because their second had too many.
    pub suppressed: u64,
}

/// What a collector of IPFIX gets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowExportStatus {
    /// The collector.
    #[serde(flatten)]
    pub collector: CollectorStatus,
    /// Flows that have ended.
    pub records: u64,
    /// Flows that have not ended.
    pub flows: u64,
    /// Flows that ended because there were too many at a time.
    pub evicted: u64,
    /// Samples that belong to no flow, because they have no IP header.
    pub without_flow: u64,
}

/// A collector.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CollectorStatus {
    /// Its address and port.
    pub address: String,
    /// Datagrams that the kernel took. Those that nobody receives may be among them.
    pub datagrams: u64,
    /// Datagrams that were refused or could not be sent.
    pub errors: u64,
    /// The last error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}
