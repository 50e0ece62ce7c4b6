//! What detection knows of a packet: its headers and the first bytes of its payload.

use crate::stored::StoredFragment;
use serde::{Deserialize, Serialize};
pub use weir_abi::flow::Arrival;
use weir_abi::packet::Fragment;

/// Bytes of the payload that a header keeps.
pub const PAYLOAD_BYTES: usize = 4;

/// IP protocol numbers with a class of their own.
pub mod protocol {
    /// ICMP.
    pub const ICMP: u8 = 1;
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
    /// ICMP for IPv6.
    pub const ICMP6: u8 = 58;
}

/// Bits of the TCP flags.
pub mod tcp {
    /// FIN
    pub const FIN: u8 = 1;
    /// SYN
    pub const SYN: u8 = 2;
    /// RST
    pub const RST: u8 = 4;
    /// PSH
    pub const PSH: u8 = 8;
    /// ACK
    pub const ACK: u8 = 16;
}

/// The headers of an IP packet. Numbers are in host byte order. Fields that the packet does not have are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The side from which it came, if that is known. If not, its source says so, which can be forged.
    #[serde(skip)]
    pub arrival: Option<Arrival>,
    /// Whether the addresses are IPv6 addresses.
    pub is_ipv6: bool,
    /// Source address. An IPv4 address is a number below 2^32.
    pub saddr: u128,
    /// Destination address.
    pub daddr: u128,
    /// The protocol behind all extension headers.
    pub protocol: u8,
    /// Position in its datagram. Later fragments have no transport header.
    #[serde(with = "StoredFragment")]
    pub fragment: Fragment,
    /// Whether TCP, UDP or another protocol with ports follows.
    pub has_ports: bool,
    /// Source port.
    pub sport: u16,
    /// Destination port.
    pub dport: u16,
    /// Bytes from the network header to the end of the frame, as `meta length`.
    pub length: u32,
    /// TTL or hop limit.
    pub ttl: u8,
    /// Identification of IPv4.
    pub ip_id: u16,
    /// TCP flags.
    pub flags: u8,
    /// Length of the TCP header, in words of four bytes.
    pub doff: u8,
    /// TCP window, unscaled.
    pub window: u16,
    /// TCP sequence number.
    pub seq: u32,
    /// TCP acknowledgement number.
    pub ack: u32,
    /// ICMP type.
    pub icmp_type: u8,
    /// ICMP code.
    pub icmp_code: u8,
    /// Bytes behind the transport header, as the IP header says.
    pub payload_length: u16,
    /// The first bytes of the payload; `None` if fewer were captured.
    pub payload: Option<[u8; PAYLOAD_BYTES]>,
}

impl Header {
    /// A header of IPv4 between two addresses without any other field, for tests and simulations.
    pub fn between(saddr: u32, daddr: u32) -> Self {
        Header {
            arrival: None,
            is_ipv6: false,
            saddr: saddr.into(),
            daddr: daddr.into(),
            protocol: 0,
            fragment: Fragment::None,
            has_ports: false,
            sport: 0,
            dport: 0,
            length: 20,
            ttl: 64,
            ip_id: 0,
            flags: 0,
            doff: 0,
            window: 0,
            seq: 0,
            ack: 0,
            icmp_type: 0,
            icmp_code: 0,
            payload_length: 0,
            payload: None,
        }
    }

    /// Whether it is TCP with exactly these of the flags SYN, ACK, RST and FIN.
    pub fn has_tcp_flags(&self, flags: u8) -> bool {
        let mask = tcp::SYN | tcp::ACK | tcp::RST | tcp::FIN;
        self.protocol == protocol::TCP && self.has_ports && self.flags & mask == flags
    }
}
