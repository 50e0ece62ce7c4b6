//! Packets that belong together, as flows with a bounded number of them at a time.
//!
//! Sources in a flood are forged, so each of its packets may be a new flow. A full cache ends the flow that has been
//! silent longest, which costs as much as any other packet: two searches and a record. The hash function has a random
//! key, so that nobody can choose addresses that collide.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

/// What packets of a flow have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// Source and destination, of one family.
    pub addresses: Addresses,
    /// The protocol behind all extension headers.
    pub protocol: u8,
    /// Source port; 0 without ports, also in later fragments.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
    /// Type and code of ICMP, as `type << 8 | code`; 0 for other protocols.
    pub icmp: u16,
    /// Index of the interface that received it.
    pub input: u32,
    /// Index of the interface that sent it; 0 if it is not known, or nothing was sent.
    pub output: u32,
    /// What was done with it (`forwardingStatus`).
    pub status: u8,
}

/// Source and destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Addresses {
    /// IPv4
    V4([u8; 4], [u8; 4]),
    /// IPv6
    V6([u8; 16], [u8; 16]),
}

impl Addresses {
    /// Both, unless their families differ.
    pub fn of(source: IpAddr, destination: IpAddr) -> Option<Self> {
        match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => Some(Addresses::V4(source.octets(), destination.octets())),
            (IpAddr::V6(source), IpAddr::V6(destination)) => Some(Addresses::V6(source.octets(), destination.octets())),
            _ => None,
        }
    }
}

/// What a packet adds to its flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addition {
    /// When it was decided, in milliseconds of the caller's clock.
    pub at_ms: u64,
    /// Its length from the IP header on, in bytes.
    pub bytes: u64,
    /// TCP flags; 0 for other protocols.
    pub tcp_flags: u8,
}

/// What is known of a flow. Packets and bytes are those that were sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Time of the first packet, in milliseconds of the caller's clock.
    pub first_ms: u64,
    /// Time of the last packet.
    pub last_ms: u64,
    /// Number of packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// All TCP flags of its packets.
    pub tcp_flags: u8,
}

/// Why a flow ended (`flowEndReason`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum End {
    /// It was silent for the idle timeout.
    Idle = 1,
    /// It lasted longer than the active timeout. Later packets begin another flow.
    Active = 2,
    /// Weir ended.
    Forced = 4,
    /// The cache was full.
    Full = 5,
}

/// Bounds of the cache.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Most flows at a time, about 200 bytes each.
    pub flows: usize,
    /// A flow without packets for this time ends.
    pub idle_ms: u64,
    /// A flow ends with the first packet after this time.
    pub active_ms: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Bounds { flows: 65_536, idle_ms: 15_000, active_ms: 60_000 }
    }
}

/// The flows that have not ended.
pub struct Flows {
    bounds: Bounds,
    flows: HashMap<Key, Cached>,
    /// Flows in the order of their last packets.
    order: BTreeMap<u64, Key>,
    /// Number of packets.
    turn: u64,
    evicted: u64,
}

/// A flow with its place in the order.
struct Cached {
    flow: Flow,
    turn: u64,
}

impl Flows {
    /// No flows. There is room for at least one.
    pub fn new(bounds: Bounds) -> Self {
        let bounds = Bounds { flows: bounds.flows.max(1), ..bounds };
        Flows { bounds, flows: HashMap::new(), order: BTreeMap::new(), turn: 0, evicted: 0 }
    }

    /// Adds a packet. Times of packets do not go back by more than their order in a burst.
    pub fn add(&mut self, key: Key, packet: Addition, end: &mut impl FnMut(&Key, &Flow, End)) {
        let found = self.flows.get(&key).map(|cached| cached.flow);
        match found {
            Some(flow) if packet.at_ms.saturating_sub(flow.first_ms) >= self.bounds.active_ms => {
                self.take(&key);
                end(&key, &flow, End::Active);
            }
            None if self.flows.len() >= self.bounds.flows => {
                if let Some((_, oldest)) = self.order.first_key_value() {
                    let oldest = *oldest;
                    let flow = self.take(&oldest);
                    self.evicted += 1;
                    end(&oldest, &flow, End::Full);
                }
            }
            _ => {}
        }
        self.turn += 1;
        let turn = self.turn;
        let Addition { at_ms, bytes, tcp_flags } = packet;
        let empty = Flow { first_ms: at_ms, last_ms: at_ms, packets: 0, bytes: 0, tcp_flags: 0 };
        let cached = self.flows.entry(key).or_insert(Cached { flow: empty, turn });
        self.order.remove(&cached.turn);
        self.order.insert(turn, key);
        cached.turn = turn;
        let flow = &mut cached.flow;
        flow.first_ms = flow.first_ms.min(at_ms);
        flow.last_ms = flow.last_ms.max(at_ms);
        flow.packets += 1;
        flow.bytes += bytes;
        flow.tcp_flags |= tcp_flags;
    }

    /// Ends the flows that are silent for the idle timeout.
    pub fn expire(&mut self, now_ms: u64, end: &mut impl FnMut(&Key, &Flow, End)) {
        while let Some((_, key)) = self.order.first_key_value() {
            let key = *key;
            let last_ms = self.flows[&key].flow.last_ms;
            if now_ms.saturating_sub(last_ms) < self.bounds.idle_ms {
                return;
            }
            let flow = self.take(&key);
            end(&key, &flow, End::Idle);
        }
    }

    /// Ends all flows.
    pub fn finish(&mut self, end: &mut impl FnMut(&Key, &Flow, End)) {
        for (_, key) in std::mem::take(&mut self.order) {
            let cached = self.flows.remove(&key).expect("a flow of the order is there");
            end(&key, &cached.flow, End::Forced);
        }
    }

    /// Number of flows that have not ended.
    pub fn len(&self) -> usize {
        self.flows.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }

    /// Number of flows that ended because the cache was full.
    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Removes a flow that is there.
    fn take(&mut self, key: &Key) -> Flow {
        let cached = self.flows.remove(key).expect("the flow is there");
        self.order.remove(&cached.turn);
        cached.flow
    }
}
