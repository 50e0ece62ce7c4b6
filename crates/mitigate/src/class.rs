//! What the classes of packets are called, and what an attack of one is.

use crate::header::{Header, protocol};
use weir_abi::PacketClass;
use weir_abi::packet::Fragment;

/// The class of a packet.
pub fn of(header: &Header) -> PacketClass {
    match header.protocol {
        _ if header.fragment == Fragment::Later => PacketClass::Fragment,
        protocol::TCP => PacketClass::of_tcp(header.flags),
        protocol::UDP => PacketClass::of_udp(header.sport),
        protocol::ICMP | protocol::ICMP6 => PacketClass::Icmp,
        _ => PacketClass::Other,
    }
}

/// Whether a class consists of UDP.
pub fn is_datagram(class: PacketClass) -> bool {
    matches!(class, PacketClass::Udp | PacketClass::UdpService)
}

/// Whether a class consists of TCP.
pub fn is_tcp(class: PacketClass) -> bool {
    matches!(class, PacketClass::Syn | PacketClass::SynAck | PacketClass::Rst | PacketClass::Tcp)
}

/// The name of a class in evidence.
pub fn title(class: PacketClass) -> &'static str {
    match class {
        PacketClass::Syn => "SYN",
        PacketClass::SynAck => "SYN-ACK",
        PacketClass::Rst => "RST",
        PacketClass::Tcp => "other TCP",
        PacketClass::UdpService => "UDP from service ports",
        PacketClass::Udp => "other UDP",
        PacketClass::Icmp => "ICMP",
        PacketClass::Fragment => "later fragments",
        PacketClass::Other => "other protocols",
    }
}

/// The kind of an attack that consists of a class.
pub fn attack(class: PacketClass) -> &'static str {
    match class {
        PacketClass::Syn => "syn-flood",
        PacketClass::SynAck => "syn-ack-reflection",
        PacketClass::Rst => "rst-flood",
        PacketClass::Tcp => "tcp-flood",
        PacketClass::UdpService => "udp-reflection",
        PacketClass::Udp => "udp-flood",
        PacketClass::Icmp => "icmp-flood",
        PacketClass::Fragment => "fragment-flood",
        PacketClass::Other => "protocol-flood",
    }
}
