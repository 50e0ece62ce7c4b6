//! Why a packet got its verdict: a built-in reason, or the rule that decided.

/// A reason, 16 bits: `0..RULE_BASE` are built in (`enum reason` in `datapath/core/verdict.h`), `RULE_BASE + r` is rule
/// `r`.
///
/// The number is also the index of the reason's [`crate::Counter`]. The counters of the built-in reasons and of the
/// terminal rules add up to the packets received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Reason(pub u16);

macro_rules! builtin {
    ($($(#[$doc:meta])* $konst:ident = $value:literal, $name:literal;)*) => {
        impl Reason {
            $($(#[$doc])* pub const $konst: Reason = Reason($value);)*

            /// Every built-in reason with its public name, in order of value.
            pub const BUILTIN: &[(Reason, &str)] = &[$((Reason($value), $name)),*];
        }
    };
}

builtin! {
    /// No rule decided.
    NO_MATCH = 0, "no-match";
    /// Neither IPv4, IPv6 nor ARP (LLC, MPLS, PPPoE, a third VLAN tag, ...).
    NOT_IP = 1, "not-ip";
    /// ARP (EtherType 0x0806).
    ARP = 2, "arp";
    /// A fragment, first or later, IPv4 or IPv6.
    FRAGMENT = 3, "fragment";
    /// IPv4 options, or an IPv6 hop-by-hop options header.
    IP_OPTIONS = 4, "ip-options";
    /// The frame ends inside its link header.
    MALFORMED_LINK = 5, "malformed-link";
    /// The frame ends inside a VLAN tag.
    MALFORMED_VLAN = 6, "malformed-vlan";
    /// IPv4 header truncated, wrong version, or header or total length that contradicts the frame (RFC 791).
    MALFORMED_IPV4 = 7, "malformed-ipv4";
    /// IPv6 header truncated, wrong version, or a payload length beyond the frame (RFC 8200).
    MALFORMED_IPV6 = 8, "malformed-ipv6";
    /// IPv6 extension header truncated or misplaced, or more of them than `EXT_HEADERS_MAX` (RFC 8200, 7112).
    MALFORMED_IPV6_EXT = 9, "malformed-ipv6-ext";
    /// A fragment that overlaps a TCP header, ends beyond 65535 bytes or is not a multiple of 8 (RFC 791, 1858, 3128).
    MALFORMED_FRAGMENT = 10, "malformed-fragment";
    /// TCP header truncated, or its data offset contradicts the packet (RFC 9293).
    MALFORMED_TCP = 11, "malformed-tcp";
    /// UDP header truncated, or its length contradicts the packet (RFC 768).
    MALFORMED_UDP = 12, "malformed-udp";
    /// ICMP or ICMPv6 header truncated (RFC 792, 4443).
    MALFORMED_ICMP = 13, "malformed-icmp";
    /// Truncated header of another transport with ports (SCTP, DCCP, UDP-Lite).
    MALFORMED_TRANSPORT = 14, "malformed-transport";
    /// A limit had no room for the packet.
    LIMIT = 15, "limit";
    /// The packet was received in the kernel at an interface that is not a port, such as a bond's member. It is always
    /// dropped.
    UNKNOWN_INTERFACE = 16, "unknown-interface";
    /// Flags that no TCP sends, or that the state of the connection does not allow.
    BAD_FLAGS = 17, "bad-flags";
    /// A segment outside of the receiver's window, or a quoted one.
    OUT_OF_WINDOW = 18, "out-of-window";
    /// An acknowledgement of data that was not sent, or an old one.
    BAD_ACK = 19, "bad-ack";
    /// The packet belongs to no flow and cannot open one.
    NO_STATE = 20, "no-state";
    /// A reset that does not belong to the connection as it is now.
    RST_OUT_OF_WINDOW = 21, "rst-out-of-window";
    /// The packet opens a flow, and the table of flows has no room for it.
    STATE_FULL = 22, "state-full";
    /// A SYN that was answered by a SYN-ACK with a cookie.
    SYN_COOKIE = 23, "syn-cookie";
    /// A rule of a slot dropped the packet.
    SLOT = 24, "slot";
    /// A frame at a card's port does not end with the card's seal. It is always dropped.
    UNSEALED = 25, "unsealed";
    /// A card's answer to a control frame. It is no packet and always dropped.
    CARD_CONTROL = 26, "card-control";
}

impl Reason {
    /// No packet leaves with it. Its counter has the packets of a card's port that a chain decided by the card's
    /// answers: `COUNTER_ANSWERED` in C.
    pub const COUNTER_ANSWERED: Reason = Reason(29);
    /// The counter of the packets of a card's port that a chain decided without answers: `COUNTER_ALONE` in C.
    pub const COUNTER_ALONE: Reason = Reason(30);

    /// The first reason that is a rule. The numbers below are reserved for reasons of stateful rules. 31 is
    /// `REASON_NONE` in C, which no packet leaves with.
    pub const RULE_BASE: u16 = 32;
    /// Maximum number of rules of a program.
    pub const RULES_MAX: usize = (u16::MAX - Self::RULE_BASE) as usize;

    /// The reason of rule `index`.
    pub const fn rule(index: u16) -> Self {
        Reason(Self::RULE_BASE + index)
    }

    /// The rule's index, or `None` for a built-in reason.
    pub const fn rule_index(self) -> Option<u16> {
        self.0.checked_sub(Self::RULE_BASE)
    }

    /// The name of a built-in reason; `None` for rules and unassigned numbers.
    pub fn builtin_name(self) -> Option<&'static str> {
        Self::BUILTIN.get(usize::from(self.0)).map(|&(_, name)| name)
    }
}
