//! What is observed of the packets that pass: the answer to [`Request::Features`](crate::Request::Features).

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Maximum number of addresses in an answer.
pub const FEATURES_MAX: usize = 1 << 16;

/// The last snapshot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FeaturesShown {
    /// Seconds that it covers.
    pub seconds: f64,
    /// Seconds since its end.
    pub age_s: f64,
    /// Number of snapshots since the first policy with these settings was loaded.
    pub turns: u64,
    /// Addresses that have room, of each direction.
    pub size: u32,
    /// Packets to protected addresses.
    pub upstream: DirectionFeatures,
    /// Packets from protected addresses.
    pub downstream: DirectionFeatures,
    /// The addresses with most packets.
    pub addresses: Vec<AddressFeatures>,
}

/// Sums of one direction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DirectionFeatures {
    /// Packets of all snapshots.
    pub all_packets: u64,
    /// Bytes of the packets of all snapshots.
    pub all_bytes: u64,
    /// Number of addresses.
    pub addresses: usize,
    /// All packets that passed.
    pub total: FeatureCounts,
    /// Counts of addresses that had no room.
    pub rest: FeatureCounts,
    /// Counts of packets that are not IP, or malformed.
    pub without_address: FeatureCounts,
    /// Counts of addresses that are not protected.
    pub outside: FeatureCounts,
    /// What samples of packets to protected addresses show.
    pub samples: SampledFeatures,
}

/// Shares of packets to protected addresses, estimated from samples.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SampledFeatures {
    /// Packets among which samples were taken.
    pub seen: u64,
    /// Number of samples that are left of them.
    pub samples: usize,
    /// The most frequent sources.
    pub sources: Vec<Share>,
    /// The most frequent source ports, with protocol: `udp 53`.
    pub source_ports: Vec<Share>,
    /// The most frequent destination ports.
    pub destination_ports: Vec<Share>,
    /// The most frequent lengths, bytes on the wire.
    pub lengths: Vec<Share>,
    /// The most frequent values of TTL or hop limit.
    pub ttls: Vec<Share>,
}

/// A value and the share of packets that have it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Share {
    /// The value.
    pub value: String,
    /// Share of the packets, 0 to 1.
    pub share: f64,
    /// Number of samples that it is estimated from.
    pub samples: usize,
}

/// A protected address or prefix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressFeatures {
    /// The address or prefix.
    pub address: String,
    /// Packets to it.
    pub upstream: FeatureCounts,
    /// Packets from it.
    pub downstream: FeatureCounts,
    /// Estimated number of sources that the seconds before did not see.
    pub new_sources: u64,
}

/// Counts of some packets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeatureCounts {
    /// Packets.
    pub packets: u64,
    /// Bytes on the wire.
    pub bytes: u64,
    /// Estimated number of other ends: sources upstream, destinations downstream. The standard error is 28%.
    pub peers: u64,
    /// Packets of each class that occurs.
    pub classes: BTreeMap<String, u64>,
}
