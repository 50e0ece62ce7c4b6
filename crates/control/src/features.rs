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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectionFeatures {
    /// Packets of all snapshots.
    pub all_packets: u64,
    /// Their bytes.
    pub all_bytes: u64,
    /// Number of addresses.
    pub addresses: usize,
    /// All packets that passed.
    pub total: FeatureCounts,
    /// Those of addresses that had no room.
    pub rest: FeatureCounts,
    /// Those that are not IP, or malformed.
    pub without_address: FeatureCounts,
    /// Those of addresses that are not protected.
    pub outside: FeatureCounts,
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
}

/// Counts of some packets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeatureCounts {
    /// Packets.
    pub packets: u64,
    /// Bytes on the wire.
    pub bytes: u64,
    /// Packets of each class that occurs.
    pub classes: BTreeMap<String, u64>,
}
