//! The packet fields that rules can match: one table of names, widths, guards and value notations.
//!
//! Names and meanings are as in nftables (`nft(8)`, "PAYLOAD EXPRESSIONS"). The guard of a field is the condition under
//! which a packet has the field. A match on a field whose guard fails does not hold, negated or not.

use weir_abi::Family;

/// The condition under which a packet has a field. Every match on the field implies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Guard {
    /// No condition.
    Any,
    /// At least one VLAN tag.
    Vlan,
    /// At least two VLAN tags.
    QinQ,
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
    /// IPv4 or IPv6.
    Ip,
    /// TCP header present, so not a later fragment.
    Tcp,
    /// UDP header present.
    Udp,
    /// ICMP header present, in IPv4.
    Icmp,
    /// ICMPv6 header present, in IPv6.
    Icmp6,
    /// A header with ports present: TCP, UDP, UDP-Lite, SCTP, DCCP.
    Ports,
    /// Any transport header present: an IP packet that is not a later fragment, ESP or "no next header".
    Transport,
}

impl Guard {
    /// Every guard with its name in printed IR.
    pub const ALL: &[(Guard, &str)] = &[
        (Guard::Any, "any"),
        (Guard::Vlan, "vlan"),
        (Guard::QinQ, "qinq"),
        (Guard::Ipv4, "ip4"),
        (Guard::Ipv6, "ip6"),
        (Guard::Ip, "ip"),
        (Guard::Tcp, "tcp"),
        (Guard::Udp, "udp"),
        (Guard::Icmp, "icmp"),
        (Guard::Icmp6, "icmpv6"),
        (Guard::Ports, "ports"),
        (Guard::Transport, "transport"),
    ];

    /// The name in printed IR.
    pub fn name(self) -> &'static str {
        Guard::ALL.iter().find(|&&(guard, _)| guard == self).map_or("any", |&(_, name)| name)
    }

    /// Whether every packet for which `self` holds also satisfies `other`.
    pub fn implies(self, other: Guard) -> bool {
        use Guard::{Any, Icmp, Icmp6, Ip, Ipv4, Ipv6, Ports, QinQ, Tcp, Transport, Udp, Vlan};
        let weaker: &[Guard] = match self {
            Any | Vlan | Ip => &[],
            QinQ => &[Vlan],
            Ipv4 | Ipv6 | Transport => &[Ip],
            Tcp | Udp => &[Ports, Transport, Ip],
            Ports => &[Transport, Ip],
            Icmp => &[Ipv4, Transport, Ip],
            Icmp6 => &[Ipv6, Transport, Ip],
        };
        self == other || other == Any || weaker.contains(&other)
    }

    /// Whether no packet satisfies both.
    pub fn excludes(self, other: Guard) -> bool {
        use Guard::{Icmp, Icmp6, Ipv4, Ipv6, Ports, Tcp, Udp};
        let apart = |a: Guard, b: Guard| {
            matches!(
                (a, b),
                (Ipv4, Ipv6 | Icmp6)
                    | (Ipv6, Icmp)
                    | (Tcp, Udp | Icmp | Icmp6)
                    | (Udp | Ports, Icmp | Icmp6)
                    | (Icmp, Icmp6)
            )
        };
        apart(self, other) || apart(other, self)
    }
}

/// How the values of a field are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Notation {
    /// `192.0.2.0/24`.
    Ipv4Address,
    /// `2001:db8::/32`.
    Ipv6Address,
    /// A number, or the name of a service.
    Port,
    /// A number, or the name of an IP protocol.
    Protocol,
    /// `syn`, `fin|ack`, or a number.
    TcpFlags,
    /// `cs1`, `af41`, `ef`, or a number.
    Dscp,
    /// `not-ect`, `ect0`, `ect1`, `ce`, or a number.
    Ecn,
    /// `echo-request` or a number, for ICMP.
    IcmpType,
    /// `nd-neighbor-solicit` or a number, for ICMPv6.
    Icmp6Type,
    /// `ip`, `ip6`, `arp`, `vlan`, or a number.
    EtherType,
    /// `ipv4`, `ipv6`.
    NfProto,
    /// `none`, `first`, `later`.
    Fragment,
    /// `exists` (1) or `missing` (0).
    Presence,
    /// `new`, `established`, ...
    PacketState,
    /// Decimal or 0x hexadecimal.
    Number,
}

macro_rules! fields {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $bits:literal, $guard:ident, $notation:ident;)*) => {
        /// A packet field.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Field { $($(#[$doc])* $variant),* }

        impl Field {
            /// Every field.
            pub const ALL: &[Field] = &[$(Field::$variant),*];

            /// The name in policies and in printed IR: `tcp dport`.
            pub const fn name(self) -> &'static str {
                match self { $(Field::$variant => $name),* }
            }

            /// Width in bits.
            pub const fn bits(self) -> u8 {
                match self { $(Field::$variant => $bits),* }
            }

            /// The guard of the field.
            pub const fn guard(self) -> Guard {
                match self { $(Field::$variant => Guard::$guard),* }
            }

            /// How the values are written.
            pub const fn notation(self) -> Notation {
                match self { $(Field::$variant => Notation::$notation),* }
            }
        }
    };
}

fields! {
    /// Bytes from the network header to the end of the frame, as `meta length` in nftables.
    MetaLength = "meta length", 32, Any, Number;
    /// Network protocol: 2 for IPv4, 10 for IPv6 (NFPROTO_*).
    MetaNfproto = "meta nfproto", 8, Ip, NfProto;
    /// Upper-layer protocol after all extension headers.
    MetaL4proto = "meta l4proto", 8, Ip, Protocol;
    /// Fragment kind: 0 none, 1 first, 2 later.
    MetaFragment = "meta fragment", 2, Ip, Fragment;
    /// Whether the packet exceeded a limit with `exceed mark` in an earlier rule.
    MetaExceeded = "meta exceeded", 1, Any, Presence;
    /// The state of the packet's flow, as a bit ([`crate::tracking::PacketState`]).
    CtState = "ct state", 7, Any, PacketState;
    /// EtherType after all VLAN tags.
    EtherType = "ether type", 16, Any, EtherType;
    /// VLAN id of the outermost tag.
    VlanId = "vlan id", 12, Vlan, Number;
    /// Priority of the outermost tag.
    VlanPcp = "vlan pcp", 3, Vlan, Number;
    /// VLAN id of the second tag.
    VlanInnerId = "vlan inner-id", 12, QinQ, Number;
    /// IPv4 source.
    IpSaddr = "ip saddr", 32, Ipv4, Ipv4Address;
    /// IPv4 destination.
    IpDaddr = "ip daddr", 32, Ipv4, Ipv4Address;
    /// IPv4 protocol.
    IpProtocol = "ip protocol", 8, Ipv4, Protocol;
    /// IPv4 time to live.
    IpTtl = "ip ttl", 8, Ipv4, Number;
    /// IPv4 differentiated services code point.
    IpDscp = "ip dscp", 6, Ipv4, Dscp;
    /// IPv4 explicit congestion notification.
    IpEcn = "ip ecn", 2, Ipv4, Ecn;
    /// IPv4 total length, bytes.
    IpLength = "ip length", 16, Ipv4, Number;
    /// IPv4 identification.
    IpId = "ip id", 16, Ipv4, Number;
    /// IPv4 flags and fragment offset, the raw 16 bits.
    IpFragOff = "ip frag-off", 16, Ipv4, Number;
    /// IPv4 header length in 4-byte words.
    IpHdrlength = "ip hdrlength", 4, Ipv4, Number;
    /// Whether the IPv4 header has options.
    IpOptions = "ip options", 1, Ipv4, Presence;
    /// IPv6 source.
    Ip6Saddr = "ip6 saddr", 128, Ipv6, Ipv6Address;
    /// IPv6 destination.
    Ip6Daddr = "ip6 daddr", 128, Ipv6, Ipv6Address;
    /// Next header of the IPv6 header itself, before extension headers.
    Ip6Nexthdr = "ip6 nexthdr", 8, Ipv6, Protocol;
    /// IPv6 hop limit.
    Ip6Hoplimit = "ip6 hoplimit", 8, Ipv6, Number;
    /// IPv6 differentiated services code point.
    Ip6Dscp = "ip6 dscp", 6, Ipv6, Dscp;
    /// IPv6 explicit congestion notification.
    Ip6Ecn = "ip6 ecn", 2, Ipv6, Ecn;
    /// IPv6 payload length, bytes.
    Ip6Length = "ip6 length", 16, Ipv6, Number;
    /// Whether there is a hop-by-hop options header.
    ExthdrHbh = "exthdr hbh", 1, Ipv6, Presence;
    /// Whether there is a routing header.
    ExthdrRt = "exthdr rt", 1, Ipv6, Presence;
    /// Whether there is a fragment header.
    ExthdrFrag = "exthdr frag", 1, Ipv6, Presence;
    /// Whether there is a destination options header.
    ExthdrDst = "exthdr dst", 1, Ipv6, Presence;
    /// Whether there is an authentication header.
    ExthdrAh = "exthdr ah", 1, Ipv6, Presence;
    /// Whether there is a mobility header.
    ExthdrMh = "exthdr mh", 1, Ipv6, Presence;
    /// Source port of any transport that has ports.
    ThSport = "th sport", 16, Ports, Port;
    /// Destination port of any transport that has ports.
    ThDport = "th dport", 16, Ports, Port;
    /// TCP source port.
    TcpSport = "tcp sport", 16, Tcp, Port;
    /// TCP destination port.
    TcpDport = "tcp dport", 16, Tcp, Port;
    /// TCP flags, FIN in bit 0 to CWR in bit 7.
    TcpFlags = "tcp flags", 8, Tcp, TcpFlags;
    /// TCP window, unscaled.
    TcpWindow = "tcp window", 16, Tcp, Number;
    /// TCP sequence number.
    TcpSequence = "tcp sequence", 32, Tcp, Number;
    /// TCP acknowledgement number.
    TcpAckseq = "tcp ackseq", 32, Tcp, Number;
    /// TCP data offset in 4-byte words.
    TcpDoff = "tcp doff", 4, Tcp, Number;
    /// UDP source port.
    UdpSport = "udp sport", 16, Udp, Port;
    /// UDP destination port.
    UdpDport = "udp dport", 16, Udp, Port;
    /// UDP length, bytes.
    UdpLength = "udp length", 16, Udp, Number;
    /// ICMP type.
    IcmpType = "icmp type", 8, Icmp, IcmpType;
    /// ICMP code.
    IcmpCode = "icmp code", 8, Icmp, Number;
    /// ICMPv6 type.
    Icmp6Type = "icmpv6 type", 8, Icmp6, Icmp6Type;
    /// ICMPv6 code.
    Icmp6Code = "icmpv6 code", 8, Icmp6, Number;
}

impl Field {
    /// The family of an address field. For other fields the result means nothing.
    pub const fn family(self) -> Family {
        match self.notation() {
            Notation::Ipv4Address => Family::Ipv4,
            _ => Family::Ipv6,
        }
    }

    /// The field with the given name (`"tcp dport"`).
    pub fn from_name(name: &str) -> Option<Field> {
        Field::ALL.iter().copied().find(|field| field.name() == name)
    }
}

/// Where a raw payload expression starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RawBase {
    /// `@ll`: the link header.
    Link,
    /// `@nh`: the network header; the packet must be IP.
    Network,
    /// `@th`: the transport header; the packet must have one.
    Transport,
}

/// Bits of the packet by position, in network byte order: `@nh,96,32`, as in nftables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Raw {
    /// The header from which the offset counts.
    pub base: RawBase,
    /// Offset of the first bit, at most [`Raw::OFFSET_BITS_MAX`].
    pub offset_bits: u16,
    /// Number of bits, 1 to 128.
    pub bits: u8,
}

impl Raw {
    /// The largest offset.
    pub const OFFSET_BITS_MAX: u16 = 255 * 8;
}

/// What a card has found out about a packet (`docs/reference/card-layout.md`). No policy names it: the split between
/// card and software makes such matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Answer {
    /// Whether a pattern matches: metadata2.
    Pattern(u8),
    /// Whether a counted rule matches: metadata3.
    Counted(u8),
    /// The number of the first rule that ends the chain, from 1, or 0: metadata4.
    First,
    /// The label that a lookup finds, which the card has begun: metadata1. The packet may lack the address.
    Label(u8),
    /// A field that the card has sent: metadata1. The packet may lack it.
    Field(Field),
}

impl Answer {
    /// Width in bits.
    pub const fn bits(self) -> u8 {
        match self {
            Answer::Pattern(_) | Answer::Counted(_) => 1,
            Answer::First => 8,
            Answer::Label(_) => 32,
            Answer::Field(field) => field.bits(),
        }
    }
}

/// The left side of a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Subject {
    /// A named field.
    Field(Field),
    /// Bits by position. If they are outside the captured packet or the parser's window, the match does not hold.
    Raw(Raw),
    /// An answer of a card. If it is about something that the packet lacks, the match does not hold.
    Card(Answer),
}

impl Subject {
    /// The guard of the subject.
    pub const fn guard(self) -> Guard {
        match self {
            Subject::Field(field) => field.guard(),
            Subject::Raw(Raw { base: RawBase::Link, .. }) | Subject::Card(_) => Guard::Any,
            Subject::Raw(Raw { base: RawBase::Network, .. }) => Guard::Ip,
            Subject::Raw(Raw { base: RawBase::Transport, .. }) => Guard::Transport,
        }
    }

    /// Width in bits.
    pub const fn bits(self) -> u8 {
        match self {
            Subject::Field(field) => field.bits(),
            Subject::Raw(raw) => raw.bits,
            Subject::Card(answer) => answer.bits(),
        }
    }
}
