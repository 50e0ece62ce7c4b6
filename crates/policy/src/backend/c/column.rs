//! What rules look at, as C: one packet's fields where a packet is decided alone, columns where a burst is.

use crate::field::{Field, Guard, Raw, RawBase, Subject};
use crate::ir::{Chain, Node, Test};
use std::collections::BTreeSet;

/// How wide a column's values are. The widest stand first in a burst, so that every column starts where memory is loaded from whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Width {
    Wide,
    U32,
    U16,
    U8,
}

impl Width {
    /// What the functions that test columns start with.
    pub(super) fn prefix(self) -> &'static str {
        match self {
            Width::Wide => "wide_column",
            Width::U32 => "u32",
            Width::U16 => "u16",
            Width::U8 => "u8",
        }
    }
}

/// Something that rules look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Column {
    pub(super) width: Width,
    pub(super) name: &'static str,
    /// From the parsed `packet`.
    pub(super) expression: &'static str,
}

/// A column that is called as the packet's field is.
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
const L3_OFFSET: Column = column!(U16, "l3_offset");
const L4_OFFSET: Column = column!(U16, "l4_offset");

impl Column {
    /// What holds the field.
    pub(super) fn of(field: Field) -> Column {
        match field {
            Field::MetaLength => column!(U32, "length", "(packet->len - packet->l3_offset)"),
            Field::MetaNfproto => column!(U8, "nfproto", "(packet->l3 == L3_IPV4 ? 2 : 10)"),
            Field::MetaL4proto => column!(U8, "proto"),
            Field::MetaFragment => column!(U8, "fragment"),
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

    /// What a guard looks at.
    fn of_guard(guard: Guard) -> Option<Column> {
        match guard {
            Guard::Any => None,
            Guard::Vlan | Guard::QinQ => Some(VLAN_TAGS),
            Guard::Ipv4 | Guard::Ipv6 | Guard::Ip => Some(L3),
            Guard::Tcp | Guard::Udp | Guard::Icmp | Guard::Icmp6 | Guard::Ports | Guard::Transport => Some(L4),
        }
    }

    /// Where raw bits start, if not at the frame's first.
    pub(super) fn of_raw(raw: Raw) -> Option<Column> {
        match raw.base {
            RawBase::Link => None,
            RawBase::Network => Some(L3_OFFSET),
            RawBase::Transport => Some(L4_OFFSET),
        }
    }

    /// The member of a burst's struct.
    pub(super) fn declaration(self) -> String {
        let name = self.name;
        match self.width {
            Width::Wide => format!("struct wide_column {name};"),
            Width::U32 => format!("uint32_t {name}[WEIR_BURST_MAX];"),
            Width::U16 => format!("uint16_t {name}[WEIR_BURST_MAX];"),
            Width::U8 => format!("uint8_t {name}[WEIR_BURST_MAX];"),
        }
    }

    /// The statements that fill it with what `packet` says.
    pub(super) fn fill(self) -> Vec<String> {
        let Column { width, name, expression } = self;
        let value = bare(expression);
        match width {
            Width::Wide => ["hi", "lo"].map(|half| format!("packets->{name}.{half}[i] = {value}.{half};")).to_vec(),
            Width::U32 | Width::U16 | Width::U8 => vec![format!("packets->{name}[i] = {value};")],
        }
    }
}

/// An expression without the parentheses that it needs inside another.
fn bare(expression: &str) -> &str {
    expression.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')).unwrap_or(expression)
}

/// Every column that the chain's rules and staged finds look at.
pub(super) fn columns(chain: &Chain) -> BTreeSet<Column> {
    let mut columns = BTreeSet::new();
    for id in &chain.staged {
        let key = chain.finds[usize::from(id.0)].key;
        columns.insert(Column::of(key));
        // An IPv4 table may be asked about any packet, an IPv6 table is asked about IPv6 only.
        columns.extend((key.guard() == Guard::Ipv6).then_some(L3));
    }
    collect(&chain.body, &mut columns);
    columns
}

fn collect(nodes: &[Node], columns: &mut BTreeSet<Column>) {
    for node in nodes {
        let Node::When { test, body } = node else { continue };
        columns.extend(match test {
            Test::Guard(guard) => Column::of_guard(*guard),
            Test::Value { subject: Subject::Raw(raw), .. } => Column::of_raw(*raw),
            Test::Value { subject: Subject::Field(field), .. } => Some(Column::of(*field)),
            Test::Found { .. } => None,
        });
        collect(body, columns);
    }
}
