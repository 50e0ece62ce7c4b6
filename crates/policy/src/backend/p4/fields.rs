//! Headers, metadata, and where each field that rules match is found in them.

use super::model::{ARRIVAL, Header, Load, Place, Value};
use crate::field::Field;
use std::borrow::Cow;
use weir_abi::Reason;
use weir_abi::packet::ext;

/// Most IPv6 extension headers that are parsed, as `EXT_HEADERS_MAX`.
pub(super) const EXT_HEADERS_MAX: usize = 8;

/// The reason of packets that the rules decide: `REASON_NONE`.
pub(super) const NONE: u16 = Reason::RULE_BASE - 1;

const ARRIVAL_FIELDS: &[(&str, u16)] = &[
    ("captured", 32),
    ("length", 32),
    ("time", 64),
    ("packet", 32),
    ("chain", 16),
    ("link", 8),
    ("verdict", 8),
    ("reason", 16),
    ("flags", 16),
    ("zero", 32),
    ("zeros", 64),
];
const ETHERNET: &[(&str, u16)] = &[("destination", 48), ("source", 48), ("ether_type", 16)];
const COOKED: &[(&str, u16)] =
    &[("packet_type", 16), ("hardware", 16), ("address_length", 16), ("address", 64), ("ether_type", 16)];
const COOKED2: &[(&str, u16)] = &[
    ("ether_type", 16),
    ("reserved", 16),
    ("interface", 32),
    ("hardware", 16),
    ("packet_type", 8),
    ("address_length", 8),
    ("address", 64),
];
const FIRST: &[(&str, u16)] = &[("version", 8)];
const TAG: &[(&str, u16)] = &[("tci", 16), ("ether_type", 16)];
const IPV4: &[(&str, u16)] = &[
    ("version_ihl", 8),
    ("tos", 8),
    ("total_length", 16),
    ("id", 16),
    ("frag_off", 16),
    ("ttl", 8),
    ("protocol", 8),
    ("checksum", 16),
    ("source", 32),
    ("destination", 32),
];
const IPV4_OPTIONS: &[(&str, u16)] = &[("options", 320)];
const IPV6: &[(&str, u16)] = &[
    ("version_class_label", 32),
    ("payload_length", 16),
    ("next_header", 8),
    ("hop_limit", 8),
    ("source_hi", 64),
    ("source_lo", 64),
    ("destination_hi", 64),
    ("destination_lo", 64),
];
const EXT: &[(&str, u16)] = &[("next_header", 8), ("length", 8), ("frag_off", 16), ("more", 32)];
const EXT_REST: &[(&str, u16)] = &[("content", 16320)];
const TCP: &[(&str, u16)] = &[
    ("source", 16),
    ("destination", 16),
    ("sequence", 32),
    ("acknowledgement", 32),
    ("data_offset", 8),
    ("flags", 8),
    ("window", 16),
    ("checksum", 16),
    ("urgent", 16),
];
const UDP: &[(&str, u16)] = &[("source", 16), ("destination", 16), ("length", 16), ("checksum", 16)];
const PORTS: &[(&str, u16)] = &[("source", 16), ("destination", 16), ("more", 32)];
const ICMP: &[(&str, u16)] = &[("kind", 8), ("code", 8), ("checksum", 16), ("more", 32)];

/// All headers, in the order in which they are emitted.
pub(super) fn headers() -> Vec<Header> {
    let header = |name: &'static str, kind, fields| Header {
        name: Cow::Borrowed(name),
        kind,
        fields,
        varies: false,
        is_ahead: false,
    };
    let mut headers = vec![
        header(ARRIVAL, "arrival_t", ARRIVAL_FIELDS),
        header("ethernet", "ethernet_t", ETHERNET),
        header("cooked", "cooked_t", COOKED),
        header("cooked2", "cooked2_t", COOKED2),
        Header { is_ahead: true, ..header("first", "first_t", FIRST) },
        header("vlan_outer", "vlan_t", TAG),
        header("vlan_inner", "vlan_t", TAG),
        header("ipv4", "ipv4_t", IPV4),
        Header { varies: true, ..header("ipv4_options", "ipv4_options_t", IPV4_OPTIONS) },
        header("ipv6", "ipv6_t", IPV6),
    ];
    for number in 1..=EXT_HEADERS_MAX {
        let name = Cow::Owned(format!("ext_{number}"));
        headers.push(Header { name, ..header("", "ext_t", EXT) });
        let name = Cow::Owned(format!("ext_{number}_rest"));
        headers.push(Header { name, varies: true, ..header("", "ext_rest_t", EXT_REST) });
    }
    headers.extend([
        header("tcp", "tcp_t", TCP),
        header("udp", "udp_t", UDP),
        header("ports", "ports_t", PORTS),
        header("icmp", "icmp_t", ICMP),
    ]);
    headers
}

macro_rules! metadata {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $bits:literal;)*) => {
        /// A field of the metadata.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Meta { $($(#[$doc])* $variant),* }

        /// Bytes of all of them.
        pub(crate) const METADATA_BYTES: usize = (0 $(+ $bits)*) / 8;

        impl Meta {
            /// Its place.
            pub(super) const fn place(self) -> Place {
                match self { $(Meta::$variant => Place::header(concat!("m.", $name), $bits)),* }
            }
        }
    };
}

metadata! {
    /// The port at which the packet came in, which `rx` writes.
    Port = "port", 32;
    /// Captured bytes that the parser has not read.
    Left = "left", 32;
    /// Bytes on the wire from the network header on.
    Length = "length", 32;
    /// Bytes of the IP packet that the parser has not read.
    IpLeft = "ip_left", 32;
    /// Bytes of options, or of an extension header behind its first 8.
    Rest = "rest", 32;
    /// End of a fragment in its datagram.
    Reach = "reach", 32;
    /// Why the rules do not decide; 31 if they do.
    Reason = "reason", 16;
    /// Ethertype after the tags.
    EtherType = "ether_type", 16;
    /// Offset of a fragment in 8 bytes.
    Units = "units", 16;
    /// Offset of the network header in the frame.
    L3Offset = "l3_offset", 16;
    /// Offset of the transport header in the frame.
    L4Offset = "l4_offset", 16;
    /// Ports of any transport.
    Sport = "sport", 16;
    Dport = "dport", 16;
    /// Bytes of an IPv4 header.
    Header = "header_bytes", 8;
    /// Whether more fragments follow.
    More = "more_fragments", 8;
    /// `enum l3`, `enum l4`, `enum fragment`, `enum ext`.
    L3 = "l3", 8;
    L4 = "l4", 8;
    Fragment = "fragment", 8;
    Ext = "ext", 8;
    /// NFPROTO_*
    Nfproto = "nfproto", 8;
    /// The protocol after extension headers.
    Proto = "proto", 8;
    Tags = "vlan_tags", 8;
    Options = "ip_options", 8;
    /// The state of the packet's flow.
    State = "ct_state", 8;
    /// Why the tracker refuses the packet; 0 if it does not.
    Refused = "refused", 16;
    /// Whether a rule of a slot drops the packet.
    Drops = "drops", 8;
    /// Whether the SYN proxy answers the packet, and whether another one leaves in its place.
    Answered = "answered", 8;
    Rewritten = "rewritten", 8;
    /// Whether a limit with `exceed mark` had no room.
    Exceeded = "exceeded", 8;
    /// Answers of extern objects.
    Within = "within", 8;
    Sampled = "sampled", 8;
    Present = "present", 8;
    RawHi = "raw_hi", 64;
    RawLo = "raw_lo", 64;
    /// A value that is compared.
    Value = "value", 64;
    ValueLo = "value_lo", 64;
}

impl Meta {
    pub(super) fn load(self) -> Load {
        self.place().load()
    }
}

/// Where the value of a field is, if its guard holds.
pub(super) fn value(field: Field) -> Value {
    let narrow = |path: &'static str, bits: u16| Value::Narrow(Place::header(path, bits).load());
    let part = |path: &'static str, bits: u16, shift, mask| {
        Value::Narrow(Place::header(path, bits).load().shifted(shift).masked(mask))
    };
    let wide = |hi, lo| Value::Wide(Place::header(hi, 64).load(), Place::header(lo, 64).load());
    let meta = |meta: Meta| Value::Narrow(meta.load());
    let has = |bit: u8| Value::Narrow(Meta::Ext.load().shifted(bit.trailing_zeros() as i8).masked(1));
    match field {
        Field::MetaLength => meta(Meta::Length),
        Field::MetaNfproto => meta(Meta::Nfproto),
        Field::MetaL4proto => meta(Meta::Proto),
        Field::MetaFragment => meta(Meta::Fragment),
        Field::MetaExceeded => meta(Meta::Exceeded),
        Field::CtState => meta(Meta::State),
        Field::EtherType => meta(Meta::EtherType),
        Field::VlanId => part("h.vlan_outer.tci", 16, 0, 0xfff),
        Field::VlanPcp => part("h.vlan_outer.tci", 16, 13, 7),
        Field::VlanInnerId => part("h.vlan_inner.tci", 16, 0, 0xfff),
        Field::IpSaddr => narrow("h.ipv4.source", 32),
        Field::IpDaddr => narrow("h.ipv4.destination", 32),
        Field::IpProtocol => narrow("h.ipv4.protocol", 8),
        Field::IpTtl => narrow("h.ipv4.ttl", 8),
        Field::IpDscp => part("h.ipv4.tos", 8, 2, 0x3f),
        Field::IpEcn => part("h.ipv4.tos", 8, 0, 3),
        Field::IpLength => narrow("h.ipv4.total_length", 16),
        Field::IpId => narrow("h.ipv4.id", 16),
        Field::IpFragOff => narrow("h.ipv4.frag_off", 16),
        Field::IpHdrlength => part("h.ipv4.version_ihl", 8, 0, 0xf),
        Field::IpOptions => meta(Meta::Options),
        Field::Ip6Saddr => wide("h.ipv6.source_hi", "h.ipv6.source_lo"),
        Field::Ip6Daddr => wide("h.ipv6.destination_hi", "h.ipv6.destination_lo"),
        Field::Ip6Nexthdr => narrow("h.ipv6.next_header", 8),
        Field::Ip6Hoplimit => narrow("h.ipv6.hop_limit", 8),
        Field::Ip6Dscp => part("h.ipv6.version_class_label", 32, 22, 0x3f),
        Field::Ip6Ecn => part("h.ipv6.version_class_label", 32, 20, 3),
        Field::Ip6Length => narrow("h.ipv6.payload_length", 16),
        Field::ExthdrHbh => has(ext::HBH),
        Field::ExthdrRt => has(ext::RT),
        Field::ExthdrFrag => has(ext::FRAG),
        Field::ExthdrDst => has(ext::DST),
        Field::ExthdrAh => has(ext::AH),
        Field::ExthdrMh => has(ext::MH),
        Field::ThSport => meta(Meta::Sport),
        Field::ThDport => meta(Meta::Dport),
        Field::TcpSport => narrow("h.tcp.source", 16),
        Field::TcpDport => narrow("h.tcp.destination", 16),
        Field::TcpFlags => narrow("h.tcp.flags", 8),
        Field::TcpWindow => narrow("h.tcp.window", 16),
        Field::TcpSequence => narrow("h.tcp.sequence", 32),
        Field::TcpAckseq => narrow("h.tcp.acknowledgement", 32),
        Field::TcpDoff => part("h.tcp.data_offset", 8, 4, 0xf),
        Field::UdpSport => narrow("h.udp.source", 16),
        Field::UdpDport => narrow("h.udp.destination", 16),
        Field::UdpLength => narrow("h.udp.length", 16),
        Field::IcmpType | Field::Icmp6Type => narrow("h.icmp.kind", 8),
        Field::IcmpCode | Field::Icmp6Code => narrow("h.icmp.code", 8),
    }
}
