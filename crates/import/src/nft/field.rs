//! Left sides of matches: the fields of nftables as fields of a policy.

use super::render::{single, text};
use crate::condition::{self, Condition, PROTOCOLS, Range, STATES};
use serde_json::Value;

/// The left side of a match.
#[derive(Clone, Debug)]
pub enum Left {
    /// A field of a policy.
    Field(Field),
    /// The incoming (`true`) or outgoing interface.
    Interface(bool),
    /// Several fields at once.
    Concat(Vec<Left>),
    /// What a policy cannot test, with the reason.
    Foreign(String),
}

/// A field of a policy.
#[derive(Clone, Debug)]
pub struct Field {
    /// The name.
    pub name: String,
    /// What also has to hold, because the name alone does not say it.
    pub guards: Vec<Condition>,
    /// What its values are.
    pub kind: Kind,
    /// The mask, as a number if it is one.
    pub mask: Option<(u128, String)>,
}

/// Kinds of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Addresses.
    Address,
    /// Protocols.
    Protocol,
    /// Families, as names of protocols or EtherTypes.
    Family,
    /// States of conntrack.
    State,
    /// TCP flags.
    Flags,
    /// Whether something is there.
    Presence,
    /// Hardware addresses.
    Hardware,
    /// Numbers and names.
    Number,
}

/// Fields with the same name and meaning.
const SAME: &[(&str, &[&str])] = &[
    ("ip", &["saddr", "daddr", "protocol", "ttl", "length", "id", "hdrlength", "dscp", "ecn", "frag-off"]),
    ("ip6", &["saddr", "daddr", "nexthdr", "hoplimit", "length", "dscp", "ecn"]),
    ("tcp", &["sport", "dport", "flags", "window", "sequence", "ackseq", "doff"]),
    ("udp", &["sport", "dport", "length"]),
    ("icmp", &["type", "code"]),
    ("icmpv6", &["type", "code"]),
    ("th", &["sport", "dport"]),
    ("vlan", &["id", "pcp"]),
    ("ether", &["type"]),
];
/// Names of ICMP codes.
const CODES: &[(&str, &str, u128)] = &[
    ("icmp code", "net-unreachable", 0),
    ("icmp code", "host-unreachable", 1),
    ("icmp code", "prot-unreachable", 2),
    ("icmp code", "port-unreachable", 3),
    ("icmp code", "frag-needed", 4),
    ("icmp code", "net-prohibited", 9),
    ("icmp code", "host-prohibited", 10),
    ("icmp code", "admin-prohibited", 13),
    ("icmpv6 code", "no-route", 0),
    ("icmpv6 code", "admin-prohibited", 1),
    ("icmpv6 code", "addr-unreachable", 3),
    ("icmpv6 code", "port-unreachable", 4),
    ("icmpv6 code", "policy-fail", 5),
    ("icmpv6 code", "reject-route", 6),
];
/// Fields by position: protocol, field, `meta l4proto` or `meta nfproto` and its value, the expression.
const BY_POSITION: &[(&str, &str, Option<&str>, &str)] = &[
    ("ether", "saddr", None, "@ll,48,48"),
    ("ether", "daddr", None, "@ll,0,48"),
    ("ip", "checksum", Some("ipv4"), "@nh,80,16"),
    ("ip6", "flowlabel", Some("ipv6"), "@nh,12,20"),
    ("tcp", "checksum", Some("tcp"), "@th,128,16"),
    ("tcp", "urgptr", Some("tcp"), "@th,144,16"),
    ("udp", "checksum", Some("udp"), "@th,48,16"),
    ("udplite", "sport", Some("udplite"), "th sport"),
    ("udplite", "dport", Some("udplite"), "th dport"),
    ("udplite", "csumcov", Some("udplite"), "@th,32,16"),
    ("udplite", "checksum", Some("udplite"), "@th,48,16"),
    ("sctp", "sport", Some("sctp"), "th sport"),
    ("sctp", "dport", Some("sctp"), "th dport"),
    ("sctp", "vtag", Some("sctp"), "@th,32,32"),
    ("sctp", "checksum", Some("sctp"), "@th,64,32"),
    ("dccp", "sport", Some("dccp"), "th sport"),
    ("dccp", "dport", Some("dccp"), "th dport"),
    ("icmp", "checksum", Some("icmp"), "@th,16,16"),
    ("icmpv6", "checksum", Some("icmpv6"), "@th,16,16"),
    ("igmp", "mrt", Some("igmp"), "@th,8,8"),
    ("igmp", "checksum", Some("igmp"), "@th,16,16"),
    ("comp", "flags", Some("comp"), "@th,8,8"),
    ("comp", "cpi", Some("comp"), "@th,16,16"),
];

impl Field {
    fn new(name: &str, kind: Kind) -> Self {
        Field { name: name.to_owned(), guards: Vec::new(), kind, mask: None }
    }

    fn left(name: &str, kind: Kind) -> Left {
        Left::Field(Self::new(name, kind))
    }

    /// A value, with its range if it is known.
    pub fn value(&self, value: &Value) -> Option<(Option<Range>, String)> {
        match value {
            Value::Number(number) => {
                let number = u128::from(number.as_u64()?);
                Some((Some((number, number)), number.to_string()))
            }
            Value::String(word) => self.word(word),
            Value::Bool(_) | Value::Null | Value::Array(_) => None,
            Value::Object(_) => match single(value)? {
                ("prefix", body) => {
                    let prefix = format!("{}/{}", text(&body["addr"]), body["len"].as_u64()?);
                    condition::address(&prefix).map(|(range, text)| (Some(range), text))
                }
                ("range", body) => {
                    let (first, last) = (self.value(&body[0])?, self.value(&body[1])?);
                    let blank = |text: &str| text.starts_with(|letter: char| letter.is_ascii_alphabetic());
                    let dash =
                        if self.kind != Kind::Address && (blank(&first.1) || blank(&last.1)) { " - " } else { "-" };
                    let range = first.0.zip(last.0).map(|(first, last)| (first.0, last.1));
                    Some((range, format!("{}{dash}{}", first.1, last.1)))
                }
                ("elem", body) => self.value(&body["val"]),
                ("|", body) if self.kind == Kind::Flags => {
                    let bits = flags(body)?;
                    Some((Some((bits.into(), bits.into())), flag_names(bits)))
                }
                _ => None,
            },
        }
    }

    fn word(&self, word: &str) -> Option<(Option<Range>, String)> {
        let known = |number: u128, text: &str| Some((Some((number, number)), text.to_owned()));
        match self.kind {
            Kind::Address => condition::address(word).map(|(range, text)| (Some(range), text)),
            Kind::Protocol => match word {
                "ipv6-icmp" => known(58, "icmpv6"),
                "ipcomp" => known(108, "comp"),
                _ => match PROTOCOLS.iter().find(|(name, _)| *name == word) {
                    Some((name, number)) => known(*number, name),
                    None => Some((None, word.to_owned())),
                },
            },
            Kind::Family => match word {
                "ip" | "ipv4" => known(condition::IPV4, "ipv4"),
                "ip6" | "ipv6" => known(condition::IPV6, "ipv6"),
                _ => None,
            },
            Kind::State => STATES.iter().position(|state| *state == word).and_then(|at| known(at as u128, word)),
            Kind::Flags => {
                let bits = flags(&Value::String(word.to_owned()))?;
                known(bits.into(), &flag_names(bits))
            }
            Kind::Hardware => {
                let octets: Option<Vec<u8>> = word.split(':').map(|octet| u8::from_str_radix(octet, 16).ok()).collect();
                let octets = octets.filter(|octets| octets.len() == 6)?;
                let number = octets.iter().fold(0, |number: u128, octet| number << 8 | u128::from(*octet));
                known(number, &format!("0x{number:012x}"))
            }
            Kind::Presence => None,
            Kind::Number if self.name.ends_with(" code") => {
                let is_known = |known: &&(&str, &str, u128)| known.0 == self.name && known.1 == word;
                CODES.iter().find(is_known).and_then(|(.., number)| known(*number, &number.to_string()))
            }
            Kind::Number => match condition::number(word) {
                Some(number) => known(number, word),
                None => Some((None, word.to_owned())),
            },
        }
    }
}

/// The bits of TCP flags: a name, a list of names, or `{"|": [...]}`.
pub fn flags(value: &Value) -> Option<u8> {
    match value {
        Value::String(name) => {
            let at = FLAGS.iter().position(|flag| flag == name);
            at.map(|at| 1 << at).or_else(|| condition::number(name).and_then(|number| number.try_into().ok()))
        }
        Value::Number(number) => number.as_u64()?.try_into().ok(),
        Value::Array(list) => list.iter().try_fold(0, |bits, flag| Some(bits | flags(flag)?)),
        Value::Object(_) => match single(value)? {
            ("|", body) => flags(body),
            _ => None,
        },
        _ => None,
    }
}

/// TCP flags from the lowest bit on.
pub const FLAGS: [&str; 8] = ["fin", "syn", "rst", "psh", "ack", "urg", "ecn", "cwr"];

/// The names of flags, as one value.
pub fn flag_names(bits: u8) -> String {
    let names: Vec<&str> = (0..8).filter(|bit| bits >> bit & 1 == 1).map(|bit| FLAGS[bit]).collect();
    match names.as_slice() {
        [] => "0".to_owned(),
        [one] => (*one).to_owned(),
        many => format!("({})", many.join(" | ")),
    }
}

/// Reads the left side of a match.
pub fn left(value: &Value) -> Left {
    let Some((name, body)) = single(value) else { return Left::Foreign("its left side is not a field".to_owned()) };
    match name {
        "payload" => payload(body),
        "meta" => meta(body["key"].as_str().unwrap_or("")),
        "ct" => match (body["key"].as_str(), body.get("dir")) {
            (Some("state"), None) => Field::left("ct state", Kind::State),
            (key, _) => Left::Foreign(format!(
                "`ct {}`: `ct state` is the only fact about a flow that rules match",
                key.unwrap_or("")
            )),
        },
        "exthdr" if body.get("field").is_none() => {
            Field::left(&format!("exthdr {}", text(&body["name"])), Kind::Presence)
        }
        "exthdr" => Left::Foreign("a field of an extension header has no fixed place".to_owned()),
        "tcp option" | "ip option" => Left::Foreign(format!("a {name} has no fixed place in the packet")),
        "fib" => Left::Foreign(
            "Weir routes no packets; `inside { ... }` drops forged inside addresses (--inside)".to_owned(),
        ),
        "socket" => Left::Foreign("packets of other hosts belong to no process of this one".to_owned()),
        "&" => masked(body),
        "concat" => Left::Concat(body.as_array().map(|parts| parts.iter().map(left).collect()).unwrap_or_default()),
        "numgen" | "jhash" | "symhash" => {
            Left::Foreign("Weir decides a packet by its bytes and by time, not by chance".to_owned())
        }
        _ => Left::Foreign(format!("`{name}` is not a field of Weir")),
    }
}

fn masked(body: &Value) -> Left {
    let Left::Field(mut field) = left(&body[0]) else {
        return Left::Foreign("a mask on something that is not a field of Weir".to_owned());
    };
    let mask = match field.kind {
        Kind::Flags => flags(&body[1]).map(|bits| (u128::from(bits), flag_names(bits))),
        _ => field.value(&body[1]).and_then(|(range, text)| Some((range?.0, text))),
    };
    match mask {
        Some(mask) if field.mask.is_none() => field.mask = Some(mask),
        _ => return Left::Foreign("its mask is not a number".to_owned()),
    }
    Left::Field(field)
}

fn payload(body: &Value) -> Left {
    if let Some(base) = body["base"].as_str() {
        let base = if base == "ih" { "no base of Weir" } else { base };
        return Field::left(&format!("@{base},{},{}", text(&body["offset"]), text(&body["len"])), Kind::Number);
    }
    let (protocol, name) = (text(&body["protocol"]), text(&body["field"]));
    if SAME.iter().any(|(known, fields)| *known == protocol && fields.contains(&name.as_str())) {
        let kind = match (protocol.as_str(), name.as_str()) {
            (_, "saddr" | "daddr") => Kind::Address,
            (_, "protocol" | "nexthdr") => Kind::Protocol,
            ("tcp", "flags") => Kind::Flags,
            _ => Kind::Number,
        };
        return Field::left(&format!("{protocol} {name}"), kind);
    }
    if matches!(protocol.as_str(), "ip" | "ip6") && name == "version" {
        return Left::Foreign(format!("`{protocol} version` says nothing that the protocol does not say"));
    }
    let Some((.., guard, position)) =
        BY_POSITION.iter().find(|(known, field, ..)| *known == protocol && *field == name)
    else {
        return Left::Foreign(format!("`{protocol} {name}` is not a field of Weir"));
    };
    let kind = if protocol == "ether" { Kind::Hardware } else { Kind::Number };
    let mut field = Field::new(position, kind);
    field.guards.extend(guard.map(|guard| match guard {
        "ipv4" => Condition::family(condition::IPV4),
        "ipv6" => Condition::family(condition::IPV6),
        protocol => {
            let number = PROTOCOLS.iter().find(|(name, _)| *name == protocol).map_or(0, |(_, number)| *number);
            Condition::protocol(protocol, number)
        }
    }));
    Left::Field(field)
}

fn meta(key: &str) -> Left {
    match key {
        "length" => Field::left("meta length", Kind::Number),
        "nfproto" | "protocol" => Field::left("meta nfproto", Kind::Family),
        "l4proto" => Field::left("meta l4proto", Kind::Protocol),
        "iif" | "iifname" => Left::Interface(true),
        "oif" | "oifname" => Left::Interface(false),
        "mark" => Left::Foreign("packets have no mark in Weir".to_owned()),
        "pkttype" => Left::Foreign(
            "Weir does not see to whom the link layer sends a packet; `ip daddr 224.0.0.0/4` is multicast".to_owned(),
        ),
        "skuid" | "skgid" | "cgroup" => {
            Left::Foreign("packets of other hosts belong to no process of this one".to_owned())
        }
        "time" | "hour" | "day" => {
            Left::Foreign("rules do not know the time of day; `weir ctl activate` changes postures".to_owned())
        }
        key => Left::Foreign(format!("`meta {key}` is not a field of Weir")),
    }
}
