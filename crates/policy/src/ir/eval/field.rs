//! The value of each field of a parsed packet.

use super::packet::{Frame, Packet};
use crate::field::{Field, Raw, RawBase, Subject};
use weir_abi::WINDOW_BYTES;
use weir_abi::packet::{L3, ext};

/// The value of a subject whose guard holds. `None` for raw bits that were not captured, and for what only a card
/// knows.
pub fn subject(subject: Subject, frame: Frame<'_>, packet: &Packet) -> Option<u128> {
    match subject {
        Subject::Field(field) => Some(value(field, packet)),
        Subject::Raw(raw) => raw_bits(raw, frame, packet),
        Subject::Card(_) => None,
    }
}

/// The value of a field whose guard holds.
pub fn value(field: Field, packet: &Packet) -> u128 {
    match field {
        Field::MetaLength => u128::from(packet.wire_len) - packet.l3_offset as u128,
        Field::MetaNfproto => {
            if packet.l3 == L3::Ipv4 {
                2
            } else {
                10
            }
        }
        Field::MetaL4proto => packet.proto.into(),
        Field::MetaFragment => packet.fragment as u128,
        // Not properties of the packet: the interpreter knows the values.
        Field::MetaExceeded | Field::CtState => 0,
        Field::EtherType => packet.ether_type.into(),
        Field::VlanId => (packet.vlan[0] & 0xfff).into(),
        Field::VlanPcp => (packet.vlan[0] >> 13).into(),
        Field::VlanInnerId => (packet.vlan[1] & 0xfff).into(),
        Field::IpSaddr | Field::Ip6Saddr => packet.saddr,
        Field::IpDaddr | Field::Ip6Daddr => packet.daddr,
        Field::IpProtocol | Field::Ip6Nexthdr => packet.next_header.into(),
        Field::IpTtl | Field::Ip6Hoplimit => packet.ttl.into(),
        Field::IpDscp | Field::Ip6Dscp => (packet.tos >> 2).into(),
        Field::IpEcn | Field::Ip6Ecn => (packet.tos & 3).into(),
        Field::IpLength | Field::Ip6Length => packet.ip_length.into(),
        Field::IpId => packet.ip_id.into(),
        Field::IpFragOff => packet.frag_off.into(),
        Field::IpHdrlength => packet.hdrlength.into(),
        Field::IpOptions => packet.ip_options.into(),
        Field::ExthdrHbh => has(packet, ext::HBH),
        Field::ExthdrRt => has(packet, ext::RT),
        Field::ExthdrFrag => has(packet, ext::FRAG),
        Field::ExthdrDst => has(packet, ext::DST),
        Field::ExthdrAh => has(packet, ext::AH),
        Field::ExthdrMh => has(packet, ext::MH),
        Field::ThSport | Field::TcpSport | Field::UdpSport => packet.sport.into(),
        Field::ThDport | Field::TcpDport | Field::UdpDport => packet.dport.into(),
        Field::TcpFlags => packet.tcp_flags.into(),
        Field::TcpWindow => packet.window.into(),
        Field::TcpSequence => packet.seq.into(),
        Field::TcpAckseq => packet.ack.into(),
        Field::TcpDoff => packet.doff.into(),
        Field::UdpLength => packet.udp_length.into(),
        Field::IcmpType | Field::Icmp6Type => packet.icmp_type.into(),
        Field::IcmpCode | Field::Icmp6Code => packet.icmp_code.into(),
    }
}

fn has(packet: &Packet, bit: u8) -> u128 {
    (packet.ext & bit != 0).into()
}

/// Reads bit by bit, in network byte order.
fn raw_bits(raw: Raw, frame: Frame<'_>, packet: &Packet) -> Option<u128> {
    let base = match raw.base {
        RawBase::Link => 0,
        RawBase::Network => packet.l3_offset,
        RawBase::Transport => packet.l4_offset,
    };
    let window = &frame.bytes[..frame.bytes.len().min(WINDOW_BYTES)];
    let first = base * 8 + usize::from(raw.offset_bits);
    let mut value = 0u128;
    for bit in first..first + usize::from(raw.bits) {
        let byte = *window.get(bit / 8)?;
        value = value << 1 | u128::from(byte >> (7 - bit % 8) & 1);
    }
    Some(value)
}
