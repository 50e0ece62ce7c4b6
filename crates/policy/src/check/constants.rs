//! Names of values, as in nftables.

use crate::field::Notation;

/// Well-known services that a scrubber protects, or that attackers abuse.
const SERVICES: &[(&str, u16)] = &[
    ("ftp-data", 20),
    ("ftp", 21),
    ("ssh", 22),
    ("telnet", 23),
    ("smtp", 25),
    ("domain", 53),
    ("bootps", 67),
    ("bootpc", 68),
    ("tftp", 69),
    ("gopher", 70),
    ("http", 80),
    ("kerberos", 88),
    ("pop3", 110),
    ("sunrpc", 111),
    ("ntp", 123),
    ("netbios-ns", 137),
    ("netbios-dgm", 138),
    ("netbios-ssn", 139),
    ("imap2", 143),
    ("snmp", 161),
    ("snmp-trap", 162),
    ("bgp", 179),
    ("ldap", 389),
    ("https", 443),
    ("microsoft-ds", 445),
    ("submissions", 465),
    ("isakmp", 500),
    ("syslog", 514),
    ("submission", 587),
    ("ldaps", 636),
    ("domain-s", 853),
    ("rsync", 873),
    ("imaps", 993),
    ("pop3s", 995),
    ("openvpn", 1194),
    ("ms-sql-s", 1433),
    ("ms-sql-m", 1434),
    ("radius", 1812),
    ("ssdp", 1900),
    ("nfs", 2049),
    ("mysql", 3306),
    ("ms-wbt-server", 3389),
    ("stun", 3478),
    ("ipsec-nat-t", 4500),
    ("sip", 5060),
    ("sips", 5061),
    ("mdns", 5353),
    ("postgresql", 5432),
    ("http-alt", 8080),
    ("memcached", 11211),
];

const PROTOCOLS: &[(&str, u16)] = &[
    ("icmp", 1),
    ("igmp", 2),
    ("ipencap", 4),
    ("tcp", 6),
    ("egp", 8),
    ("udp", 17),
    ("dccp", 33),
    ("ipv6", 41),
    ("ipv6-route", 43),
    ("ipv6-frag", 44),
    ("rsvp", 46),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("icmpv6", 58),
    ("ipv6-icmp", 58),
    ("ipv6-nonxt", 59),
    ("ipv6-opts", 60),
    ("eigrp", 88),
    ("ospf", 89),
    ("ipip", 94),
    ("etherip", 97),
    ("pim", 103),
    ("ipcomp", 108),
    ("vrrp", 112),
    ("l2tp", 115),
    ("sctp", 132),
    ("udplite", 136),
    ("mpls-in-ip", 137),
    ("hip", 139),
];

const TCP_FLAGS: &[(&str, u16)] =
    &[("fin", 1), ("syn", 2), ("rst", 4), ("psh", 8), ("ack", 16), ("urg", 32), ("ecn", 64), ("cwr", 128)];

/// The numbers are the numbers of [`crate::tracking::PacketState`].
const PACKET_STATES: &[(&str, u16)] =
    &[("invalid", 1), ("established", 2), ("related", 4), ("new", 8), ("untracked", 64)];

const DSCP: &[(&str, u16)] = &[
    ("cs0", 0),
    ("df", 0),
    ("be", 0),
    ("lephb", 1),
    ("cs1", 8),
    ("af11", 10),
    ("af12", 12),
    ("af13", 14),
    ("cs2", 16),
    ("af21", 18),
    ("af22", 20),
    ("af23", 22),
    ("cs3", 24),
    ("af31", 26),
    ("af32", 28),
    ("af33", 30),
    ("cs4", 32),
    ("af41", 34),
    ("af42", 36),
    ("af43", 38),
    ("cs5", 40),
    ("va", 44),
    ("ef", 46),
    ("cs6", 48),
    ("cs7", 56),
];

const ECN: &[(&str, u16)] = &[("not-ect", 0), ("ect1", 1), ("ect0", 2), ("ce", 3)];

const ICMP_TYPES: &[(&str, u16)] = &[
    ("echo-reply", 0),
    ("destination-unreachable", 3),
    ("source-quench", 4),
    ("redirect", 5),
    ("echo-request", 8),
    ("router-advertisement", 9),
    ("router-solicitation", 10),
    ("time-exceeded", 11),
    ("parameter-problem", 12),
    ("timestamp-request", 13),
    ("timestamp-reply", 14),
    ("info-request", 15),
    ("info-reply", 16),
    ("address-mask-request", 17),
    ("address-mask-reply", 18),
];

const ICMP6_TYPES: &[(&str, u16)] = &[
    ("destination-unreachable", 1),
    ("packet-too-big", 2),
    ("time-exceeded", 3),
    ("parameter-problem", 4),
    ("echo-request", 128),
    ("echo-reply", 129),
    ("mld-listener-query", 130),
    ("mld-listener-report", 131),
    ("mld-listener-done", 132),
    ("mld-listener-reduction", 132),
    ("nd-router-solicit", 133),
    ("nd-router-advert", 134),
    ("nd-neighbor-solicit", 135),
    ("nd-neighbor-advert", 136),
    ("nd-redirect", 137),
    ("router-renumbering", 138),
    ("ind-neighbor-solicit", 141),
    ("ind-neighbor-advert", 142),
    ("mld2-listener-report", 143),
];

const ETHER_TYPES: &[(&str, u16)] =
    &[("ip", 0x0800), ("arp", 0x0806), ("vlan", 0x8100), ("8021q", 0x8100), ("ip6", 0x86dd), ("8021ad", 0x88a8)];

/// The names of a notation's values.
pub(super) const fn names(notation: Notation) -> &'static [(&'static str, u16)] {
    match notation {
        Notation::Port => SERVICES,
        Notation::Protocol => PROTOCOLS,
        Notation::TcpFlags => TCP_FLAGS,
        Notation::Dscp => DSCP,
        Notation::Ecn => ECN,
        Notation::IcmpType => ICMP_TYPES,
        Notation::Icmp6Type => ICMP6_TYPES,
        Notation::EtherType => ETHER_TYPES,
        Notation::NfProto => &[("ipv4", 2), ("ipv6", 10)],
        Notation::Fragment => &[("none", 0), ("first", 1), ("later", 2)],
        Notation::Presence => &[("missing", 0), ("exists", 1)],
        Notation::PacketState => PACKET_STATES,
        Notation::Ipv4Address | Notation::Ipv6Address | Notation::Number => &[],
    }
}

/// The name of a value, if the notation has one: `later`, `syn|ack`. The first of several names is used. Ports have no
/// names here, because reports about packets show port numbers.
pub fn name_of(notation: Notation, value: u128) -> Option<String> {
    let name = |value: u128| names(notation).iter().find(|&&(_, v)| u128::from(v) == value).map(|&(name, _)| name);
    match notation {
        Notation::Port => None,
        Notation::TcpFlags if value == 0 => Some("no flag".to_owned()),
        Notation::TcpFlags => {
            let bits = (0..8).map(|bit| 1 << bit).filter(|bit| value & bit != 0);
            bits.map(name).collect::<Option<Vec<_>>>().map(|names| names.join("|"))
        }
        _ => name(value).map(str::to_owned),
    }
}

/// [`noun`] with its article.
pub(super) fn a_noun(notation: Notation) -> String {
    let noun = noun(notation);
    match noun.as_bytes()[0] {
        b'`' => noun.to_owned(),
        b'I' | b'E' | b'A' => format!("an {noun}"),
        _ => format!("a {noun}"),
    }
}

/// The noun for a value of a notation in messages.
pub(super) const fn noun(notation: Notation) -> &'static str {
    match notation {
        Notation::Ipv4Address => "IPv4 address",
        Notation::Ipv6Address => "IPv6 address",
        Notation::Port => "port",
        Notation::Protocol => "protocol",
        Notation::TcpFlags => "TCP flag",
        Notation::Dscp => "code point",
        Notation::Ecn => "ECN value",
        Notation::IcmpType => "ICMP type",
        Notation::Icmp6Type => "ICMPv6 type",
        Notation::EtherType => "EtherType",
        Notation::NfProto => "network protocol",
        Notation::Fragment => "fragment kind",
        Notation::Presence => "`exists` or `missing`",
        Notation::PacketState => "state",
        Notation::Number => "number",
    }
}
