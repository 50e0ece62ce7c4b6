//! The fields that cards know: those of patterns, and those that a body may carry.

use weir_abi::card::field;
use weir_policy::field::Field;
pub use weir_policy::ir::answers::{Carried, header_of};

/// A field of up to 32 bits that a pattern may compare. `docs/reference/card-layout.md` has these numbers.
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

    /// What carries it, if a body may have it.
    pub const fn carried(self) -> Option<Carried> {
        Some(match self {
            Self::Protocol => Carried::Protocol,
            Self::Sport => Carried::Sport,
            Self::Dport => Carried::Dport,
            Self::Saddr => Carried::Saddr,
            Self::Daddr => Carried::Daddr,
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

#[cfg(test)]
mod tests {
    use super::*;
    use weir_abi::card::source;
    use weir_policy::field::Guard;

    #[test]
    fn a_field_is_carried_as_what_it_is_on_the_card() {
        for &field in Field::ALL {
            assert_eq!(CardField::of(field).and_then(CardField::carried), Carried::of(field), "{}", field.name());
        }
    }

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
