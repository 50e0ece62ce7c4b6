//! Classes of packets. Each has its own rate and baseline, because attacks use one or a few of them.

use crate::header::{Header, protocol, tcp};
use weir_abi::features::{SERVICE_PORTS, SYSTEM_PORT_MAX};
use weir_abi::packet::Fragment;

/// The class of a packet. A packet has exactly one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// TCP SYN without ACK.
    Syn,
    /// TCP SYN and ACK: an answer to a SYN.
    SynAck,
    /// TCP RST.
    Rst,
    /// Other TCP.
    Tcp,
    /// UDP from the port of a service: an answer.
    UdpService,
    /// Other UDP.
    Udp,
    /// ICMP and ICMPv6.
    Icmp,
    /// A fragment that is not the first of its datagram.
    Fragment,
    /// Any other protocol.
    Other,
}

impl Class {
    /// All classes.
    pub const ALL: [Class; 9] = [
        Class::Syn,
        Class::SynAck,
        Class::Rst,
        Class::Tcp,
        Class::UdpService,
        Class::Udp,
        Class::Icmp,
        Class::Fragment,
        Class::Other,
    ];
    /// Their number.
    pub const COUNT: usize = Self::ALL.len();

    /// The class of a packet.
    pub fn of(header: &Header) -> Self {
        if header.fragment == Fragment::Later {
            return Class::Fragment;
        }
        match header.protocol {
            protocol::TCP if header.flags & tcp::RST != 0 => Class::Rst,
            protocol::TCP => match header.flags & (tcp::SYN | tcp::ACK) {
                tcp::SYN => Class::Syn,
                flags if flags & tcp::SYN != 0 => Class::SynAck,
                _ => Class::Tcp,
            },
            protocol::UDP if header.sport <= SYSTEM_PORT_MAX || SERVICE_PORTS.contains(&header.sport) => {
                Class::UdpService
            }
            protocol::UDP => Class::Udp,
            protocol::ICMP | protocol::ICMP6 => Class::Icmp,
            _ => Class::Other,
        }
    }

    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Class::Syn => "SYN",
            Class::SynAck => "SYN-ACK",
            Class::Rst => "RST",
            Class::Tcp => "other TCP",
            Class::UdpService => "UDP from service ports",
            Class::Udp => "other UDP",
            Class::Icmp => "ICMP",
            Class::Fragment => "later fragments",
            Class::Other => "other protocols",
        }
    }

    /// The kind of an attack that consists of this class.
    pub fn attack(self) -> &'static str {
        match self {
            Class::Syn => "syn-flood",
            Class::SynAck => "syn-ack-reflection",
            Class::Rst => "rst-flood",
            Class::Tcp => "tcp-flood",
            Class::UdpService => "udp-reflection",
            Class::Udp => "udp-flood",
            Class::Icmp => "icmp-flood",
            Class::Fragment => "fragment-flood",
            Class::Other => "protocol-flood",
        }
    }
}
