//! Finds out whether all matches of a rule can hold for one packet, from the values that each match allows.

use super::Checker;
use crate::checked::{Match, ValueSet};
use crate::diag::Diagnostic;
use crate::field::{Field, Guard, Subject};
use crate::source::Span;

/// Inclusive ranges, sorted and disjoint.
pub(super) type Ranges = Vec<(u128, u128)>;

/// Widest field whose masked values are enumerated, bits. In a wider field each masked match is checked alone.
const ENUMERATED_BITS_MAX: u8 = 8;

/// The authentication header in IPv4. The upper-layer protocol follows it, so `ip protocol` and `meta l4proto` differ.
const PROTOCOL_AH: u128 = 51;

/// The values that the matches allow for each subject that they or their guards restrict. `None` if a match can never
/// hold, or if two matches contradict each other.
pub(super) fn domains(matches: &[&Match]) -> Option<Vec<(Subject, Ranges)>> {
    let mut domains: Vec<(Subject, Ranges)> = Vec::new();
    for condition in matches {
        for (subject, set) in implied(guard(condition)) {
            narrow(&mut domains, subject, set);
        }
        let Match::Value { subject, mask, set, negated } = condition else { continue };
        let max = u128::MAX >> (128 - subject.bits());
        let allowed = if *negated { complement(set.ranges(), max) } else { set.ranges().to_vec() };
        match *mask {
            None => narrow(&mut domains, *subject, allowed),
            Some(mask) if subject.bits() <= ENUMERATED_BITS_MAX => {
                let holds = |value: &u128| allowed.iter().any(|&(a, b)| (a..=b).contains(&(value & mask)));
                let values = ValueSet::new((0..=max).filter(holds).map(|value| (value, value)));
                narrow(&mut domains, *subject, values.ranges().to_vec());
            }
            Some(mask) => {
                if !allowed.iter().any(|&(a, b)| next_submask(a, mask).is_some_and(|value| value <= b)) {
                    return None;
                }
            }
        }
    }
    let possible = domains.iter().all(|(_, ranges)| !ranges.is_empty())
        && protocols_agree(&domains)
        && !tables_contradict(matches);
    possible.then_some(domains)
}

/// The guard that a match implies.
pub(super) fn guard(condition: &Match) -> Guard {
    match condition {
        Match::Guard(guard) => *guard,
        Match::Value { subject, .. } => subject.guard(),
        Match::Table { key, .. } => key.guard(),
    }
}

fn implied(guard: Guard) -> Vec<(Subject, Ranges)> {
    let family = |number| (Subject::Field(Field::MetaNfproto), vec![(number, number)]);
    let protocol = |number| (Subject::Field(Field::MetaL4proto), vec![(number, number)]);
    // A later fragment has no transport header.
    let header = || (Subject::Field(Field::MetaFragment), vec![(0, 1)]);
    match guard {
        Guard::Any | Guard::Vlan | Guard::QinQ | Guard::Ip => Vec::new(),
        Guard::Ipv4 => vec![family(2)],
        Guard::Ipv6 => vec![family(10)],
        Guard::Transport => vec![header()],
        Guard::Tcp => vec![protocol(6), header()],
        Guard::Udp => vec![protocol(17), header()],
        Guard::Icmp => vec![family(2), protocol(1), header()],
        Guard::Icmp6 => vec![family(10), protocol(58), header()],
        Guard::Ports => {
            let ports = [6, 17, 33, 132, 136].map(|number| (number, number)).to_vec();
            vec![(Subject::Field(Field::MetaL4proto), ports), header()]
        }
    }
}

fn narrow(domains: &mut Vec<(Subject, Ranges)>, subject: Subject, ranges: Ranges) {
    match domains.iter_mut().find(|(known, _)| *known == subject) {
        Some((_, domain)) => *domain = intersection(domain, &ranges),
        None => domains.push((subject, ranges)),
    }
}

fn protocols_agree(domains: &[(Subject, Ranges)]) -> bool {
    let allowed =
        |field| domains.iter().find(|(subject, _)| *subject == Subject::Field(field)).map(|(_, ranges)| ranges);
    match (allowed(Field::IpProtocol), allowed(Field::MetaL4proto)) {
        (Some(ip), Some(l4)) => {
            ip.iter().any(|&(a, b)| (a..=b).contains(&PROTOCOL_AH)) || !intersection(ip, l4).is_empty()
        }
        _ => true,
    }
}

/// `ip saddr @bad ip saddr != @bad`
fn tables_contradict(matches: &[&Match]) -> bool {
    let contradict = |a: &Match, b: &Match| match (a, b) {
        (
            Match::Table { key, table, labels, negated },
            Match::Table { key: key2, table: table2, labels: labels2, negated: negated2 },
        ) => key == key2 && table == table2 && labels == labels2 && negated != negated2,
        _ => false,
    };
    matches.iter().enumerate().any(|(i, a)| matches[..i].iter().any(|b| contradict(a, b)))
}

pub(super) fn complement(ranges: &[(u128, u128)], max: u128) -> Ranges {
    let mut outside = Vec::with_capacity(ranges.len() + 1);
    let mut next = Some(0);
    for &(first, last) in ranges {
        if let Some(start) = next.filter(|&start| start < first) {
            outside.push((start, first - 1));
        }
        next = last.checked_add(1).filter(|&start| start <= max);
    }
    outside.extend(next.map(|start| (start, max)));
    outside
}

fn intersection(a: &[(u128, u128)], b: &[(u128, u128)]) -> Ranges {
    let (mut i, mut j) = (0, 0);
    let mut both = Vec::new();
    while i < a.len() && j < b.len() {
        let (first, last) = (a[i].0.max(b[j].0), a[i].1.min(b[j].1));
        if first <= last {
            both.push((first, last));
        }
        if a[i].1 < b[j].1 {
            i += 1;
        } else {
            j += 1;
        }
    }
    both
}

/// The smallest number that is at least `start` and has no bits outside the mask.
fn next_submask(start: u128, mask: u128) -> Option<u128> {
    let outside = start & !mask;
    if outside == 0 {
        return Some(start);
    }
    let above = u128::MAX.checked_shl(128 - outside.leading_zeros()).unwrap_or(0);
    let free = mask & !start & above;
    let carry = free & free.wrapping_neg();
    (carry != 0).then(|| start & !(carry - 1) | carry)
}

impl Checker<'_> {
    /// Warns about a rule whose matches cannot all hold. `spans[i]` is the text of `matches[i]`.
    pub(super) fn warn_of_contradiction(&mut self, rule: Span, matches: &[Match], spans: &[Span]) {
        let all: Vec<&Match> = matches.iter().collect();
        if domains(&all).is_some() {
            return;
        }
        let warning = |span| Diagnostic::warning("W0401", span, "this rule can never match");
        let alone = (0..matches.len()).find(|&i| domains(&all[i..=i]).is_none());
        if let Some(i) = alone {
            self.warn(warning(spans[i]).label("no packet matches this"));
            return;
        }
        let pairs = (0..matches.len()).flat_map(|j| (0..j).map(move |i| (i, j)));
        let pair = pairs.into_iter().find(|&(i, j)| domains(&[&matches[i], &matches[j]]).is_none());
        self.warn(match pair {
            Some((i, j)) => warning(spans[j])
                .label("no packet matches this")
                .note(spans[i], "and this")
                .help("all matches of a rule must hold: write two rules if one match is enough"),
            None => warning(rule)
                .label("these matches exclude each other")
                .help("all matches of a rule must hold: write two rules if one match is enough"),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn submasks() {
        for mask in 0..64_u128 {
            for start in 0..64_u128 {
                let slow = (start..64).find(|value| value & !mask == 0);
                assert_eq!(next_submask(start, mask), slow, "{start} {mask}");
            }
        }
        assert_eq!(next_submask(u128::MAX, 1), None);
        assert_eq!(next_submask(1 << 127, u128::MAX >> 1), None);
    }

    #[test]
    fn set_algebra() {
        assert_eq!(complement(&[(0, 4), (7, 9)], 10), [(5, 6), (10, 10)]);
        assert_eq!(complement(&[], 10), [(0, 10)]);
        assert_eq!(complement(&[(0, u128::MAX)], u128::MAX), []);
        assert_eq!(intersection(&[(0, 4), (6, 9)], &[(3, 7)]), [(3, 4), (6, 7)]);
    }
}
