//! What is left when no signature separates an attack: the posture of the operator, or a limit on a class.

use crate::action::{Measure, Prepared};
use crate::baseline::{Baselines, FACTOR, floor_pps};
use crate::class;
use crate::header::{Header, protocol, tcp};
use crate::measure::{Pickup, Window};
use crate::signature::{Field, Signature, Term};
use crate::victim::Suspect;
use weir_abi::PacketClass;

/// Only above this multiple of the threshold: the limit also hits legitimate packets.
const EXCESS: f64 = 10.0;
/// The multiple for SYNs to a SYN proxy, which hits no client that completes a handshake.
const PROXIED_EXCESS: f64 = 3.0;
/// Share of the sources without proof that are known: they are customers who get no answer.
const KNOWN: f64 = 0.3;
/// How often clients ask a host that is down, at most: once a connection, some repetitions (RFC 6298), and once more.
const REPEATED: f64 = 8.0;
/// A measure only if this share of the class has no proof, so that few legitimate packets compete for the limit.
const UNPROVEN: f64 = 0.9;
/// A class that has more than this share of the victim's usual packets is not limited.
const HARM_SHARE: f64 = 0.005;
/// The least limit of pings: more than people and monitors send.
const PINGS_PPS: f64 = 10.0;

/// An attack that no signature separates.
#[derive(Clone, Copy)]
pub struct Case<'a> {
    /// The victim and its excess.
    pub suspect: &'a Suspect,
    /// The window.
    pub window: &'a Window,
    /// Headers without proof.
    pub pool: &'a [Header],
    /// Number of headers in `pool` whose sources are known to be real.
    pub known: usize,
}

/// What the last resort is.
#[derive(Clone, Debug, PartialEq)]
pub enum Resort {
    /// The attack is only reported. SYNs have no proof yet, so a limit on them would keep new customers away for longer
    /// than the attack. So would a limit on a class whose packets mostly have proof.
    Report,
    /// A measure. A limit passes what is usual.
    Take(Measure),
}

/// Whether a suspect has so much more than its threshold that something is done or said without a signature.
pub fn is_bad(suspect: &Suspect) -> bool {
    let worst = suspect.evidence.first();
    worst.is_some_and(|worst| worst.threshold.is_some_and(|threshold| worst.value >= threshold * EXCESS))
}

/// What is done about a suspect, if the situation is bad enough.
pub fn measure(case: &Case<'_>, baselines: &Baselines, prepared: &Prepared) -> Option<Resort> {
    let Case { suspect, window, pool, .. } = *case;
    let counts = window.counts_of(suspect.prefix)?;
    let worst = suspect.evidence.first()?;
    if *prepared == Prepared::SynProxy
        && let Some(pickup) = syn_proxy(case, baselines)
    {
        return Some(Resort::Take(Measure::SynProxy(suspect.prefix, pickup)));
    }
    let class = suspect.class as usize;
    let is_unproven = counts.unproven[class] as f64 >= counts.packets[class] as f64 * UNPROVEN;
    // A limit on pings does no harm: no service needs them.
    let pings = pings(suspect, pool);
    let excess = if pings.is_some() { 1.0 } else { EXCESS };
    if !is_unproven {
        return is_bad(suspect).then_some(Resort::Report);
    }
    if worst.value < worst.threshold? * excess {
        return None;
    }
    if let Some(terms) = pings {
        let limit_pps = (baselines.of(&suspect.prefix).packets_pps(suspect.class) * FACTOR).max(PINGS_PPS);
        return Some(Resort::Take(Measure::Limit(Signature::new(suspect.prefix, terms), limit_pps)));
    }
    if let Prepared::Posture(posture) = prepared {
        return Some(Resort::Take(Measure::Posture(posture.to_owned())));
    }
    let usual = baselines.of(&suspect.prefix);
    let usual_pps = usual.packets_pps(suspect.class);
    let Some((terms, classes)) = class_terms(suspect.class, suspect.prefix.is_ipv6()) else {
        return Some(Resort::Report);
    };
    // A limit that an attack fills passes next to nothing else.
    if usual.uses(classes, HARM_SHARE) {
        return Some(Resort::Report);
    }
    let limit_pps = (usual_pps * FACTOR).max(floor_pps(&suspect.prefix) / FACTOR);
    Some(Resort::Take(Measure::Limit(Signature::new(suspect.prefix, terms), limit_pps)))
}

/// Whether a SYN proxy helps, and how strict it is. SYNs of customers pass, because they complete the handshake, so the
/// proxy may be wrong about SYNs. Other packets it refuses, and connections that move here begin with them.
fn syn_proxy(case: &Case<'_>, baselines: &Baselines) -> Option<Pickup> {
    let Case { suspect, window, pool, known } = *case;
    let worst = suspect.evidence.first()?;
    let counts = window.counts_of(suspect.prefix)?;
    if suspect.class == PacketClass::Syn {
        // Clients of a host that is down repeat their SYNs.
        let syn = PacketClass::Syn;
        let usual_pps = baselines.of(&suspect.prefix).packets_pps(syn);
        let is_repeated = (counts.packets[syn as usize] as f64 / window.seconds()) < usual_pps * REPEATED;
        let are_customers = known as f64 >= pool.len() as f64 * KNOWN;
        let is_down = window.is_two_way && counts.syn_acks == 0 && (is_repeated || are_customers);
        return (!is_down && worst.value >= worst.threshold? * PROXIED_EXCESS).then_some(Pickup::On);
    }
    (class::is_tcp(suspect.class) && window.is_two_way && is_bad(suspect)).then_some(Pickup::Off)
}

/// The terms of echo requests or replies, if most of the pool are.
fn pings(suspect: &Suspect, pool: &[Header]) -> Option<Vec<Term>> {
    if suspect.class != PacketClass::Icmp {
        return None;
    }
    let is_ipv6 = suspect.prefix.is_ipv6();
    let (number, types) = if is_ipv6 { (protocol::ICMP6, [128, 129]) } else { (protocol::ICMP, [8, 0]) };
    let term = |field, value: u8| Term { field, first: value.into(), last: value.into() };
    let icmp = pool.iter().filter(|header| class::of(header) == PacketClass::Icmp);
    let count = icmp.clone().count();
    let most = types.into_iter().find(|&kind| {
        let of_kind = icmp.clone().filter(|header| header.icmp_type == kind).count();
        count > 0 && of_kind as f64 >= count as f64 * UNPROVEN
    })?;
    Some(vec![term(Field::Protocol, number), term(Field::IcmpType, most)])
}

/// The terms that describe a class, and the classes that they cover, if it can be limited as a whole.
fn class_terms(class: PacketClass, is_ipv6: bool) -> Option<(Vec<Term>, &'static [PacketClass])> {
    let term = |field, value: u8| Term { field, first: value.into(), last: value.into() };
    let protocol = |number| term(Field::Protocol, number);
    let flags = |flags| vec![protocol(protocol::TCP), term(Field::Flags, flags)];
    match class {
        PacketClass::SynAck => Some((flags(tcp::SYN | tcp::ACK), &[PacketClass::SynAck])),
        PacketClass::Rst => Some((flags(tcp::RST), &[PacketClass::Rst])),
        PacketClass::UdpService | PacketClass::Udp => {
            Some((vec![protocol(protocol::UDP)], &[PacketClass::UdpService, PacketClass::Udp]))
        }
        PacketClass::Icmp if !is_ipv6 => Some((vec![protocol(protocol::ICMP)], &[PacketClass::Icmp])),
        PacketClass::Fragment => Some((vec![term(Field::Fragment, 2)], &[PacketClass::Fragment])),
        // Hosts of IPv6 need ICMP to find each other.
        PacketClass::Syn | PacketClass::Tcp | PacketClass::Icmp | PacketClass::Other => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{Case, Resort, measure};
    use crate::action::Prepared;
    use crate::baseline::Baselines;
    use crate::measure::counts::Counts;
    use crate::measure::{Extractor, WINDOW_NS};
    use crate::prefix::Prefix;
    use crate::victim::{Evidence, Suspect};
    use weir_abi::PacketClass;

    /// What is done about datagrams with and without proof, at so many times the threshold.
    fn of_datagrams(unproven: u64, proven: u64, times: f64) -> Option<Resort> {
        let prefix = Prefix::of(false, 0xc000_0201, 32);
        let class = PacketClass::Udp;
        let mut counts = Counts::new(prefix);
        counts.unproven[class as usize] = unproven;
        counts.packets[class as usize] = unproven + proven;
        let value = 100.0 * times;
        let evidence = vec![Evidence { measure: String::new(), value, usual: 0.0, threshold: Some(100.0) }];
        let suspect = Suspect { prefix, class, unproven_pps: value, is_victim: true, is_exact: false, evidence };
        let mut window = Extractor::new(Vec::new(), 1, 0).close(WINDOW_NS);
        window.counts = vec![counts];
        let case = Case { suspect: &suspect, window: &window, pool: &[], known: 0 };
        measure(&case, &Baselines::default(), &Prepared::Posture("closed".to_owned()))
    }

    #[test]
    fn a_class_with_proven_packets_is_reported_and_not_limited() {
        assert!(matches!(of_datagrams(1000, 50, 12.0), Some(Resort::Take(_))));
        assert_eq!(of_datagrams(1000, 500, 12.0), Some(Resort::Report));
        assert_eq!([of_datagrams(1000, 500, 8.0), of_datagrams(1000, 50, 8.0)], [None, None]);
    }
}
