//! What a card appends to packets, as the chain that reads it knows it: the body of a trailer, bit by bit
//! (`docs/reference/card-layout.md`).

use crate::field::{Answer, Field, Guard, Subject};
use crate::ir::id::SlotId;
use crate::ir::match_tree::Test;
use weir_abi::card::{BODY_BYTES_MAX, FIRST_BITS_MAX, FLAGS_BITS_MAX, LOOKUP_BYTES, LOOKUPS_MAX, header, source};

/// The chain of a program that reads a card's answers, and where they are. No policy declares it: the split between
/// card and software adds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answering {
    /// Index of the chain, the last one.
    pub chain: usize,
    /// Index of the chain with the same rules, for packets without answers.
    pub plain: usize,
    /// What the body has.
    pub body: BodyLayout,
    /// For each lookup of the body, the slot whose image finishes it: the same as on the card, so its table is
    /// constant.
    pub lookups: Vec<SlotId>,
}

impl Answering {
    /// Whether the body has what a test reads.
    pub(crate) fn has(&self, test: &Test) -> bool {
        let Test::Value { subject: Subject::Card(answer), .. } = test else { return true };
        let BodyLayout { ends, counted, patterns, lookups, .. } = &self.body;
        match *answer {
            Answer::First => *ends > 0,
            Answer::Counted(index) => usize::from(index) < *counted,
            Answer::Pattern(index) => usize::from(index) < *patterns,
            Answer::Label(index) => usize::from(index) < *lookups,
            Answer::Field(field) => [Some(Carried::Headers), Carried::of(field)]
                .iter()
                .all(|value| value.is_some_and(|value| self.body.carried.contains(&value))),
        }
    }

    /// Whether the body is one that a card can send.
    pub(crate) fn is_sound(&self) -> bool {
        let Answering { body, lookups, .. } = self;
        body.first_bits() <= FIRST_BITS_MAX
            && body.flags_bits() <= FLAGS_BITS_MAX
            && body.lookups <= LOOKUPS_MAX
            && body.bytes() <= BODY_BYTES_MAX
            && body.carried.is_sorted_by(|one, next| one < next)
            && lookups.len() == body.lookups
    }
}

/// What the body of one policy has.
///
/// ```text
/// | flags: first, counted, patterns | carried values | lookups |
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BodyLayout {
    /// Rules that end the chain: `first` has as many bits as their number.
    pub ends: usize,
    /// Bits of `counted`.
    pub counted: usize,
    /// Bits of `patterns`.
    pub patterns: usize,
    /// Values, in the order of [`Carried`].
    pub carried: Vec<Carried>,
    /// Number of lookups.
    pub lookups: usize,
}

impl BodyLayout {
    /// w: bits of `first`.
    pub fn first_bits(&self) -> usize {
        (usize::BITS - self.ends.leading_zeros()) as usize
    }

    /// Bits of the flags.
    pub fn flags_bits(&self) -> usize {
        self.first_bits() + self.counted + self.patterns
    }

    /// Bit of `counted` bit `index` in the flags.
    pub fn counted_bit(&self, index: u8) -> usize {
        self.first_bits() + usize::from(index)
    }

    /// Bit of pattern `index` in the flags.
    pub fn pattern_bit(&self, index: u8) -> usize {
        self.first_bits() + self.counted + usize::from(index)
    }

    /// Bytes of the body.
    pub fn bytes(&self) -> usize {
        let carried: usize = self.carried.iter().map(|value| value.source().1).sum();
        self.flags_bits().div_ceil(8) + carried + self.lookups * LOOKUP_BYTES
    }

    /// The source of each byte of the body.
    pub fn sources(&self) -> Vec<u8> {
        let span = |(first, count): (u8, usize)| first..first + count as u8;
        let flags = span((source::FLAGS, self.flags_bits().div_ceil(8)));
        let lookups = span((source::LOOKUPS, self.lookups * LOOKUP_BYTES));
        flags.chain(self.carried.iter().flat_map(|value| span(value.source()))).chain(lookups).collect()
    }

    /// Offset of a carried value.
    pub fn offset_of(&self, wanted: Carried) -> Option<usize> {
        let index = self.carried.iter().position(|value| *value == wanted)?;
        let before: usize = self.carried[..index].iter().map(|value| value.source().1).sum();
        Some(self.flags_bits().div_ceil(8) + before)
    }

    /// Offset of a lookup.
    pub fn offset_of_lookup(&self, lookup: usize) -> usize {
        self.bytes() - (self.lookups - lookup) * LOOKUP_BYTES
    }

    /// The flags of a packet as one word.
    ///
    /// # Panics
    /// A number does not fit its bits.
    pub fn flags(&self, first: u8, counted: u64, patterns: u64) -> u64 {
        let fits = |value: u64, bits: usize| bits == 64 || value >> bits == 0;
        let bits = self.first_bits();
        assert!(
            self.flags_bits() <= FLAGS_BITS_MAX
                && fits(first.into(), bits)
                && fits(counted, self.counted)
                && fits(patterns, self.patterns),
            "compiler bug: flags that do not fit their layout"
        );
        let at = |value: u64, shift: usize| value.checked_shl(shift as u32).unwrap_or(0);
        u64::from(first) | at(counted, bits) | at(patterns, bits + self.counted)
    }
}

/// A value that a body may carry, in the order of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Carried {
    /// The headers of the packet. Every body with another carried value has them.
    Headers,
    /// Upper-layer protocol.
    Protocol,
    /// Source port.
    Sport,
    /// Destination port.
    Dport,
    /// IPv4 source.
    Saddr,
    /// IPv4 destination.
    Daddr,
}

impl Carried {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Headers, Self::Protocol, Self::Sport, Self::Dport, Self::Saddr, Self::Daddr];

    /// What carries the field, if a body may have it. A card sends no packet with extension headers with answers.
    pub const fn of(field: Field) -> Option<Self> {
        Some(match field {
            Field::MetaL4proto | Field::IpProtocol | Field::Ip6Nexthdr => Self::Protocol,
            Field::ThSport | Field::TcpSport | Field::UdpSport => Self::Sport,
            Field::ThDport | Field::TcpDport | Field::UdpDport => Self::Dport,
            Field::IpSaddr => Self::Saddr,
            Field::IpDaddr => Self::Daddr,
            _ => return None,
        })
    }

    /// The name in C and in printed IR.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Headers => "headers",
            Self::Protocol => "protocol",
            Self::Sport => "sport",
            Self::Dport => "dport",
            Self::Saddr => "saddr",
            Self::Daddr => "daddr",
        }
    }

    /// The first source, and the number of bytes.
    pub const fn source(self) -> (u8, usize) {
        match self {
            Self::Headers => (source::HEADERS, 2),
            Self::Protocol => (source::PROTOCOL, 1),
            Self::Sport => (source::SPORT, 2),
            Self::Dport => (source::DPORT, 2),
            Self::Saddr => (source::SADDR, 4),
            Self::Daddr => (source::DADDR, 4),
        }
    }
}

/// The number of a guard's header.
pub const fn header_of(guard: Guard) -> u8 {
    match guard {
        Guard::Any => header::ANY,
        Guard::Vlan => header::VLAN,
        Guard::QinQ => header::QINQ,
        Guard::Ipv4 => header::IPV4,
        Guard::Ipv6 => header::IPV6,
        Guard::Ip => header::IP,
        Guard::Tcp => header::TCP,
        Guard::Udp => header::UDP,
        Guard::Icmp => header::ICMP,
        Guard::Icmp6 => header::ICMP6,
        Guard::Ports => header::PORTS,
        Guard::Transport => header::TRANSPORT,
    }
}
