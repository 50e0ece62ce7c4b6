//! Checks `inside { ... }`, and makes rules of it.
//!
//! A packet from outside whose source is inside is forged, or has lost its way (RFC 2827, RFC 3704). Each statement
//! becomes ordinary rules in front of the upstream rules of every posture, so every engine, bundle and card has it.
//! They have the statement's place and text.

use super::observe::Ranges;
use super::{Check, Checker, SET_RANGES_MAX, WIDE_SET_RANGES_MAX};
use crate::catalog::Family;
use crate::checked::{Effect, Fallback, Inside, Match, Posture, Rule, Table, ValueSet};
use crate::diag::Diagnostic;
use crate::field::{Field, Subject};
use crate::source::Span;
use crate::syntax::tree::{InsideMember, Item, Name};
use crate::tracking::Tracking;
use weir_abi::{Action, Reason};

/// IPv4 sources that no prefix makes inside: unspecified, link-local, multicast and broadcast addresses (RFC 6890).
const NEVER_IPV4: [(u128, u128); 4] =
    [(0, 0), (0xa9fe_0000, 0xa9fe_ffff), (0xe000_0000, 0xefff_ffff), (0xffff_ffff, 0xffff_ffff)];
/// IPv6 sources that no prefix makes inside (RFC 4291).
const NEVER_IPV6: [(u128, u128); 3] = [(0, 0), (0xfe80 << 112, (0xfec0 << 112) - 1), (0xff00 << 112, u128::MAX)];

/// The sources of a family.
#[derive(Clone, Copy)]
struct Source {
    key: Field,
    /// Sources that are never inside.
    never: &'static [(u128, u128)],
}

const FAMILIES: [Source; 2] =
    [Source { key: Field::IpSaddr, never: &NEVER_IPV4 }, Source { key: Field::Ip6Saddr, never: &NEVER_IPV6 }];

/// Whether a match holds outside its set.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Negated {
    No,
    Yes,
}

impl Checker<'_> {
    /// Reads all `inside` items. Each makes its own rules.
    pub(super) fn inside(&mut self, tables: &[Table]) -> Option<Inside> {
        let mut inside: Option<Inside> = None;
        let action = match self.spoofed {
            Some((Fallback::Rules, _)) => None,
            Some((Fallback::Decide(action), _)) => Some(action),
            None => Some(Action::Drop),
        };
        for item in self.items.clone() {
            let Item::Inside(statement) = item else { continue };
            let span = statement.span;
            let whole = inside.get_or_insert_with(|| Inside {
                span,
                sets: Default::default(),
                has_tables: false,
                rules: vec![],
            });
            let (mut ranges, mut of_tables) = (Ranges::default(), Vec::new());
            for member in &statement.members {
                // What is wrong has been reported.
                match member {
                    InsideMember::Addresses(value) => _ = self.inside_ranges(value, &mut ranges),
                    InsideMember::Table(name) => of_tables.extend(self.inside_table(name, tables)),
                }
            }
            let sets = ranges.map(|ranges| ValueSet::new(ranges.iter().map(|range| (range.first, range.last))));
            self.bound_inside(&sets, span);
            let sources = sets.iter().zip(FAMILIES);
            let sets = sources.map(|(set, source)| without_never(set, source)).collect::<Vec<_>>();
            whole.has_tables |= !of_tables.is_empty();
            if of_tables.is_empty() && sets.iter().all(|set| set.ranges().is_empty()) && !self.has_errors() {
                let help = "unspecified, link-local, multicast and broadcast sources never are";
                self.report(Diagnostic::error("E0330", span, "none of these addresses is inside").help(help));
            }
            if let Some(action) = action {
                let of_sets = sets.iter().zip(FAMILIES).filter(|(set, _)| !set.ranges().is_empty());
                let of_sets = of_sets.map(|(set, source)| vec![is_in(source.key, set.clone(), Negated::No)]);
                let rule = |matches| Rule { span, matches, effects: vec![Effect::Verdict(action)] };
                whole.rules.extend(of_sets.chain(of_tables).map(rule));
            }
            for (all, set) in whole.sets.iter_mut().zip(sets) {
                *all = ValueSet::new(all.ranges().iter().chain(set.ranges()).copied());
            }
        }
        if inside.is_none()
            && let Some((Fallback::Decide(_), span)) = self.spoofed
        {
            let message = "`spoofed` needs to know which sources are inside";
            let help = "write `inside { 192.0.2.0/24 }` with the prefixes that you protect";
            self.report(Diagnostic::error("E0330", span, message).help(help));
        }
        inside
    }

    /// The matches of a rule for the sources in a table.
    fn inside_table(&mut self, name: &Name, tables: &[Table]) -> Check<Vec<Match>> {
        let Some(declared) = self.tables.get_mut(name.text.as_str()) else {
            let known: Vec<&str> = self.tables.keys().copied().collect();
            let message = format!("there is no table `{}`", name.text);
            let help = format!("declare it: `table {} {{ type ipv4; ... }}`", name.text);
            let diagnostic = Diagnostic::error("E0201", name.span, message).help(help);
            return Err(self.unknown(diagnostic, &name.text, "@", known.into_iter()));
        };
        declared.used = true;
        let table = declared.target;
        let Source { key, never, .. } = FAMILIES[usize::from(tables[usize::from(table.0)].family == Family::Ipv6)];
        let never = ValueSet::new(never.iter().copied());
        Ok(vec![is_in(key, never, Negated::Yes), Match::Table { key, table, labels: None, negated: false }])
    }

    fn bound_inside(&mut self, sets: &[ValueSet; 2], span: Span) {
        let [ipv4, ipv6] = sets.each_ref().map(|set| set.ranges().len());
        if ipv4 > SET_RANGES_MAX || ipv6 > WIDE_SET_RANGES_MAX {
            let message =
                format!("more than {SET_RANGES_MAX} ranges of IPv4 or {WIDE_SET_RANGES_MAX} of IPv6 are inside");
            self.report(Diagnostic::error("E0330", span, message).help("use a table: `inside { @customers }`"));
        }
    }

    /// Reports more rules than have a number. The rules of `inside` count in every posture.
    pub(super) fn bound_rules(&mut self, inside: Option<&Inside>, postures: &[Posture]) {
        let chains = postures.iter().flat_map(|posture| [&posture.upstream, &posture.downstream]).flatten();
        let rules: usize = chains.map(Vec::len).sum();
        let place = inside.map(|inside| inside.span).or_else(|| postures.last().map(|posture| posture.span));
        if let Some(span) = place.filter(|_| rules > Reason::RULES_MAX && !self.has_errors()) {
            let message = format!("all postures have {rules} rules; a policy has at most {}", Reason::RULES_MAX);
            let help = "join rules that differ only in an address into one with a table";
            self.report(Diagnostic::error("E0314", span, message).help(help));
        }
    }

    /// Warns of a policy that tracks and does not say which sources are inside. Then an outside sender with a forged
    /// inside address can play both sides of a connection.
    pub(super) fn warn_of_missing_inside(&mut self, tracking: Option<&(Tracking, Span)>, postures: &[Posture]) {
        let has_upstream = postures.iter().any(|posture| posture.upstream.is_some());
        let is_said = self.spoofed.is_some() || self.items.iter().any(|item| matches!(item, Item::Inside(_)));
        let Some((_, span)) = tracking.filter(|_| has_upstream && !is_said) else { return };
        let message = "the policy tracks connections, and does not say which sources are inside";
        self.warn(
            Diagnostic::warning("W0417", *span, message)
                .label("packets from outside with an inside source are tracked like those of the inside")
                .help("write `inside { 192.0.2.0/24 }` with the prefixes that you protect, or `defaults { spoofed rules }`"),
        );
    }
}

/// Puts the rules of `inside` in front of the upstream rules of every posture. A named posture without upstream rules
/// inherits the upstream rules of the base policy, which contain them.
pub(super) fn put_in_front(inside: Option<&Inside>, postures: &mut [Posture]) {
    let Some(inside) = inside.filter(|inside| !inside.rules.is_empty()) else { return };
    for posture in postures {
        match &mut posture.upstream {
            Some(rules) => _ = rules.splice(0..0, inside.rules.iter().cloned()),
            None if posture.name.is_none() => posture.upstream = Some(inside.rules.clone()),
            None => {}
        }
    }
}

fn is_in(key: Field, set: ValueSet, negated: Negated) -> Match {
    Match::Value { subject: Subject::Field(key), mask: None, set, negated: negated == Negated::Yes }
}

/// A set without the sources that are never inside.
fn without_never(set: &ValueSet, source: Source) -> ValueSet {
    let mut left = set.ranges().to_vec();
    for &(first, last) in source.never {
        let parts = |(from, to): (u128, u128)| {
            let before = (from < first).then(|| (from, to.min(first - 1)));
            let after = (to > last).then(|| (from.max(last + 1), to));
            before.into_iter().chain(after)
        };
        left = left.into_iter().flat_map(parts).collect();
    }
    ValueSet::new(left)
}

#[cfg(test)]
mod tests {
    use super::{FAMILIES, NEVER_IPV4, without_never};
    use crate::checked::ValueSet;

    #[test]
    fn some_sources_are_never_inside() {
        let all = without_never(&ValueSet::new([(0, 0xffff_ffff)]), FAMILIES[0]);
        for (first, last) in NEVER_IPV4 {
            assert!(!all.contains(first) && !all.contains(last));
            assert!(first == 0 || all.contains(first - 1) || first == 0xffff_ffff);
            assert!(last >= 0xefff_ffff || all.contains(last + 1));
        }
        let usual = ValueSet::new([(0xc000_0200, 0xc000_02ff)]);
        assert_eq!(without_never(&usual, FAMILIES[0]), usual);
        let ipv6 = without_never(&ValueSet::new([(0, u128::MAX)]), FAMILIES[1]);
        assert_eq!(ipv6.ranges(), [(1, (0xfe80 << 112) - 1), (0xfec0 << 112, (0xff00 << 112) - 1)]);
        let multicast = ValueSet::new([(0xe000_0001, 0xe000_00ff)]);
        assert!(without_never(&multicast, FAMILIES[0]).ranges().is_empty());
    }
}
