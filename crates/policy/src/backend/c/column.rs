//! The values that rules read, as C: fields of `packet` for one packet, columns for a burst.

use crate::field::{Field, Guard, Raw, RawBase};

/// Width of the values of a column. A burst's struct has the widest columns first, so that every column is aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Width {
    Wide,
    U32,
    U16,
    U8,
}

impl Width {
    /// The smallest width for a number of bits.
    pub(super) fn of_bits(bits: u8) -> Width {
        match bits {
            0..=8 => Width::U8,
            9..=16 => Width::U16,
            17..=32 => Width::U32,
            _ => Width::Wide,
        }
    }

    pub(super) fn of_raw(raw: Raw) -> Width {
        Width::of_bits(raw.bits)
    }

    /// The C type of a value.
    pub(super) fn value(self) -> &'static str {
        match self {
            Width::Wide => "struct wide",
            Width::U32 => "uint32_t",
            Width::U16 => "uint16_t",
            Width::U8 => "uint8_t",
        }
    }

    /// The declaration of the column `name` in the struct of a burst.
    pub(super) fn declare(self, name: &str) -> String {
        match self {
            Width::Wide => format!("struct wide_column {name};"),
            Width::U32 | Width::U16 | Width::U8 => format!("{} {name}[WEIR_BURST_MAX];", self.value()),
        }
    }

    /// The statements that set column `name` to `value`. A wide value has two halves.
    pub(super) fn fill(self, name: &str, value: &str) -> Vec<String> {
        match self {
            Width::Wide => ["hi", "lo"].map(|half| format!("packets->{name}.{half}[i] = {value}.{half};")).to_vec(),
            Width::U32 | Width::U16 | Width::U8 => vec![format!("packets->{name}[i] = {value};")],
        }
    }

    /// The prefix of the functions that test such columns.
    pub(super) fn prefix(self) -> &'static str {
        match self {
            Width::Wide => "wide_column",
            Width::U32 => "u32",
            Width::U16 => "u16",
            Width::U8 => "u8",
        }
    }
}

/// A value that rules read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Column {
    pub(super) width: Width,
    pub(super) name: &'static str,
    /// Its value as an expression of the parsed `packet`.
    pub(super) expression: &'static str,
}

/// A column, with the name of the packet's field if no expression is given.
macro_rules! column {
    ($width:ident, $name:literal) => {
        Column { width: Width::$width, name: $name, expression: concat!("packet->", $name) }
    };
    ($width:ident, $name:literal, $expression:literal) => {
        Column { width: Width::$width, name: $name, expression: $expression }
    };
}

pub(super) const L3: Column = column!(U8, "l3");
pub(super) const L4: Column = column!(U8, "l4");
pub(super) const VLAN_TAGS: Column = column!(U8, "vlan_tags");
pub(super) const CT_STATE: Column = column!(U8, "ct_state", "packet_state(packet)");
const L3_OFFSET: Column = column!(U16, "l3_offset");
const L4_OFFSET: Column = column!(U16, "l4_offset");

impl Column {
    /// The column of a field.
    pub(super) fn of(field: Field) -> Column {
        match field {
            Field::MetaLength => column!(U32, "length", "(packet->len - packet->l3_offset)"),
            Field::MetaNfproto => column!(U8, "nfproto", "(packet->l3 == L3_IPV4 ? 2 : 10)"),
            Field::MetaL4proto => column!(U8, "proto"),
            Field::MetaFragment => column!(U8, "fragment"),
            Field::MetaExceeded => column!(U8, "exceeded", "!!(packet->flags & FLAG_EXCEEDED)"),
            Field::CtState => CT_STATE,
            Field::EtherType => column!(U16, "ether_type"),
            Field::VlanId => column!(U16, "vlan_id"),
            Field::VlanPcp => column!(U8, "vlan_pcp"),
            Field::VlanInnerId => column!(U16, "inner_vlan_id"),
            Field::IpSaddr => column!(U32, "saddr"),
            Field::IpDaddr => column!(U32, "daddr"),
            Field::Ip6Saddr => column!(Wide, "saddr6"),
            Field::Ip6Daddr => column!(Wide, "daddr6"),
            Field::IpProtocol | Field::Ip6Nexthdr => column!(U8, "next_header"),
            Field::IpTtl | Field::Ip6Hoplimit => column!(U8, "ttl"),
            Field::IpDscp | Field::Ip6Dscp => column!(U8, "dscp", "(packet->tos >> 2)"),
            Field::IpEcn | Field::Ip6Ecn => column!(U8, "ecn", "(packet->tos & 3)"),
            Field::IpLength | Field::Ip6Length => column!(U16, "ip_length"),
            Field::IpId => column!(U16, "ip_id"),
            Field::IpFragOff => column!(U16, "frag_off"),
            Field::IpHdrlength => column!(U8, "hdrlength"),
            Field::IpOptions => column!(U8, "ip_options", "(packet->flags & FLAG_IP_OPTIONS)"),
            Field::ExthdrHbh => column!(U8, "exthdr_hbh", "!!(packet->ext & EXT_HBH)"),
            Field::ExthdrRt => column!(U8, "exthdr_rt", "!!(packet->ext & EXT_RT)"),
            Field::ExthdrFrag => column!(U8, "exthdr_frag", "!!(packet->ext & EXT_FRAG)"),
            Field::ExthdrDst => column!(U8, "exthdr_dst", "!!(packet->ext & EXT_DST)"),
            Field::ExthdrAh => column!(U8, "exthdr_ah", "!!(packet->ext & EXT_AH)"),
            Field::ExthdrMh => column!(U8, "exthdr_mh", "!!(packet->ext & EXT_MH)"),
            Field::ThSport | Field::TcpSport | Field::UdpSport => column!(U16, "sport"),
            Field::ThDport | Field::TcpDport | Field::UdpDport => column!(U16, "dport"),
            Field::TcpFlags => column!(U8, "tcp_flags"),
            Field::TcpWindow | Field::UdpLength => column!(U16, "window"),
            Field::TcpSequence => column!(U32, "seq"),
            Field::TcpAckseq => column!(U32, "ack"),
            Field::TcpDoff => column!(U8, "doff"),
            Field::IcmpType | Field::Icmp6Type => column!(U8, "icmp_type"),
            Field::IcmpCode | Field::Icmp6Code => column!(U8, "icmp_code"),
        }
    }

    /// The column that a guard tests.
    pub(super) fn of_guard(guard: Guard) -> Option<Column> {
        match guard {
            Guard::Any => None,
            Guard::Vlan | Guard::QinQ => Some(VLAN_TAGS),
            Guard::Ipv4 | Guard::Ipv6 | Guard::Ip => Some(L3),
            Guard::Tcp | Guard::Udp | Guard::Icmp | Guard::Icmp6 | Guard::Ports | Guard::Transport => Some(L4),
        }
    }

    /// The column with the base offset of raw bits. `None` for the start of the frame.
    pub(super) fn of_raw(raw: Raw) -> Option<Column> {
        match raw.base {
            RawBase::Link => None,
            RawBase::Network => Some(L3_OFFSET),
            RawBase::Transport => Some(L4_OFFSET),
        }
    }

    /// The statements that set it from `packet`.
    pub(super) fn fill(self) -> Vec<String> {
        self.width.fill(self.name, bare(self.expression))
    }
}

/// The fields of `packet` that an expression reads.
pub(super) fn fields(expression: &'static str) -> impl Iterator<Item = &'static str> {
    let reads = expression.split("packet->").skip(1);
    reads.map(|read| read.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or_default())
}

/// An expression without its outer parentheses.
fn bare(expression: &str) -> &str {
    expression.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')).unwrap_or(expression)
}
