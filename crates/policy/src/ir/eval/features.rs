//! The reference of `observe`: what is counted of the packets that pass.

use super::super::{Direction, Observe};
use super::packet::Packet;
use std::collections::BTreeMap;
use weir_abi::features::{FeatureSampler, GROUP, RECORDS, REPLAY_SEED, group_of, peer_hash, whole_key};
use weir_abi::packet::{Fragment, L3, L4};
use weir_abi::{FeatureCell, FeatureRecord, FeatureShape, PacketClass};

/// What was counted of one direction.
#[derive(Clone, Debug, Default)]
pub struct DirectionFeatures {
    /// By protected address or prefix.
    pub entries: BTreeMap<[u64; 2], FeatureCell>,
    /// The keys of each group, if a hash selects cells: in the order of their first packets.
    groups: BTreeMap<usize, Vec<[u64; 2]>>,
    /// Packets whose address has no room.
    pub rest: FeatureCell,
    /// Packets that are not IP, or malformed.
    pub without_address: FeatureCell,
    /// Packets whose address is not protected.
    pub outside: FeatureCell,
    /// Which packets to protected addresses are sampled.
    pub sampler: FeatureSampler,
    /// Records of the sampled packets.
    pub records: Vec<FeatureRecord>,
}

/// The features of the packets that passed.
#[derive(Clone, Debug)]
pub(super) struct Features {
    settings: Observe,
    shape: FeatureShape,
    directions: [DirectionFeatures; 2],
}

impl Features {
    pub(super) fn new(settings: &Observe) -> Self {
        Features { settings: settings.clone(), shape: settings.shape(), directions: Default::default() }
    }

    pub(super) fn take(&mut self) -> [DirectionFeatures; 2] {
        std::mem::take(&mut self.directions)
    }

    /// Counts a packet that passes. A malformed one has no fields.
    pub(super) fn see(&mut self, direction: Direction, packet: Option<&Packet>, bytes: u32) {
        let of = &mut self.directions[direction as usize];
        let Some(packet) = packet.filter(|packet| matches!(packet.l3, L3::Ipv4 | L3::Ipv6)) else {
            return of.without_address.count(PacketClass::Other, bytes);
        };
        let (is_ipv6, class) = (packet.l3 == L3::Ipv6, class_of(packet));
        let (own, peer) = match direction {
            Direction::Upstream => (packet.daddr, packet.saddr),
            Direction::Downstream => (packet.saddr, packet.daddr),
        };
        let is_inside = self.settings.contains(is_ipv6, own);
        let cell = match is_inside {
            true => of.cell(&self.shape, is_ipv6, own),
            false => &mut of.outside,
        };
        cell.count(class, bytes);
        cell.see_peer(peer_hash(REPLAY_SEED, is_ipv6, peer));
        if is_inside && let Some(place) = of.sampler.see(REPLAY_SEED) {
            let record = record(packet, class, bytes);
            match of.records.get_mut(place) {
                Some(known) => *known = record,
                None => of.records.push(record),
            }
            assert!(of.records.len() <= RECORDS, "the sampler gives places in order");
        }
    }
}

impl DirectionFeatures {
    /// The cell of a protected address.
    fn cell(&mut self, shape: &FeatureShape, is_ipv6: bool, own: u128) -> &mut FeatureCell {
        let key = shape.key(is_ipv6, own);
        if !shape.is_direct() {
            let group = self.groups.entry(group_of(REPLAY_SEED, key, shape.groups())).or_default();
            if !group.contains(&key) {
                if group.len() == GROUP {
                    return &mut self.rest;
                }
                group.push(key);
            }
        }
        self.entries.entry(key).or_default()
    }
}

fn record(packet: &Packet, class: PacketClass, len: u32) -> FeatureRecord {
    let is_ipv6 = packet.l3 == L3::Ipv6;
    FeatureRecord {
        source: whole_key(is_ipv6, packet.saddr),
        destination: whole_key(is_ipv6, packet.daddr),
        len,
        sport: packet.sport,
        dport: packet.dport,
        proto: packet.proto,
        ttl: packet.ttl,
        tcp_flags: packet.tcp_flags,
        class: class as u8,
        ..FeatureRecord::default()
    }
}

/// The class of an IP packet.
fn class_of(packet: &Packet) -> PacketClass {
    if packet.fragment == Fragment::Later {
        return PacketClass::Fragment;
    }
    match packet.l4 {
        L4::Tcp => PacketClass::of_tcp(packet.tcp_flags),
        L4::Udp => PacketClass::of_udp(packet.sport),
        L4::Icmp | L4::Icmp6 => PacketClass::Icmp,
        L4::None | L4::Ports | L4::Other => PacketClass::Other,
    }
}
