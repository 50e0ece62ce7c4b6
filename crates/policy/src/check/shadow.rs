//! What earlier rules of a direction have already decided: the values for which a rule with one match gave a verdict.

use super::satisfy::{Ranges, domains, guard};
use crate::checked::{Effect, LabelId, Match, Rule, TableId};
use crate::field::{Field, Guard, Subject};
use crate::source::Span;
use std::collections::{BTreeMap, HashMap};

/// Rules remembered for one table; the next ones are not looked for.
const TABLE_RULES_MAX: usize = 64;

/// Which rule decided.
#[derive(Clone, Copy)]
pub(super) struct Decided {
    /// The first of the rules.
    pub(super) span: Span,
    /// Whether it took several.
    pub(super) several: bool,
}

/// A run of values that ends at `last`; its start is the key of the map.
struct Run {
    last: u128,
    by: Decided,
}

/// Key, table, and whether the test is negated.
type TableKey = (Field, TableId, bool);

/// A test of a table that decided: its labels and the rule's place.
type TableTest = (Option<Vec<LabelId>>, Span);

#[derive(Default)]
pub(super) struct Decisions {
    values: HashMap<Subject, BTreeMap<u128, Run>>,
    guards: BTreeMap<Guard, Span>,
    tables: HashMap<TableKey, Vec<TableTest>>,
}

impl Decisions {
    /// Takes a rule in, if it decides by one match.
    pub(super) fn take(&mut self, rule: &Rule) {
        let (Some(Effect::Verdict(_)), [condition]) = (rule.effects.last(), &rule.matches[..]) else { return };
        match condition {
            Match::Guard(guard) => _ = self.guards.entry(*guard).or_insert(rule.span),
            Match::Table { key, table, labels, negated } => {
                let rules = self.tables.entry((*key, *table, *negated)).or_default();
                if rules.len() < TABLE_RULES_MAX {
                    rules.push((labels.clone(), rule.span));
                }
            }
            // A limit in between may change the answer.
            Match::Value { subject: Subject::Field(Field::MetaExceeded), .. } => {}
            Match::Value { subject, .. } => {
                // Wide fields under a mask are not in the domains: nothing is remembered of them.
                let Some(domains) = domains(&[condition]) else { return };
                let Some((_, ranges)) = domains.into_iter().find(|(known, _)| known == subject) else { return };
                let runs = self.values.entry(*subject).or_default();
                ranges.into_iter().for_each(|(first, last)| insert(runs, first, last, rule.span));
            }
        }
    }

    /// What decides all packets that the rule matches, before it.
    pub(super) fn before(&self, rule: &Rule) -> Option<Decided> {
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
            // Outside few labels is more than outside many.
            (Some(earlier), Some(labels), true) => earlier.iter().all(|label| labels.binary_search(label).is_ok()),
            (Some(_), None, true) | (None, None, true) => true,
            (Some(_), None, false) | (None, Some(_), true) => false,
        };
        let rules = self.tables.get(&(*key, *table, *negated))?;
        rules.iter().find(|(earlier, _)| covers(earlier)).map(|&(_, span)| span)
    }
}

/// Adds values, joining runs that touch.
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
            // Nothing new: the rule that was first keeps it.
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
