//! Signatures: conjunctions of header fields that describe the packets of an attack, as rules of the policy language.

pub mod learn;
pub mod merge;
mod prior;

use crate::header::{Header, protocol, tcp};
use crate::prefix::{Level, Prefix};
use serde::{Deserialize, Serialize};
use std::fmt::{self, Display, Formatter};
use weir_abi::packet::Fragment;

/// Two ranges are nearly the same if they have more than this share of their values in common.
const ALIKE: f64 = 0.5;

/// A field that a signature may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Field {
    /// `meta l4proto`
    Protocol,
    /// `meta fragment`: 0 none, 1 first, 2 later.
    Fragment,
    /// `th sport`
    Sport,
    /// `th dport`
    Dport,
    /// `meta length`
    Length,
    /// `tcp flags`
    Flags,
    /// `tcp doff`: 5 means no options.
    Doff,
    /// `tcp window`
    Window,
    /// `icmp type`
    IcmpType,
    /// The first four bytes of a UDP payload.
    Payload,
    /// `ip ttl`
    Ttl,
    /// `ip saddr`: an address, or all of a prefix.
    Saddr,
}

impl Field {
    /// All fields, in the order in which rules name them.
    pub const ALL: [Field; 12] = [
        Field::Saddr,
        Field::Protocol,
        Field::Fragment,
        Field::Sport,
        Field::Dport,
        Field::Flags,
        Field::Doff,
        Field::Window,
        Field::IcmpType,
        Field::Payload,
        Field::Length,
        Field::Ttl,
    ];

    /// The value of the field, if the packet has it.
    pub fn value(self, header: &Header) -> Option<u128> {
        let is_tcp = header.protocol == protocol::TCP && header.has_ports;
        let is_icmp = matches!(header.protocol, protocol::ICMP | protocol::ICMP6) && header.fragment != Fragment::Later;
        let is_udp = header.protocol == protocol::UDP && header.has_ports;
        match self {
            Field::Protocol => Some(header.protocol.into()),
            Field::Fragment => Some(header.fragment as u128),
            Field::Sport => header.has_ports.then_some(header.sport.into()),
            Field::Dport => header.has_ports.then_some(header.dport.into()),
            Field::Length => Some(header.length.into()),
            Field::Flags => is_tcp.then_some(header.flags.into()),
            Field::Doff => is_tcp.then_some(header.doff.into()),
            Field::Window => is_tcp.then_some(header.window.into()),
            Field::IcmpType => is_icmp.then_some(header.icmp_type.into()),
            Field::Payload => header.payload.filter(|_| is_udp).map(|bytes| u32::from_be_bytes(bytes).into()),
            Field::Ttl => Some(header.ttl.into()),
            Field::Saddr => Some(header.saddr),
        }
    }

    /// Its place in a rule.
    fn place(self) -> Option<usize> {
        Self::ALL.iter().position(|field| *field == self)
    }

    /// Whether neighbouring values mean similar packets, so that a range is a description. Ports are names.
    fn is_ordered(self) -> bool {
        matches!(self, Field::Length | Field::Window | Field::Ttl)
    }
}

/// A range of values of a field; both ends belong to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Term {
    /// The field.
    pub field: Field,
    /// The lowest value.
    pub first: u128,
    /// The highest value.
    pub last: u128,
}

impl Term {
    /// Whether a packet has the field and its value is in the range.
    pub fn matches(&self, header: &Header) -> bool {
        self.field.value(header).is_some_and(|value| (self.first..=self.last).contains(&value))
    }

    /// Whether two terms of a field have most of their values in common.
    fn is_like(&self, other: &Term) -> bool {
        let width = |first: u128, last: u128| last.checked_sub(first).map_or(0.0, |more| more as f64 + 1.0);
        let common = width(self.first.max(other.first), self.last.min(other.last));
        let all = width(self.first.min(other.first), self.last.max(other.last));
        self.field == other.field && common > all * ALIKE
    }

    fn text(&self, is_ipv6: bool) -> String {
        let values = |name: &str| match self.first == self.last {
            true => format!("{name} {}", self.first),
            false => format!("{name} {}-{}", self.first, self.last),
        };
        match self.field {
            Field::Protocol if self.first != self.last => values("meta l4proto"),
            Field::Protocol => match self.first as u8 {
                protocol::TCP => "meta l4proto tcp".to_owned(),
                protocol::UDP => "meta l4proto udp".to_owned(),
                _ => values("meta l4proto"),
            },
            Field::Fragment => {
                let name = ["none", "first", "later"][self.first.min(2) as usize];
                format!("meta fragment {name}")
            }
            Field::Sport => values("th sport"),
            Field::Dport => values("th dport"),
            Field::Length => values("meta length"),
            Field::Flags => format!("tcp flags == {}", flags_text(self.first as u8)),
            Field::Doff => values("tcp doff"),
            Field::Window => values("tcp window"),
            Field::IcmpType => values(if is_ipv6 { "icmpv6 type" } else { "icmp type" }),
            Field::Payload => format!("@th,64,32 {:#010x}", self.first),
            Field::Ttl => values(if is_ipv6 { "ip6 hoplimit" } else { "ip ttl" }),
            Field::Saddr => {
                let family = if is_ipv6 { "ip6" } else { "ip" };
                let host_bits = (u128::BITS - (self.first ^ self.last).leading_zeros()) as u8;
                let length = Level::Host.length(is_ipv6).saturating_sub(host_bits);
                format!("{family} saddr {}", Prefix::of(is_ipv6, self.first, length))
            }
        }
    }
}

fn flags_text(flags: u8) -> String {
    const NAMES: [(u8, &str); 8] = [
        (tcp::FIN, "fin"),
        (tcp::SYN, "syn"),
        (tcp::RST, "rst"),
        (tcp::PSH, "psh"),
        (tcp::ACK, "ack"),
        (32, "urg"),
        (64, "ecn"),
        (128, "cwr"),
    ];
    let names: Vec<&str> = NAMES.iter().filter(|(bit, _)| flags & bit != 0).map(|&(_, name)| name).collect();
    if names.is_empty() { "0".to_owned() } else { names.join(",") }
}

/// A conjunction of terms, for packets to a victim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signature {
    /// The victim.
    pub victim: Prefix,
    /// All must match. A field occurs once, in the order in which rules name them, so that equal signatures are equal.
    terms: Vec<Term>,
}

impl Signature {
    /// A signature of terms in any order. A field occurs once.
    pub fn new(victim: Prefix, mut terms: Vec<Term>) -> Self {
        terms.sort_by_key(|term| term.field.place());
        Signature { victim, terms }
    }

    /// The terms, in the order in which rules name them.
    pub fn terms(&self) -> &[Term] {
        &self.terms
    }

    /// Whether another one hits nearly the same packets: it names the same fields, with the same values, or with ranges
    /// that have most in common.
    pub fn is_like(&self, other: &Signature) -> bool {
        let pairs = || self.terms.iter().zip(&other.terms);
        self.victim == other.victim
            && self.terms.len() == other.terms.len()
            && pairs().all(|(one, other)| one.is_like(other))
    }

    /// The term of a field, if the other signature has another one and no other difference.
    pub fn differs_in(&self, other: &Signature, field: Field) -> Option<Term> {
        let mut pairs = self.terms.iter().zip(&other.terms);
        let is_relative = self.victim == other.victim && self.terms.len() == other.terms.len();
        let is_alike = |(one, other): (&Term, &Term)| one == other || one.field == field && other.field == field;
        let own = self.terms.iter().find(|term| term.field == field && !other.terms.contains(term))?;
        (is_relative && pairs.all(is_alike)).then_some(*own)
    }

    /// Whether it matches every packet that another one matches, as its terms say.
    pub fn covers(&self, other: &Signature) -> bool {
        let has = |term: &Term| {
            let is_within = |one: &Term| one.field == term.field && term.first <= one.first && one.last <= term.last;
            other.terms.iter().any(is_within)
        };
        self.victim.covers(&other.victim) && self.terms.iter().all(has)
    }

    /// Whether a packet goes to the victim and all terms match.
    pub fn matches(&self, header: &Header) -> bool {
        self.victim.contains(header.is_ipv6, header.daddr) && self.terms.iter().all(|term| term.matches(header))
    }
}

impl Display for Signature {
    /// A match of the policy language.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let is_ipv6 = self.victim.is_ipv6();
        write!(f, "{} daddr {}", if is_ipv6 { "ip6" } else { "ip" }, self.victim)?;
        let has = |field| self.terms.iter().any(|term| term.field == field);
        // The bytes at this place of a TCP header are its acknowledgement number.
        if has(Field::Payload) && !has(Field::Protocol) {
            f.write_str(" meta l4proto udp")?;
        }
        self.terms.iter().try_for_each(|term| write!(f, " {}", term.text(is_ipv6)))
    }
}

#[cfg(test)]
mod tests {
    use super::{Field, Signature, Term};
    use crate::header::{Header, protocol, tcp};
    use crate::prefix::Prefix;

    #[test]
    fn a_signature_is_a_rule_of_the_language() {
        let term = |field, first, last| Term { field, first, last };
        let terms = vec![
            term(Field::Length, 40, 44),
            term(Field::Flags, tcp::SYN.into(), tcp::SYN.into()),
            term(Field::Dport, 25565, 25565),
            term(Field::Protocol, 6, 6),
        ];
        let signature = Signature::new(Prefix::of(false, 0xc000_0201, 32), terms);
        let text = "ip daddr 192.0.2.1 meta l4proto tcp th dport 25565 tcp flags == syn meta length 40-44";
        assert_eq!(signature.to_string(), text);
        let header = Header::between(1, 0xc000_0201);
        let syn = Header { protocol: protocol::TCP, has_ports: true, dport: 25565, flags: 2, length: 40, ..header };
        assert!(signature.matches(&syn));
        assert!(!signature.matches(&Header { length: 60, ..syn }));
        assert!(!signature.matches(&Header { daddr: 1, ..syn }));
        assert!(!signature.matches(&Header { has_ports: false, ..syn }));
    }

    #[test]
    fn a_signature_is_the_same_in_any_order_and_like_one_with_nearly_the_same_ranges() {
        let victim = Prefix::of(false, 0xc000_0201, 32);
        let of = |terms: &[(Field, u128, u128)]| {
            Signature::new(victim, terms.iter().map(|&(field, first, last)| Term { field, first, last }).collect())
        };
        let one = of(&[(Field::Length, 500, 1200), (Field::Sport, 53, 53)]);
        assert_eq!(one, of(&[(Field::Sport, 53, 53), (Field::Length, 500, 1200)]));
        assert!(one.is_like(&one) && one.is_like(&of(&[(Field::Sport, 53, 53), (Field::Length, 520, 1190)])));
        // What is narrower, elsewhere, or names more may be better.
        assert!(!one.is_like(&of(&[(Field::Sport, 53, 53), (Field::Length, 900, 1200)])));
        assert!(!one.is_like(&of(&[(Field::Sport, 123, 123), (Field::Length, 500, 1200)])));
        assert!(!one.is_like(&of(&[(Field::Sport, 53, 53)])));
        let everything = of(&[(Field::Saddr, 0, u128::MAX)]);
        assert!(everything.is_like(&everything));
    }

    #[test]
    fn bytes_of_a_payload_are_those_of_udp() {
        let term = |field, value| Term { field, first: value, last: value };
        let victim = Prefix::of(false, 0xc000_0201, 32);
        let payload = term(Field::Payload, 0x1703_0001);
        let signature = Signature::new(victim, vec![payload, term(Field::Sport, 123)]);
        let text = "ip daddr 192.0.2.1 meta l4proto udp th sport 123 @th,64,32 0x17030001";
        assert_eq!(signature.to_string(), text);
        let named = Signature::new(victim, vec![payload, term(Field::Protocol, 17)]);
        assert_eq!(named.to_string(), "ip daddr 192.0.2.1 meta l4proto udp @th,64,32 0x17030001");
    }
}
