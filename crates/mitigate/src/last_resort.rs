//! What is left when no signature separates an attack: the posture of the operator, or a limit on a class.

use crate::action::Measure;
use crate::baseline::{Baselines, FACTOR, floor_pps};
use crate::class::Class;
use crate::header::{protocol, tcp};
use crate::measure::counts::Counts;
use crate::signature::{Field, Signature, Term};
use crate::victim::Suspect;

/// Only above this multiple of the threshold: the limit also hits legitimate packets.
const EXCESS: f64 = 10.0;
/// Only if this share of the class has no proof, so that few legitimate packets compete for the limit.
const UNPROVEN: f64 = 0.9;

/// The measure against a suspect, if the situation is bad enough. The limit passes what is usual.
pub fn measure(suspect: &Suspect, counts: &Counts, baselines: &Baselines, posture: Option<&str>) -> Option<Measure> {
    let worst = suspect.evidence.first()?;
    let class = suspect.class as usize;
    let is_unproven = counts.unproven[class] as f64 >= counts.packets[class] as f64 * UNPROVEN;
    if worst.value < worst.threshold? * EXCESS || !is_unproven {
        return None;
    }
    if let Some(posture) = posture {
        return Some(Measure::Posture(posture.to_owned()));
    }
    let usual_pps = baselines.of(&suspect.prefix).packets_pps(suspect.class);
    let terms = class_terms(suspect.class, suspect.prefix.is_ipv6())?;
    let limit_pps = (usual_pps * FACTOR).max(floor_pps(&suspect.prefix) / FACTOR);
    Some(Measure::Limit(Signature { victim: suspect.prefix, terms }, limit_pps))
}

/// The terms that describe a class, if it can be limited as a whole.
fn class_terms(class: Class, is_ipv6: bool) -> Option<Vec<Term>> {
    let term = |field, value: u8| Term { field, first: value.into(), last: value.into() };
    let protocol = |number| term(Field::Protocol, number);
    let flags = |flags| vec![protocol(protocol::TCP), term(Field::Flags, flags)];
    match class {
        Class::Syn => Some(flags(tcp::SYN)),
        Class::SynAck => Some(flags(tcp::SYN | tcp::ACK)),
        Class::Rst => Some(flags(tcp::RST)),
        Class::UdpService | Class::Udp => Some(vec![protocol(protocol::UDP)]),
        Class::Icmp => Some(vec![protocol(if is_ipv6 { protocol::ICMP6 } else { protocol::ICMP })]),
        Class::Fragment => Some(vec![term(Field::Fragment, 2)]),
        Class::Tcp | Class::Other => None,
    }
}
