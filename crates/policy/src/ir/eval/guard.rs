//! Which packets have the headers that a guard names.

use super::packet::Packet;
use crate::field::Guard;
use weir_abi::packet::{L3, L4};

/// Whether the packet satisfies the guard.
pub fn guard_holds(guard: Guard, packet: &Packet) -> bool {
    let ip = matches!(packet.l3, L3::Ipv4 | L3::Ipv6);
    match guard {
        Guard::Any => true,
        Guard::Vlan => !packet.vlan.is_empty(),
        Guard::QinQ => packet.vlan.len() >= 2,
        Guard::Ipv4 => packet.l3 == L3::Ipv4,
        Guard::Ipv6 => packet.l3 == L3::Ipv6,
        Guard::Ip => ip,
        Guard::Tcp => packet.l4 == L4::Tcp,
        Guard::Udp => packet.l4 == L4::Udp,
        Guard::Icmp => packet.l4 == L4::Icmp,
        Guard::Icmp6 => packet.l4 == L4::Icmp6,
        Guard::Ports => matches!(packet.l4, L4::Tcp | L4::Udp | L4::Ports),
        Guard::Transport => packet.l4 != L4::None,
    }
}
