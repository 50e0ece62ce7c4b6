//! Learns signatures that cover the packets of an attack and spare legitimate ones.
//!
//! Greedy rule learning as in FOIL (Quinlan, 1990): a signature begins empty and takes the term with the highest gain,
//! which keeps many packets of the attack and few legitimate ones, until it spares the legitimate ones. What it covers
//! is removed, and the next signature is learned from the rest.

use super::{Field, Signature, Term, prior};
use crate::class;
use crate::header::{Header, protocol};
use crate::prefix::{Level, Prefix};
use std::collections::{BTreeSet, HashMap};
use weir_abi::PacketClass;

/// Share of legitimate packets that a signature may cover.
pub const COLLATERAL_MAX: f64 = 0.001;
/// Share of one group of everyday packets that a signature may cover. A signature that names a port, a length or a TTL
/// that the group has covers less.
const PRIOR_MAX: f64 = 0.05;
/// Share of the first packets of the victim's conversations that a signature may cover.
const FIRST_MAX: f64 = 0.005;
/// The everyday packets weigh together as much as this share of the legitimate ones.
const PRIOR_WEIGHT: f64 = 0.2;
/// A usual packet without proof weighs as much as this part of a legitimate one.
const USUAL_WEIGHT: f64 = 0.25;
/// A signature covers at least this share of what it was learned from, else it describes chance.
const SHARE_MIN: f64 = 0.03;
/// Fewest packets of the attack that a signature covers. With 16, a value that half of the packets had by chance would
/// be shared by all once in 2^16 cases.
const COVERED_MIN: usize = 16;
/// Most signatures of one call.
const SIGNATURES_MAX: usize = 6;
/// Most terms that a signature needs to spare legitimate packets.
const TERMS_MAX: usize = 6;
/// A value that this share of the covered packets has belongs to the signature, once it covers `SPECIAL_MIN` packets.
const SPECIAL_SHARE: f64 = 0.995;
const SPECIAL_MIN: usize = 64;
/// A group of everyday packets is not needed if the reference has this many of its class to the victim. What none of
/// them has is had by less than 1 % (95 % confidence: 3 of 400).
const KNOWN_MIN: usize = 400;
/// Protocols that an attack has at least, before a range of them is named.
const PROTOCOLS_MIN: usize = 8;
/// Destination ports that a server has at most. A host with more is a client too.
const SERVED_MAX: usize = 16;
/// Distinct sources of a net that is named: fewer are named one by one.
const NET_SOURCES_MIN: usize = 8;
/// Values of a field that are tried.
const VALUES_MAX: usize = 12;

/// A learned signature and what it covers.
#[derive(Clone, Debug, PartialEq)]
pub struct Learned {
    /// The signature.
    pub signature: Signature,
    /// Packets of the attack's sample that it covers, and that earlier signatures do not.
    pub covered: usize,
    /// Packets of the attack's sample.
    pub of: usize,
    /// Legitimate packets of the reference that it covers.
    pub legitimate: usize,
    /// Legitimate packets of the reference.
    pub legitimate_of: usize,
    /// Share of the victim's usual packets without proof that it covers.
    pub usual_share: f64,
    /// Whether its packets are the datagrams of one sender.
    pub is_stream: bool,
}

/// What signatures are learned from.
#[derive(Clone, Copy)]
pub struct Examples<'a> {
    /// The victim.
    pub victim: Prefix,
    /// A sample of the attack. It may contain legitimate packets.
    pub attack: &'a [Header],
    /// Legitimate packets: of the peace before, and of proven sources now.
    pub legitimate: &'a [&'a Header],
    /// First packets of the victim's conversations, and datagrams that it has answered.
    pub first: &'a [&'a Header],
    /// Classes that are no part of what the victim does. Everyday packets of them are not spared.
    pub foreign: &'a [PacketClass],
    /// Packets without proof that were usual in peace. A signature that covers them must let their usual rate pass.
    pub usual: &'a [&'a Header],
    /// Headers of streams to the victim, such as tunnels, which are spared.
    pub streamed: &'a [Header],
    /// Whether the victim has users. Then a signature must spare everyday packets too, also those that the victim has
    /// not received yet.
    pub is_used: bool,
    /// Share of the sample that a signature must cover, if more than usual.
    pub share_min: f64,
    /// Sources that no signature names, because they are known to be real customers.
    pub is_known: &'a dyn Fn(&Header) -> bool,
    /// Nets of sources that no signature names, because customers are in them.
    pub is_known_net: &'a dyn Fn(&Prefix) -> bool,
}

/// Learns signatures for what the sample contains, the broadest first.
pub fn learn(examples: &Examples<'_>) -> Vec<Learned> {
    let prior = everyday(examples);
    let unused: Vec<Term> = unused_ports(examples).into_iter().chain(unused_protocols(examples)).collect();
    let mut rest: Vec<&Header> = examples.attack.iter().collect();
    let least = COVERED_MIN.max((examples.attack.len() as f64 * examples.share_min.max(SHARE_MIN)).ceil() as usize);
    let mut found = Vec::new();
    while found.len() < SIGNATURES_MAX && rest.len() >= least {
        let Some(terms) = conjunction(&rest, examples, (&prior, &unused), least) else { break };
        let signature = Signature::new(examples.victim, terms);
        let before = rest.len();
        rest.retain(|header| !covers(&signature.terms, header));
        found.push(judged(signature, before - rest.len(), examples));
    }
    found
}

/// The signature with some terms, if it covers packets of the attack and spares legitimate and everyday ones.
pub fn of_terms(terms: Vec<Term>, examples: &Examples<'_>) -> Option<Learned> {
    let signature = Signature::new(examples.victim, terms);
    let covered = examples.attack.iter().filter(|header| covers(&signature.terms, header)).count();
    let is_sparing =
        !covers_a_group(&signature.terms, &everyday(examples)) && !covers_first(&signature.terms, examples);
    let learned = judged(signature, covered, examples);
    let allowed = examples.legitimate.len() as f64 * COLLATERAL_MAX;
    (covered > 0 && is_sparing && learned.legitimate as f64 <= allowed).then_some(learned)
}

/// A signature with what it covers. `covered` are packets of the attack that no other one covers.
fn judged(signature: Signature, covered: usize, examples: &Examples<'_>) -> Learned {
    let is_hit = |header: &&&Header| signature.terms.iter().all(|term| hits(term, header, &examples.victim));
    let legitimate = examples.legitimate.iter().filter(is_hit).count();
    let (of, legitimate_of) = (examples.attack.len(), examples.legitimate.len());
    let usual_share = usual_share(&signature, examples);
    Learned { signature, covered, of, legitimate, legitimate_of, usual_share, is_stream: false }
}

/// The groups of everyday packets that must be spared.
fn everyday(examples: &Examples<'_>) -> Vec<Vec<Header>> {
    let is_foreign = |group: &[Header]| group.first().is_some_and(|one| examples.foreign.contains(&class::of(one)));
    let mut prior = prior::groups();
    prior.retain(|group| !is_foreign(group) && !is_known_better(group, examples));
    prior
}

/// Whether the reference says more of the victim than a group of everyday packets.
fn is_known_better(group: &[Header], examples: &Examples<'_>) -> bool {
    let class = group.first().map(class::of);
    let is_alike =
        |header: &&&Header| examples.victim.contains(header.is_ipv6, header.daddr) && Some(class::of(header)) == class;
    examples.legitimate.iter().filter(is_alike).count() >= KNOWN_MIN
}

/// Ranges of destination ports that no packet to the victim had in peace, if it has few ports, as servers do.
fn unused_ports(examples: &Examples<'_>) -> Vec<Term> {
    let of_victim = |header: &&&Header| examples.victim.contains(header.is_ipv6, header.daddr);
    let known = examples.legitimate.iter().chain(examples.usual).filter(of_victim);
    let ports: BTreeSet<u128> = known.filter_map(|header| Field::Dport.value(header)).collect();
    if ports.is_empty() || ports.len() > SERVED_MAX {
        return Vec::new();
    }
    gaps(Field::Dport, ports, 1 << 16)
}

/// Ranges of protocols that no packet to the victim had in peace, and everyday packets do not have, if the attack has
/// many.
fn unused_protocols(examples: &Examples<'_>) -> Vec<Term> {
    let of_victim = |header: &&Header| examples.victim.contains(header.is_ipv6, header.daddr);
    let streamed = examples.streamed.iter();
    let known = examples.legitimate.iter().chain(examples.usual).copied().chain(streamed).filter(of_victim);
    let icmp = if examples.victim.is_ipv6() { protocol::ICMP6 } else { protocol::ICMP };
    let attack: BTreeSet<u8> = examples.attack.iter().map(|header| header.protocol).collect();
    if attack.len() < PROTOCOLS_MIN {
        return Vec::new();
    }
    let everyday = [protocol::TCP, protocol::UDP, icmp].map(u128::from);
    gaps(Field::Protocol, known.filter_map(|header| Field::Protocol.value(header)).chain(everyday).collect(), 1 << 8)
}

/// The ranges of two values and more below `end` that are between values in use.
fn gaps(field: Field, used: BTreeSet<u128>, end: u128) -> Vec<Term> {
    let mut first = 0;
    let mut gaps = Vec::new();
    for value in used.into_iter().chain([end]) {
        if value > first + 1 {
            gaps.push(Term { field, first, last: value - 1 });
        }
        first = value + 1;
    }
    gaps
}

fn usual_share(signature: &Signature, examples: &Examples<'_>) -> f64 {
    let victim = &examples.victim;
    let of_victim: Vec<_> =
        examples.usual.iter().filter(|header| victim.contains(header.is_ipv6, header.daddr)).collect();
    let covered = of_victim.iter().filter(|header| covers(&signature.terms, header)).count();
    covered as f64 / of_victim.len().max(1) as f64
}

fn covers(terms: &[Term], header: &Header) -> bool {
    terms.iter().all(|term| term.matches(header))
}

/// Whether a term covers a legitimate packet. Ports and protocols that the victim does not use may be in use at another
/// host.
fn hits(term: &Term, legitimate: &Header, victim: &Prefix) -> bool {
    let is_unused = matches!(term.field, Field::Dport | Field::Protocol) && term.first != term.last;
    term.matches(legitimate) && (!is_unused || victim.contains(legitimate.is_ipv6, legitimate.daddr))
}

/// One signature that spares legitimate packets, if there is one.
fn conjunction(
    attack: &[&Header],
    examples: &Examples<'_>,
    (prior, unused): (&[Vec<Header>], &[Term]),
    least: usize,
) -> Option<Vec<Term>> {
    let mut covered = attack.to_vec();
    let mut spare = Weighed::new(examples, prior);
    let allowed = examples.legitimate.len() as f64 * COLLATERAL_MAX;
    let mut terms: Vec<Term> = Vec::new();
    while terms.is_empty()
        || spare.legitimate.len() as f64 > allowed
        || examples.is_used && covers_a_group(&terms, prior)
        || covers_first(&terms, examples)
    {
        if terms.len() == TERMS_MAX {
            return None;
        }
        let (_, best) = candidates(&covered, &terms, examples, unused)
            .into_iter()
            .filter_map(|term| Some((gain(&term, &covered, &spare, least)?, term)))
            .max_by(|one, other| one.0.total_cmp(&other.0))?;
        covered.retain(|header| best.matches(header));
        spare.retain(&best);
        terms.push(best);
    }
    specialise(&mut terms, &covered);
    Some(terms)
}

/// Legitimate and everyday packets that the terms so far cover.
struct Weighed<'a> {
    legitimate: Vec<&'a Header>,
    prior: Vec<&'a Header>,
    usual: Vec<&'a Header>,
    victim: Prefix,
    /// The weight of an everyday packet.
    weight: f64,
}

impl<'a> Weighed<'a> {
    fn new(examples: &Examples<'a>, prior: &'a [Vec<Header>]) -> Self {
        let everyday: usize = prior.iter().map(Vec::len).sum();
        let legitimate = examples.legitimate;
        let weight = (legitimate.len() as f64 * PRIOR_WEIGHT / everyday.max(1) as f64).max(1.0);
        Weighed {
            legitimate: legitimate.to_vec(),
            prior: prior.iter().flatten().collect(),
            usual: examples.usual.to_vec(),
            victim: examples.victim,
            weight,
        }
    }

    fn retain(&mut self, term: &Term) {
        self.legitimate.retain(|header| hits(term, header, &self.victim));
        self.prior.retain(|header| keeps(term, header));
        self.usual.retain(|header| hits(term, header, &self.victim));
    }

    fn total(&self) -> f64 {
        self.legitimate.len() as f64 + self.prior.len() as f64 * self.weight + self.usual.len() as f64 * USUAL_WEIGHT
    }

    fn matching(&self, term: &Term) -> f64 {
        let legitimate = self.legitimate.iter().filter(|header| hits(term, header, &self.victim)).count();
        let prior = self.prior.iter().filter(|header| keeps(term, header)).count();
        let usual = self.usual.iter().filter(|header| hits(term, header, &self.victim)).count();
        legitimate as f64 + prior as f64 * self.weight + usual as f64 * USUAL_WEIGHT
    }
}

/// Whether a term covers an everyday packet at some port of the victim. Which ports serve is the victim's own matter. A
/// range of ports is one that the victim does not use.
fn keeps(term: &Term, everyday: &Header) -> bool {
    term.field == Field::Dport && term.first == term.last || term.matches(everyday)
}

/// Whether the terms cover much of a group of everyday packets.
fn covers_a_group(terms: &[Term], prior: &[Vec<Header>]) -> bool {
    prior.iter().any(|headers| {
        let is_covered = |header: &&Header| terms.iter().all(|term| keeps(term, header));
        let covered = headers.iter().filter(is_covered).count();
        covered as f64 > headers.len() as f64 * PRIOR_MAX
    })
}

/// Whether the terms cover first packets of what the victim serves. They have a share of their own, because they are
/// few among all packets: a client that loses them cannot connect.
fn covers_first(terms: &[Term], examples: &Examples<'_>) -> bool {
    let covered = examples.first.iter().filter(|header| covers(terms, header)).count();
    covered as f64 > examples.first.len() as f64 * FIRST_MAX
}

/// FOIL's gain: the bits that the term saves for the packets of the attack that it keeps. `None` if it keeps too few,
/// or changes nothing.
fn gain(term: &Term, covered: &[&Header], spare: &Weighed<'_>, least: usize) -> Option<f64> {
    let kept = covered.iter().filter(|header| term.matches(header)).count();
    if kept < least {
        return None;
    }
    let (kept, before) = (kept as f64, covered.len() as f64);
    let (left, all) = (spare.matching(term), spare.total());
    // One more legitimate packet, so that a term that spares all does not have an infinite gain.
    let bits = |attack: f64, legitimate: f64| (attack / (attack + legitimate + 1.0)).log2();
    let gain = kept * (bits(kept, left) - bits(before, all));
    (left < all && gain > 0.0).then_some(gain)
}

/// Terms for fields that have none yet: frequent values, and ranges that hold most values.
fn candidates(covered: &[&Header], terms: &[Term], examples: &Examples<'_>, unused: &[Term]) -> Vec<Term> {
    let is_free = |field: Field| terms.iter().all(|term| term.field != field);
    let clients = Term { field: Field::Sport, first: 1024, last: 65535 };
    let mut found: Vec<Term> = unused.iter().chain([&clients]).filter(|term| is_free(term.field)).copied().collect();
    for field in Field::ALL.into_iter().filter(|field| is_free(*field)) {
        let may_name = |header: &&&Header| field != Field::Saddr || !(examples.is_known)(header);
        let mut values: Vec<u128> = covered.iter().filter(may_name).filter_map(|header| field.value(header)).collect();
        values.sort_unstable();
        found.extend(frequent(&values).into_iter().map(|value| Term { field, first: value, last: value }));
        if field == Field::Saddr {
            found.extend(nets(covered, &values, examples));
        }
        if field.is_ordered() && values.len() >= COVERED_MIN {
            let at = |share: f64| values[((values.len() - 1) as f64 * share).round() as usize];
            let ranges = [(0.0, 1.0), (0.01, 0.99), (0.0, 0.5), (0.5, 1.0), (0.0, 0.25), (0.75, 1.0)];
            let ranges = ranges.map(|(first, last)| Term { field, first: at(first), last: at(last) });
            found.extend(ranges.into_iter().filter(|term| term.first < term.last));
        }
    }
    found
}

/// Nets with many of the sorted sources and no customer. An attacker with a /64 has any number of sources.
fn nets(covered: &[&Header], sources: &[u128], examples: &Examples<'_>) -> Vec<Term> {
    let is_ipv6 = examples.victim.is_ipv6();
    let net = |source: u128| Prefix::at(Level::Net, is_ipv6, source);
    let mut distinct = sources.to_vec();
    distinct.dedup();
    let mut counts: HashMap<Prefix, usize> = HashMap::new();
    distinct.into_iter().for_each(|source| *counts.entry(net(source)).or_default() += 1);
    let mut counts: Vec<(usize, Prefix)> = counts.into_iter().map(|(prefix, count)| (count, prefix)).collect();
    counts.retain(|&(count, _)| count >= NET_SOURCES_MIN);
    counts.sort_unstable_by(|one, other| other.cmp(one));
    counts.truncate(VALUES_MAX);
    let has_customer = |prefix: &Prefix| {
        let in_net = |header: &&&Header| prefix.contains(header.is_ipv6, header.saddr);
        covered.iter().filter(in_net).any(|header| (examples.is_known)(header)) || (examples.is_known_net)(prefix)
    };
    let nets = counts.into_iter().map(|(_, prefix)| prefix).filter(|prefix| !has_customer(prefix));
    nets.map(|prefix| Term { field: Field::Saddr, first: prefix.address(), last: prefix.last() }).collect()
}

/// The most frequent of sorted values, those that occur more than once.
fn frequent(values: &[u128]) -> Vec<u128> {
    let mut counts: HashMap<u128, usize> = HashMap::new();
    values.iter().for_each(|&value| *counts.entry(value).or_default() += 1);
    let mut counts: Vec<(usize, u128)> = counts.into_iter().map(|(value, count)| (count, value)).collect();
    counts.retain(|&(count, _)| count > 1);
    counts.sort_unstable_by(|one, other| other.cmp(one));
    counts.into_iter().take(VALUES_MAX).map(|(_, value)| value).collect()
}

/// Adds what nearly all covered packets share. The signature stays as good against the attack and spares more.
fn specialise(terms: &mut Vec<Term>, covered: &[&Header]) {
    if covered.len() < SPECIAL_MIN {
        return;
    }
    for field in Field::ALL.into_iter().filter(|field| !matches!(field, Field::Saddr | Field::Ttl)) {
        if terms.iter().any(|term| term.field == field) {
            continue;
        }
        let mut counts: HashMap<u128, usize> = HashMap::new();
        covered
            .iter()
            .filter_map(|header| field.value(header))
            .for_each(|value| *counts.entry(value).or_default() += 1);
        let counts = counts.into_iter().filter(|&(value, _)| !(field == Field::Fragment && value == 0));
        let best = counts.max_by_key(|&(value, count)| (count, value));
        if let Some((value, count)) = best
            && count as f64 >= covered.len() as f64 * SPECIAL_SHARE
        {
            terms.push(Term { field, first: value, last: value });
        }
    }
}
