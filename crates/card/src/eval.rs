//! The card as an interpreter. It defines what a card does with a frame (`docs/reference/card-layout.md`); RTL must
//! equal it bit for bit.
//!
//! It is written for clarity: it parses with the reference parser, computes all sources that a body may have, and
//! selects bytes of them.

use crate::Lookups;
use crate::body::BodyLayout;
use crate::field::{CardField, header_of};
use crate::profile::Profile;
use crate::program::{Act, CardPattern, CardProgram, CardRule};
use weir_abi::card::{FRAME_BYTES_MAX, LOOKUP_BYTES, LOOKUP_LOW, LOOKUP_VALID, Seal, source};
use weir_abi::packet::{Fragment, L3};
use weir_abi::{Counter, Link};
use weir_policy::field::{Field, Guard};
use weir_policy::ir::eval::packet::{Frame, Packet, parse};
use weir_policy::ir::eval::{field, guard_holds};

/// A configuration: what a commit makes active.
#[derive(Clone, Debug)]
pub struct Configuration<'a, L> {
    /// What the card does.
    pub program: &'a CardProgram,
    /// Its tables.
    pub lookups: L,
    /// The card's secret.
    pub token: u64,
    /// The epoch.
    pub epoch: u16,
}

/// A card between the network and the software.
pub struct Card<'a, L> {
    profile: &'a Profile,
    active: Option<Configuration<'a, L>>,
    /// What was dropped in the active epoch, by counter.
    dropped: Vec<Counter>,
}

/// What the card's rules say about a packet that it understands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub drop: Option<u8>,
    pub first: u8,
    pub counted: u64,
    /// All patterns that match.
    pub patterns: u64,
}

impl<'a, L: Lookups> Card<'a, L> {
    /// A card without configuration.
    pub fn new(profile: &'a Profile) -> Self {
        Card { profile, active: None, dropped: vec![] }
    }

    /// Makes a configuration active, from the next frame on. The result is what was dropped by the previous one.
    pub fn commit(&mut self, configuration: Configuration<'a, L>) -> Vec<Counter> {
        let counters = vec![Counter::default(); configuration.program.dropped.len()];
        self.active = Some(configuration);
        std::mem::replace(&mut self.dropped, counters)
    }

    /// What the active configuration has dropped, by counter.
    pub fn dropped(&self) -> &[Counter] {
        &self.dropped
    }

    /// Handles a frame from the network: what the software receives of it, or `None` if the card drops it.
    pub fn handle(&mut self, frame: Frame<'_>) -> Option<Vec<u8>> {
        let Some(Configuration { program, lookups, token, epoch }) = &self.active else {
            return Some(frame.bytes.to_vec());
        };
        let seal = |answers: bool, body: usize| Seal {
            token: *token,
            control: false,
            answers,
            body: body as u8,
            epoch: *epoch,
        };
        let Some(packet) = understood(self.profile, program.options_alone, frame) else {
            return Some([frame.bytes, &seal(false, 0).word().to_le_bytes()].concat());
        };
        let outcome = outcome(&program.patterns, &program.rules, &packet);
        if let Some(counter) = outcome.drop {
            let counter = &mut self.dropped[usize::from(counter)];
            counter.packets += 1;
            counter.bytes += u64::from(frame.wire_len);
            return None;
        }
        let layout: &BodyLayout = &program.body;
        let sent = outcome.patterns & low(layout.patterns);
        let flags = layout.flags(outcome.first, outcome.counted, sent);
        let keys = program.lookups.iter().map(|lookup| lookup.key).enumerate();
        let sources = sources(flags, keys, |lookup, key| lookups.begin(lookup, key), &packet);
        let body: Vec<u8> = program.body.sources().iter().map(|&source| sources[usize::from(source)]).collect();
        let seal = seal(true, body.len()).word().to_le_bytes();
        Some([frame.bytes, &body, &seal].concat())
    }
}

/// The packet, if the card answers for it.
pub(crate) fn understood(profile: &Profile, options_alone: bool, frame: Frame<'_>) -> Option<Packet> {
    // A card is on Ethernet and receives whole frames. Captures of other kinds pass without answers.
    if frame.link != Link::Ethernet || frame.bytes.len() != frame.wire_len as usize {
        return None;
    }
    let (packet, malformed) = parse(frame);
    let network = match packet.l3 {
        L3::Ipv4 => true,
        L3::Ipv6 => profile.ip6,
        L3::None | L3::Arp => false,
    };
    let plain = packet.fragment == Fragment::None && packet.ext == 0;
    let options = !packet.ip_options || profile.options && !options_alone;
    let is_giant = frame.bytes.len() > FRAME_BYTES_MAX;
    let known = malformed.is_none() && !is_giant && network && plain && options && packet.vlan.len() <= profile.vlan;
    known.then_some(packet)
}

/// Compares a packet with all patterns, and applies all rules.
pub(crate) fn outcome(patterns: &[CardPattern], rules: &[CardRule], packet: &Packet) -> Outcome {
    let matched = patterns.iter().enumerate().map(|(bit, pattern)| u64::from(matches(pattern, packet)) << bit).sum();
    let mut outcome = Outcome { patterns: matched, ..Outcome::default() };
    for CardRule { patterns, act } in rules {
        if !patterns.iter().all(|&pattern| matched >> pattern & 1 != 0) {
            continue;
        }
        match *act {
            Act::Count(bit) => outcome.counted |= 1 << bit,
            Act::Drop(counter) => outcome.drop = outcome.drop.or(Some(counter)),
            Act::End(number) if outcome.first == 0 => outcome.first = number,
            Act::End(_) => {}
        }
    }
    outcome
}

/// The lowest bits of a word.
pub(crate) const fn low(bits: usize) -> u64 {
    if bits >= u64::BITS as usize { u64::MAX } else { (1 << bits) - 1 }
}

fn matches(pattern: &CardPattern, packet: &Packet) -> bool {
    let compares = |compare: &crate::program::Compare| compare.holds(value(compare.field, packet));
    guard_holds(pattern.header, packet) && pattern.compare.as_ref().is_none_or(compares)
}

/// The value of a field; 0 if the packet does not have it.
fn value(of: CardField, packet: &Packet) -> u32 {
    let ipv4 = packet.l3 == L3::Ipv4;
    match of {
        CardField::Protocol => packet.proto.into(),
        CardField::Sport => packet.sport.into(),
        CardField::Dport => packet.dport.into(),
        CardField::TcpFlags => packet.tcp_flags.into(),
        CardField::Saddr if ipv4 => packet.saddr as u32,
        CardField::Daddr if ipv4 => packet.daddr as u32,
        CardField::Saddr | CardField::Daddr => 0,
        CardField::Ttl => packet.ttl.into(),
        CardField::Length => field::value(Field::MetaLength, packet) as u32,
        CardField::IcmpType => packet.icmp_type.into(),
        CardField::IcmpCode => packet.icmp_code.into(),
        CardField::VlanId => packet.vlan.first().map_or(0, |tag| (tag & 0xfff).into()),
        CardField::TcpWindow => packet.window.into(),
    }
}

/// The bytes that a body may have, by number. `keys` are the lookups that are used, each with its address.
pub(crate) fn sources(
    flags: u64,
    keys: impl Iterator<Item = (usize, Field)>,
    begin: impl Fn(usize, u32) -> u32,
    packet: &Packet,
) -> [u8; source::COUNT] {
    let mut bytes = [0; source::COUNT];
    let mut put = |at: u8, value: &[u8]| bytes[usize::from(at)..usize::from(at) + value.len()].copy_from_slice(value);
    put(source::FLAGS, &flags.to_le_bytes());
    let headers: u16 =
        Guard::ALL.iter().map(|&(guard, _)| u16::from(guard_holds(guard, packet)) << header_of(guard)).sum();
    put(source::HEADERS, &headers.to_le_bytes());
    put(source::PROTOCOL, &[packet.proto]);
    put(source::SPORT, &packet.sport.to_le_bytes());
    put(source::DPORT, &packet.dport.to_le_bytes());
    put(source::SADDR, &value(CardField::Saddr, packet).to_le_bytes());
    put(source::DADDR, &value(CardField::Daddr, packet).to_le_bytes());
    if packet.l3 == L3::Ipv4 {
        for (index, key) in keys {
            let key = if key == Field::IpDaddr { packet.daddr } else { packet.saddr } as u32;
            let low = key as u16 & LOOKUP_LOW | LOOKUP_VALID;
            let at = source::LOOKUPS + (index * LOOKUP_BYTES) as u8;
            put(at, &begin(index, key).to_le_bytes());
            put(at + 4, &low.to_le_bytes());
        }
    }
    bytes
}
