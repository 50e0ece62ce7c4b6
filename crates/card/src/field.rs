//! The fields that cards know: those of patterns, and those that a body may carry.

use weir_abi::card::{field, header, source};
use weir_policy::field::{Field, Guard};

/// A field of up to 32 bits that a pattern may compare. The number is that of `docs/card-layout.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum CardField {
    /// Upper-layer protocol.
    Protocol = field::PROTOCOL,
    /// Source port.
    Sport = field::SPORT,
    /// Destination port.
    Dport = field::DPORT,
    /// TCP flags.
    TcpFlags = field::TCP_FLAGS,
    /// IPv4 source.
    Saddr = field::SADDR,
    /// IPv4 destination.
    Daddr = field::DADDR,
    /// Time to live, hop limit.
    Ttl = field::TTL,
    /// Bytes from the network header to the end of the frame.
    Length = field::LENGTH,
    /// ICMP or ICMPv6 type.
    IcmpType = field::ICMP_TYPE,
    /// ICMP or ICMPv6 code.
    IcmpCode = field::ICMP_CODE,
    /// VLAN id of the outermost tag.
    VlanId = field::VLAN_ID,
    /// TCP window.
    TcpWindow = field::TCP_WINDOW,
}

impl CardField {
    /// All of them by number, with their names in profiles.
    pub const ALL: [(Self, &str); field::COUNT] = [
        (Self::Protocol, "protocol"),
        (Self::Sport, "sport"),
        (Self::Dport, "dport"),
        (Self::TcpFlags, "tcp-flags"),
        (Self::Saddr, "saddr"),
        (Self::Daddr, "daddr"),
        (Self::Ttl, "ttl"),
        (Self::Length, "length"),
        (Self::IcmpType, "icmp-type"),
        (Self::IcmpCode, "icmp-code"),
        (Self::VlanId, "vlan-id"),
        (Self::TcpWindow, "tcp-window"),
    ];

    /// The card's field for a policy's, which has the same value in every packet that a card understands.
    pub const fn of(field: Field) -> Option<Self> {
        Some(match field {
            // The card understands no packet with extension headers.
            Field::MetaL4proto | Field::IpProtocol | Field::Ip6Nexthdr => Self::Protocol,
            Field::ThSport | Field::TcpSport | Field::UdpSport => Self::Sport,
            Field::ThDport | Field::TcpDport | Field::UdpDport => Self::Dport,
            Field::TcpFlags => Self::TcpFlags,
            Field::IpSaddr => Self::Saddr,
            Field::IpDaddr => Self::Daddr,
            Field::IpTtl | Field::Ip6Hoplimit => Self::Ttl,
            Field::MetaLength => Self::Length,
            Field::IcmpType | Field::Icmp6Type => Self::IcmpType,
            Field::IcmpCode | Field::Icmp6Code => Self::IcmpCode,
            Field::VlanId => Self::VlanId,
            Field::TcpWindow => Self::TcpWindow,
            _ => return None,
        })
    }

    /// The name in profiles.
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// The field with a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == name).map(|(field, _)| *field)
    }
}

/// A value that a body may carry, in the order of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Carried {
    /// The headers of the packet. Every body with another carried value has them.
    Headers,
    /// Upper-layer protocol.
    Protocol,
    /// Source port.
    Sport,
    /// Destination port.
    Dport,
    /// IPv4 source.
    Saddr,
    /// IPv4 destination.
    Daddr,
}

impl Carried {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Headers, Self::Protocol, Self::Sport, Self::Dport, Self::Saddr, Self::Daddr];

    /// What carries the field, if a body may have it.
    pub const fn of(field: CardField) -> Option<Self> {
        Some(match field {
            CardField::Protocol => Self::Protocol,
            CardField::Sport => Self::Sport,
            CardField::Dport => Self::Dport,
            CardField::Saddr => Self::Saddr,
            CardField::Daddr => Self::Daddr,
            _ => return None,
        })
    }

    /// The first source, and the number of bytes.
    pub const fn source(self) -> (u8, usize) {
        match self {
            Self::Headers => (source::HEADERS, 2),
            Self::Protocol => (source::PROTOCOL, 1),
            Self::Sport => (source::SPORT, 2),
            Self::Dport => (source::DPORT, 2),
            Self::Saddr => (source::SADDR, 4),
            Self::Daddr => (source::DADDR, 4),
        }
    }
}

/// The number of a guard's header.
pub const fn header_of(guard: Guard) -> u8 {
    match guard {
        Guard::Any => header::ANY,
        Guard::Vlan => header::VLAN,
        Guard::QinQ => header::QINQ,
        Guard::Ipv4 => header::IPV4,
        Guard::Ipv6 => header::IPV6,
        Guard::Ip => header::IP,
        Guard::Tcp => header::TCP,
        Guard::Udp => header::UDP,
        Guard::Icmp => header::ICMP,
        Guard::Icmp6 => header::ICMP6,
        Guard::Ports => header::PORTS,
        Guard::Transport => header::TRANSPORT,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_and_headers_have_their_numbers() {
        for (number, (field, name)) in CardField::ALL.into_iter().enumerate() {
            assert_eq!((field as usize, CardField::from_name(name)), (number, Some(field)));
        }
        for (number, &(guard, name)) in Guard::ALL.iter().enumerate() {
            assert_eq!(usize::from(header_of(guard)), number, "{name}");
        }
    }

    #[test]
    fn a_pattern_compares_at_most_32_bits() {
        let wide = Field::ALL.iter().filter(|field| CardField::of(**field).is_some() && field.bits() > 32);
        assert_eq!(wide.count(), 0);
    }

    #[test]
    fn carried_values_do_not_overlap() {
        let mut taken = [false; source::COUNT];
        for value in Carried::ALL {
            let (first, count) = value.source();
            let first = usize::from(first);
            assert!(first >= 8 && first + count <= usize::from(source::LOOKUPS), "{value:?}");
            for taken in &mut taken[first..first + count] {
                assert!(!std::mem::replace(taken, true), "{value:?}");
            }
        }
        assert_eq!(taken.iter().filter(|taken| **taken).count(), source::FIELD_BYTES);
    }
}
