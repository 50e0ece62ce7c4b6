//! What the active policy observes, as exact counts for mitigation.

use std::net::IpAddr;
use weir_abi::FeatureShape;
use weir_abi::features::key_address;
use weir_mitigate::measure::counts::Counts;
use weir_mitigate::measure::observed::Observed;
use weir_mitigate::prefix::Prefix;
use weir_state::features::{FeatureEntry, Features, KnownPeers, Taken};

/// Packets in a snapshot from which on new sources of an entry are estimated. With fewer, no rate is suspicious.
const PACKETS_MIN: u64 = 16;

/// Hands each snapshot to mitigation once.
#[derive(Debug, Default)]
pub struct Observer {
    /// Number of the snapshots of these features that were handed over.
    turns: u64,
}

impl Observer {
    /// The counts of the last snapshot, if it is a new one.
    pub fn next(&mut self, features: &Features) -> Option<Observed> {
        let Taken { last, before, turns, .. } = features.taken();
        if std::mem::replace(&mut self.turns, turns) == turns {
            return None;
        }
        let snapshot = last?;
        let [to, from] = snapshot.directions.each_ref().map(|of| {
            let (before, shape) = (&before, features.shape());
            of.entries.iter().map(move |entry| counts(entry, before, shape))
        });
        Some(Observed::new(snapshot.from_ns, snapshot.to_ns, to, from))
    }
}

fn counts(entry: &FeatureEntry, before: &KnownPeers, shape: &FeatureShape) -> Counts {
    let prefix = match key_address(entry.key) {
        IpAddr::V4(four) => Prefix::of(false, u32::from(four).into(), shape.lengths[0]),
        IpAddr::V6(six) => Prefix::of(true, six.into(), shape.lengths[1]),
    };
    let new_sources = if entry.counts.total() < PACKETS_MIN { 0 } else { before.new_peers(entry) };
    let (packets, bytes) = (entry.counts.packets.map(u64::from), entry.counts.bytes);
    Counts { packets, bytes, new_sources, ..Counts::new(prefix) }
}

#[cfg(test)]
mod tests {
    use super::counts;
    use weir_abi::features::{REPLAY_SEED, peer_hash, whole_key};
    use weir_abi::{FeatureCell, FeatureShape, PacketClass};
    use weir_state::features::{FeatureEntry, KnownPeers};

    #[test]
    fn entries_become_counts_of_their_prefix() {
        let shape = FeatureShape::new(64, [30, 128], [&[], &[]]);
        let mut cell = FeatureCell::default();
        for source in 0..20 {
            cell.count(PacketClass::Udp, 60);
            cell.see_peer(peer_hash(REPLAY_SEED, false, source));
        }
        let entry = FeatureEntry { key: whole_key(false, 0xc000_0204), counts: cell };
        let counts = counts(&entry, &KnownPeers::default(), &shape);
        assert_eq!((counts.prefix.to_string(), counts.total(), counts.bytes), ("192.0.2.4/30".to_owned(), 20, 1200));
        assert!((10..=40).contains(&counts.new_sources), "{}", counts.new_sources);
    }
}
