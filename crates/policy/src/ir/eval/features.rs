//! The reference of `observe`: what is counted of the packets that pass.

use super::super::{Direction, Observe};
use super::packet::{Packet, tcp_flag};
use std::collections::HashMap;
use weir_abi::features::{GROUP, REPLAY_SEED, SERVICE_PORTS, SYSTEM_PORT_MAX, group_of, hash};
use weir_abi::packet::{Fragment, L3, L4};
use weir_abi::{FeatureEntry, PacketClass};

/// What was counted of one direction.
#[derive(Clone, Debug, Default)]
pub struct DirectionFeatures {
    /// By protected address or prefix. A group has room for some of them, in the order of their first packets.
    groups: HashMap<usize, Vec<FeatureEntry>>,
    /// Packets whose address has no room.
    pub rest: FeatureEntry,
    /// Packets that are not IP, or malformed.
    pub without_address: FeatureEntry,
    /// Packets whose address is not protected.
    pub outside: FeatureEntry,
}

impl DirectionFeatures {
    /// The entries in the order of their keys.
    pub fn entries(&self) -> Vec<FeatureEntry> {
        let mut entries: Vec<FeatureEntry> = self.groups.values().flatten().copied().collect();
        entries.sort_unstable();
        entries
    }
}

/// The features of the packets that passed.
#[derive(Clone, Debug)]
pub(super) struct Features {
    settings: Observe,
    directions: [DirectionFeatures; 2],
}

impl Features {
    pub(super) fn new(settings: &Observe) -> Self {
        Features { settings: settings.clone(), directions: Default::default() }
    }

    pub(super) fn take(&mut self) -> [DirectionFeatures; 2] {
        std::mem::take(&mut self.directions)
    }

    /// Counts a packet that passes. A malformed one has no fields.
    pub(super) fn see(&mut self, direction: Direction, packet: Option<&Packet>, bytes: u32) {
        let of = &mut self.directions[direction as usize];
        let Some(packet) = packet.filter(|packet| matches!(packet.l3, L3::Ipv4 | L3::Ipv6)) else {
            return count(&mut of.without_address, PacketClass::Other, bytes);
        };
        let is_ipv6 = packet.l3 == L3::Ipv6;
        let address = match direction {
            Direction::Upstream => packet.daddr,
            Direction::Downstream => packet.saddr,
        };
        if !self.settings.contains(is_ipv6, address) {
            return count(&mut of.outside, class_of(packet), bytes);
        }
        let key = self.settings.shape.key(is_ipv6, address);
        let group = of.groups.entry(group_of(hash(REPLAY_SEED, key), self.settings.shape.groups())).or_default();
        let known = group.iter().position(|entry| entry.key == key).or_else(|| {
            let new = FeatureEntry { key, ..FeatureEntry::default() };
            (group.len() < GROUP).then(|| {
                group.push(new);
                group.len() - 1
            })
        });
        count(known.map_or(&mut of.rest, |at| &mut group[at]), class_of(packet), bytes);
    }
}

fn count(entry: &mut FeatureEntry, class: PacketClass, bytes: u32) {
    entry.bytes += u64::from(bytes);
    entry.packets[class as usize] += 1;
}

/// The class of an IP packet.
fn class_of(packet: &Packet) -> PacketClass {
    if packet.fragment == Fragment::Later {
        return PacketClass::Fragment;
    }
    let has = |flag: u8| packet.tcp_flags & flag != 0;
    match packet.l4 {
        L4::Tcp if has(tcp_flag::RST) => PacketClass::Rst,
        L4::Tcp if has(tcp_flag::SYN) && has(tcp_flag::ACK) => PacketClass::SynAck,
        L4::Tcp if has(tcp_flag::SYN) => PacketClass::Syn,
        L4::Tcp => PacketClass::Tcp,
        L4::Udp if packet.sport <= SYSTEM_PORT_MAX || SERVICE_PORTS.contains(&packet.sport) => PacketClass::UdpService,
        L4::Udp => PacketClass::Udp,
        L4::Icmp | L4::Icmp6 => PacketClass::Icmp,
        L4::None | L4::Ports | L4::Other => PacketClass::Other,
    }
}
