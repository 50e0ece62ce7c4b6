//! The packets that earlier rules of a direction decide. Only rules with one match are taken into account.

use super::satisfy::{Ranges, domains, guard};
use crate::checked::{Effect, LabelId, Match, Rule, TableId};
use crate::field::{Field, Guard, Subject};
use crate::source::Span;
use std::collections::{BTreeMap, HashMap};

/// Most rules that are kept for one table. Later ones are ignored.
const TABLE_RULES_MAX: usize = 64;

/// The rules that decide a packet.
#[derive(Clone, Copy)]
pub(super) struct Decided {
    /// The first of them.
    pub(super) span: Span,
    /// Whether there are several.
    pub(super) several: bool,
}

/// Consecutive decided values. The key of the map is the first, `last` the last.
struct Run {
    last: u128,
    by: Decided,
}

/// Key, table, and whether the test is negated.
type TableKey = (Field, TableId, bool);

/// A table match that decides packets: its labels and the rule.
type TableTest = (Option<Vec<LabelId>>, Span);

#[derive(Default)]
pub(super) struct Decisions {
    values: HashMap<Subject, BTreeMap<u128, Run>>,
    guards: BTreeMap<Guard, Span>,
    tables: HashMap<TableKey, Vec<TableTest>>,
}

impl Decisions {
    /// Records a rule, if it has a verdict and one match.
    pub(super) fn record(&mut self, rule: &Rule) {
        let (Some(Effect::Verdict(_)), [condition]) = (rule.effects.last(), &rule.matches[..]) else { return };
        match condition {
            Match::Guard(guard) => _ = self.guards.entry(*guard).or_insert(rule.span),
            Match::Table { key, table, labels, negated } => {
                let rules = self.tables.entry((*key, *table, *negated)).or_default();
                if rules.len() < TABLE_RULES_MAX {
                    rules.push((labels.clone(), rule.span));
                }
            }
            // A limit in a rule between may change the value.
            Match::Value { subject: Subject::Field(Field::MetaExceeded), .. } => {}
            Match::Value { subject, .. } => {
                // Wide fields with a mask have no domain, so they are not recorded.
                let Some(domains) = domains(&[condition]) else { return };
                let Some((_, ranges)) = domains.into_iter().find(|(known, _)| known == subject) else { return };
                let runs = self.values.entry(*subject).or_default();
                ranges.into_iter().for_each(|(first, last)| insert(runs, first, last, rule.span));
            }
        }
    }

    /// The earlier rules that decide every packet that the rule matches, if they do.
    pub(super) fn decided_before(&self, rule: &Rule) -> Option<Decided> {
        let all: Vec<&Match> = rule.matches.iter().collect();
        let values = || domains(&all)?.iter().find_map(|(subject, ranges)| covered(self.values.get(subject)?, ranges));
        let one = |span| Decided { span, several: false };
        let implied =
            |m: &Match| self.guards.iter().find(|&(&earlier, _)| guard(m).implies(earlier)).map(|(_, &span)| one(span));
        let guards = || rule.matches.iter().find_map(implied);
        let tables = || rule.matches.iter().find_map(|m| self.table(m).map(one));
        guards().or_else(tables).or_else(values)
    }

    fn table(&self, condition: &Match) -> Option<Span> {
        let Match::Table { key, table, labels, negated } = condition else { return None };
        let covers = |earlier: &Option<Vec<LabelId>>| match (earlier, labels, negated) {
            (None, _, false) => true,
            (Some(earlier), Some(labels), false) => labels.iter().all(|label| earlier.binary_search(label).is_ok()),
            // Fewer excluded labels match more packets.
            (Some(earlier), Some(labels), true) => earlier.iter().all(|label| labels.binary_search(label).is_ok()),
            (Some(_), None, true) | (None, None, true) => true,
            (Some(_), None, false) | (None, Some(_), true) => false,
        };
        let rules = self.tables.get(&(*key, *table, *negated))?;
        rules.iter().find(|(earlier, _)| covers(earlier)).map(|&(_, span)| span)
    }
}

/// Adds values and joins adjacent runs.
fn insert(runs: &mut BTreeMap<u128, Run>, mut first: u128, mut last: u128, span: Span) {
    let mut by = Decided { span, several: false };
    let touching: Vec<u128> = runs
        .range(..=last.saturating_add(1))
        .rev()
        .take_while(|(_, run)| run.last.saturating_add(1) >= first)
        .map(|(&start, _)| start)
        .collect();
    for start in touching {
        let run = runs.remove(&start).expect("the run was just seen");
        if run.last >= last && start <= first {
            // All values are known, so the earlier rule stays.
            runs.insert(start, run);
            return;
        }
        if !(first <= start && run.last <= last) || by.several {
            by = Decided { span: by.span.min(run.by.span), several: true };
        }
        first = first.min(start);
        last = last.max(run.last);
    }
    runs.insert(first, Run { last, by });
}

fn covered(runs: &BTreeMap<u128, Run>, ranges: &Ranges) -> Option<Decided> {
    let mut by: Option<Decided> = None;
    for &(first, last) in ranges {
        let (_, run) = runs.range(..=first).next_back().filter(|(_, run)| run.last >= last)?;
        by = Some(match by {
            Some(decided) if decided.span != run.by.span => {
                Decided { span: decided.span.min(run.by.span), several: true }
            }
            Some(decided) => decided,
            None => run.by,
        });
    }
    by
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::FileId;
    use std::collections::BTreeSet;

    #[test]
    fn runs_are_the_union() {
        let span = Span { file: FileId(0), start: 0, end: 1 };
        let mut seed = 7_u32;
        let mut next = |below: u32| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            u128::from((seed >> 16) % below)
        };
        for _ in 0..200 {
            let mut runs = BTreeMap::new();
            let mut slow = BTreeSet::new();
            for _ in 0..12 {
                let first = next(60);
                let last = first + next(8);
                insert(&mut runs, first, last, span);
                slow.extend(first..=last);
            }
            let fast: BTreeSet<u128> = runs.iter().flat_map(|(&first, run)| first..=run.last).collect();
            assert_eq!(fast, slow);
            assert_eq!(covered(&runs, &vec![(3, 9)]).is_some(), (3..=9).all(|v| slow.contains(&v)));
        }
    }
}
