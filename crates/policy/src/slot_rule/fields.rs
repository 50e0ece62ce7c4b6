//! The fields that rules of slots test, as the language and as records name them.

use crate::field::{Field, Guard, Raw, RawBase, Subject};
use weir_abi::slot::{SlotField, header};

/// What a match of the language tests in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Saddr,
    Daddr,
    Narrow(SlotField),
}

/// Help for matches that a record cannot have.
pub(super) const KNOWN: &str = "a rule of a slot tests addresses, `meta l4proto`, `meta fragment`, `meta length`, ports, \
    `tcp flags`, `tcp doff`, `tcp window`, types and codes of ICMP, `ip ttl`, `ip6 hoplimit`, and `@th,64,32`";

/// `@th,64,32`: the first four bytes of a UDP payload.
pub(super) const PAYLOAD: Raw = Raw { base: RawBase::Transport, offset_bits: 64, bits: 32 };

/// What a match on a subject tests; `None` if records cannot.
pub(super) fn target(subject: Subject) -> Option<Target> {
    let field = match subject {
        Subject::Field(field) => field,
        Subject::Raw(raw) => return (raw == PAYLOAD).then_some(Target::Narrow(SlotField::Payload)),
        Subject::Card(_) => return None,
    };
    Some(Target::Narrow(match field {
        Field::IpSaddr | Field::Ip6Saddr => return Some(Target::Saddr),
        Field::IpDaddr | Field::Ip6Daddr => return Some(Target::Daddr),
        Field::MetaL4proto => SlotField::Protocol,
        Field::MetaFragment => SlotField::Fragment,
        Field::MetaLength => SlotField::Length,
        Field::ThSport | Field::TcpSport | Field::UdpSport => SlotField::Sport,
        Field::ThDport | Field::TcpDport | Field::UdpDport => SlotField::Dport,
        Field::TcpFlags => SlotField::Flags,
        Field::TcpDoff => SlotField::Doff,
        Field::TcpWindow => SlotField::Window,
        Field::IcmpType | Field::Icmp6Type => SlotField::IcmpType,
        Field::IcmpCode | Field::Icmp6Code => SlotField::IcmpCode,
        Field::IpTtl | Field::Ip6Hoplimit => SlotField::Ttl,
        _ => return None,
    }))
}

/// The bit of what a guard requires; `None` if records have none.
pub(super) fn header(guard: Guard) -> Option<u32> {
    Some(match guard {
        Guard::Any => 0,
        Guard::Ipv4 => header::IPV4,
        Guard::Ipv6 => header::IPV6,
        Guard::Ip => header::IP,
        Guard::Tcp => header::TCP,
        Guard::Udp => header::UDP,
        Guard::Icmp => header::ICMP,
        Guard::Icmp6 => header::ICMP6,
        Guard::Ports => header::PORTS,
        Guard::Transport => header::TRANSPORT,
        Guard::Vlan | Guard::QinQ => return None,
    })
}

/// The field of the language for a field of a record with these headers.
pub(super) fn subject(field: SlotField, headers: u32) -> Subject {
    let has = |bit: u32| headers & bit != 0;
    let pick = |tcp: Field, udp: Field, other: Field| match () {
        () if has(header::TCP) => tcp,
        () if has(header::UDP) => udp,
        () => other,
    };
    let of_icmp = |icmp: Field, icmp6: Field| if has(header::ICMP6) { icmp6 } else { icmp };
    Subject::Field(match field {
        SlotField::Protocol => Field::MetaL4proto,
        SlotField::Fragment => Field::MetaFragment,
        SlotField::Sport => pick(Field::TcpSport, Field::UdpSport, Field::ThSport),
        SlotField::Dport => pick(Field::TcpDport, Field::UdpDport, Field::ThDport),
        SlotField::Window => Field::TcpWindow,
        SlotField::Doff => Field::TcpDoff,
        SlotField::IcmpType => of_icmp(Field::IcmpType, Field::Icmp6Type),
        SlotField::IcmpCode => of_icmp(Field::IcmpCode, Field::Icmp6Code),
        SlotField::Flags => Field::TcpFlags,
        SlotField::Ttl if has(header::IPV6) => Field::Ip6Hoplimit,
        SlotField::Ttl => Field::IpTtl,
        SlotField::Length => Field::MetaLength,
        SlotField::Payload => return Subject::Raw(PAYLOAD),
    })
}
