//! Sources of protected addresses that recent snapshots have seen.
//!
//! Sketches are joined, so what a snapshot adds to the sources before it can be estimated. There are two generations:
//! the current one takes in snapshots, and replaces the previous one after [`SNAPSHOTS`] of them. So memory is bounded
//! by what two generations of snapshots have seen, and sources are known for that many to twice as many snapshots.

use std::collections::HashMap;
use std::mem;

use weir_abi::features::{LANES, peers_of};

use super::{DirectionSnapshot, FeatureEntry};

/// Snapshots of a generation.
const SNAPSHOTS: u32 = 10;

/// The sketches of recent snapshots, by key.
#[derive(Clone, Debug, Default)]
pub struct KnownPeers {
    current: HashMap<[u64; 2], [u16; LANES]>,
    previous: HashMap<[u64; 2], [u16; LANES]>,
    snapshots: u32,
}

impl KnownPeers {
    /// Takes in the sources of a snapshot.
    pub fn see(&mut self, of: &DirectionSnapshot) {
        if self.snapshots == SNAPSHOTS {
            self.previous = mem::take(&mut self.current);
            self.snapshots = 0;
        }
        self.snapshots += 1;
        for entry in &of.entries {
            join(self.current.entry(entry.key).or_default(), &entry.counts.peers);
        }
    }

    /// Estimated number of sources of an entry that were not seen before.
    pub fn new_peers(&self, entry: &FeatureEntry) -> u64 {
        let mut known = [0; LANES];
        [&self.current, &self.previous].iter().filter_map(|of| of.get(&entry.key)).for_each(|of| join(&mut known, of));
        let before = peers_of(&known);
        join(&mut known, &entry.counts.peers);
        peers_of(&known) - before
    }
}

fn join(lanes: &mut [u16; LANES], more: &[u16; LANES]) {
    lanes.iter_mut().zip(more).for_each(|(lane, more)| *lane |= more);
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_abi::FeatureCell;
    use weir_abi::features::peer_hash;

    fn entry(peers: std::ops::Range<u128>) -> FeatureEntry {
        let mut counts = FeatureCell::default();
        peers.for_each(|peer| counts.see_peer(peer_hash(7, false, peer)));
        FeatureEntry { key: [0, 1], counts }
    }

    fn snapshot(entries: Vec<FeatureEntry>) -> DirectionSnapshot {
        DirectionSnapshot { entries, ..DirectionSnapshot::default() }
    }

    #[test]
    fn sources_are_new_until_they_were_seen_and_again_when_they_are_forgotten() {
        let mut known = KnownPeers::default();
        assert!(known.new_peers(&entry(0..1000)) > 300);
        known.see(&snapshot(vec![entry(0..1000)]));
        assert_eq!(known.new_peers(&entry(0..1000)), 0);
        assert!(known.new_peers(&entry(100_000..200_000)) > 30_000);
        (0..2 * SNAPSHOTS).for_each(|_| known.see(&snapshot(vec![])));
        assert!(known.new_peers(&entry(0..1000)) > 300);
        assert!(known.current.is_empty() && known.previous.is_empty());
    }
}
