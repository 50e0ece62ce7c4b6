//! First fragments of datagrams, which vouch for the later ones: those have no transport header.

use super::standing::Proof;
use crate::header::Header;
use crate::measure::slots::{Slots, address_hash, hash};
use serde::{Deserialize, Serialize};

const SECOND_NS: u64 = 1_000_000_000;
/// First fragments that are remembered, and for how long: as a receiver waits for the rest (RFC 791, 15 s).
const FRAGMENTS: usize = 1 << 14;
const REASSEMBLY_NS: u64 = 15 * SECOND_NS;
/// Later fragments of a datagram: 64 KB in packets of 1,280 bytes, the smallest MTU of IPv6, and some more.
const LATER_MAX: u32 = 56;

/// The first fragment of a datagram, which vouches for the others.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct FirstFragment {
    key: u64,
    time_ns: u64,
    proof: Proof,
    /// Later fragments that it still vouches for.
    left: u32,
}

/// The first fragments of some seconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Fragments {
    slots: Slots<FirstFragment>,
    seed: u64,
}

impl Fragments {
    /// None was seen. The seed is a secret.
    pub fn new(seed: u64) -> Self {
        Fragments { slots: Slots::new(FRAGMENTS), seed }
    }

    /// The key of a datagram in fragments.
    fn datagram(&self, header: &Header) -> u64 {
        let source = address_hash(self.seed, header.is_ipv6, header.saddr);
        hash(address_hash(source, header.is_ipv6, header.daddr), &[header.ip_id.into(), header.protocol.into()])
    }

    /// What the first fragment of a datagram says of a later one.
    pub fn proof(&self, header: &Header, now_ns: u64) -> Proof {
        let key = self.datagram(header);
        let first = self.slots.get(key, |first| first.key == key);
        let first = first.filter(|first| now_ns.saturating_sub(first.time_ns) < REASSEMBLY_NS && first.left > 0);
        first.map_or(Proof::None, |first| first.proof)
    }

    /// As [`Fragments::proof`], for a fragment that is counted.
    pub fn take(&mut self, header: &Header, now_ns: u64) -> Proof {
        let (key, proof) = (self.datagram(header), self.proof(header, now_ns));
        if let Some(first) = self.slots.find(key, |first| first.key == key) {
            first.left = first.left.saturating_sub(1);
        }
        proof
    }

    /// A first fragment was seen. `proof` is what is known of its sender.
    pub fn vouch(&mut self, header: &Header, now_ns: u64, proof: Proof) {
        let key = self.datagram(header);
        let first = FirstFragment { key, time_ns: now_ns, proof, left: LATER_MAX };
        match self.slots.find(key, |first| first.key == key) {
            Some(known) => *known = first,
            None => {
                self.slots.add(key, first, u64::MAX, |first| first.time_ns);
            }
        }
    }
}
