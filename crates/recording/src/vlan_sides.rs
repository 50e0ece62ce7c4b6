//! Whether the two directions of conversations have different VLAN tags, so that a tracker takes them for two flows.

use std::collections::HashMap;
use weir_abi::packet::{Fragment, L3, L4};
use weir_command::figures;
use weir_policy::ir::eval::packet::{self, Frame};

/// Most conversations that are remembered. Later ones are not examined.
const CONVERSATIONS_MAX: usize = 65_536;

/// Addresses, ports and protocol, from the side of the lower end.
type Ends = ([(u128, u16); 2], u8);

/// The tags of conversations so far.
#[derive(Debug, Default)]
pub struct VlanSides {
    /// The tags of the first packet from each end.
    tags: HashMap<Ends, [Option<Vec<u16>>; 2]>,
    differing: u64,
}

impl VlanSides {
    /// Adds a packet.
    pub fn add(&mut self, frame: Frame<'_>) {
        let (packet, malformed) = packet::parse(frame);
        let has_ports = matches!(packet.l4, L4::Tcp | L4::Udp | L4::Ports);
        let is_ip = matches!(packet.l3, L3::Ipv4 | L3::Ipv6);
        if malformed.is_some() || !is_ip || !has_ports || packet.fragment == Fragment::Later {
            return;
        }
        let ends = [(packet.saddr, packet.sport), (packet.daddr, packet.dport)];
        let from = usize::from(ends[0] > ends[1]);
        let key = ([ends[from], ends[1 - from]], packet.proto);
        if self.tags.len() >= CONVERSATIONS_MAX && !self.tags.contains_key(&key) {
            return;
        }
        let sides = self.tags.entry(key).or_default();
        if sides[from].is_none() {
            sides[from] = Some(packet.vlan.iter().map(|tag| tag & 0xfff).filter(|&id| id != 0).collect());
            self.differing += u64::from(sides[1 - from].is_some() && sides[0] != sides[1]);
        }
    }

    /// Conversations whose directions have different tags.
    pub fn differing(&self) -> u64 {
        self.differing
    }
}

/// The note for a report.
pub fn describe(differing: u64) -> String {
    match differing {
        0 => String::new(),
        count => format!(
            "\n  Conversations whose two directions have different VLAN tags, so that the tracker sees two flows: {}.\n  \
             With `vlan ignore` in `tracking {{ }}` tags are no part of a flow.\n",
            figures::grouped(count)
        ),
    }
}
