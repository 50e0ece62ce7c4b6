//! What all layers share: each needs to know about the layers around it.

use crate::args::{self, Args};
use std::net::{Ipv4Addr, Ipv6Addr};

/// The EtherType if nothing else determines one: IEEE 802 local experimental.
pub const ETHER_TYPE_EXPERIMENTAL: u16 = 0x88b5;
/// The IP protocol if nothing else determines one: RFC 3692 experimental.
pub const PROTO_EXPERIMENTAL: u8 = 253;
/// IPv6: nothing follows (RFC 8200 section 4.7).
pub const PROTO_NONE: u8 = 59;

/// The part of a packet that is already built, from its end backwards.
#[derive(Default)]
pub struct Inner {
    /// The bytes of the inner layers.
    pub bytes: Vec<u8>,
    /// The EtherType of the inner layer, if it has one.
    pub ether_type: Option<u16>,
    /// The IP protocol of the inner layer, if it has one.
    pub proto: Option<u8>,
}

impl Inner {
    /// The protocol of the inner layer, or `otherwise`, for an IP header without `proto=` or `nh=`.
    pub fn proto_or(&self, otherwise: u8) -> u8 {
        match self.proto {
            Some(proto) => proto,
            None if self.bytes.is_empty() => otherwise,
            None => PROTO_EXPERIMENTAL,
        }
    }
}

/// The addresses of the IP header around a transport header, for the transport's checksum.
#[derive(Clone, Copy)]
pub enum Addresses {
    /// IPv4.
    V4(Ipv4Addr, Ipv4Addr),
    /// IPv6.
    V6(Ipv6Addr, Ipv6Addr),
}

impl Addresses {
    /// The pseudo-header of RFC 9293 section 3.1 and RFC 8200 section 8.1.
    pub fn pseudo_header(self, proto: u8, length: usize) -> Vec<u8> {
        let length = length as u32;
        match self {
            Addresses::V4(saddr, daddr) => {
                let tail = [0, proto, (length >> 8) as u8, length as u8];
                [&saddr.octets()[..], &daddr.octets(), &tail].concat()
            }
            Addresses::V6(saddr, daddr) => {
                let tail = [0, 0, 0, proto];
                [&saddr.octets()[..], &daddr.octets(), &length.to_be_bytes(), &tail].concat()
            }
        }
    }
}

/// Names of IP protocols in `proto=` and `nh=`. Layers of the same name have these numbers.
const PROTOS: &[(&str, u8)] = &[
    ("hbh", 0),
    ("icmp", 1),
    ("ip", 4),
    ("tcp", 6),
    ("udp", 17),
    ("dccp", 33),
    ("ip6", 41),
    ("rt", 43),
    ("frag", 44),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("icmp6", 58),
    ("none", PROTO_NONE),
    ("dst", 60),
    ("sctp", 132),
    ("mh", 135),
    ("udplite", 136),
];

/// The number of a protocol by name.
pub fn proto(name: &str) -> Option<u8> {
    PROTOS.iter().find(|(known, _)| *known == name).map(|(_, number)| *number)
}

/// Takes the name or number of a protocol from `key`.
pub fn proto_arg(args: &mut Args<'_>, key: &str) -> Result<Option<u8>, String> {
    let layer = args.layer();
    let Some(text) = args.value(key)? else { return Ok(None) };
    let number = proto(text).or_else(|| args::number(text));
    number.map(Some).ok_or_else(|| format!("{layer}: {key}={text} is no protocol"))
}

/// Takes a length field. By default it is the actual length, truncated to the field's width.
pub fn length_arg(args: &mut Args<'_>, actual: usize) -> Result<u16, String> {
    Ok(args.number("len")?.unwrap_or(actual as u16))
}
