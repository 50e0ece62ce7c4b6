//! Counters of one direction, summed up by verdict, rule, reason and table.

use crate::report::{self, Decided};
use std::collections::{BTreeMap, HashSet};
use weir_abi::{Action, Counter, Reason};
use weir_control::{GONE, Outcome, RuleCount, TableCount, Tally};
use weir_policy::ir::Program;

/// Rules of policies that are gone that a tally still lists one by one.
pub const GONE_RULES_MAX: usize = 1024;

/// Rules and tables of the policies that stand ready.
#[derive(Default)]
pub struct Standing<'a> {
    rules: HashSet<(&'a str, &'a str)>,
    places: HashSet<&'a str>,
    tables: HashSet<&'a str>,
}

impl<'a> Standing<'a> {
    /// Those of the programs.
    pub fn of(programs: impl IntoIterator<Item = &'a Program>) -> Self {
        let mut standing = Standing::default();
        for program in programs {
            standing.rules.extend(program.rules.iter().map(|rule| (rule.at.as_str(), rule.text.as_str())));
            standing.places.extend(program.rules.iter().map(|rule| rule.at.as_str()));
            standing.tables.extend(program.slots.iter().flat_map(|slot| slot.tables()).map(String::as_str));
        }
        standing
    }

    fn has_rule(&self, rule: &RuleCount) -> bool {
        self.rules.contains(&(rule.at.as_str(), rule.rule.as_str()))
    }

    /// Reasons that are no rule's stay as well.
    fn has_reason(&self, reason: &str) -> bool {
        self.places.contains(reason) || (0..Reason::RULE_BASE).any(|n| Reason(n).builtin_name() == Some(reason))
    }
}

/// The verdicts by one program's counters.
pub fn outcome(program: &Program, counters: &[Counter]) -> Outcome {
    let mut outcome = Outcome::default();
    for Decided { action, counter, .. } in report::decided(program, counters) {
        outcome.packets += counter.packets;
        outcome.bytes += counter.bytes;
        *match action {
            Action::Accept => &mut outcome.passed,
            Action::Drop => &mut outcome.dropped,
            Action::Divert => &mut outcome.diverted,
        } += counter.packets;
    }
    outcome
}

/// Everything by one program's counters, which do not say what was sampled.
pub fn tally(program: &Program, counters: &[Counter]) -> Tally {
    let Outcome { packets, bytes, passed, dropped, diverted } = outcome(program, counters);
    Tally {
        packets,
        bytes,
        passed,
        dropped,
        diverted,
        sampled: 0,
        rules: report::rule_counts(program, counters),
        reasons: report::reason_counts(program, counters),
        tables: table_counts(program, counters),
    }
}

/// Lists nothing one by one any more of policies that are gone, if there are more such rules than [`GONE_RULES_MAX`]:
/// policies may be loaded for ever. What they counted stays in the sums.
pub fn forget(tally: &mut Tally, standing: &Standing<'_>) {
    if tally.rules.iter().filter(|rule| !standing.has_rule(rule)).count() <= GONE_RULES_MAX {
        return;
    }
    let zero = RuleCount { at: GONE.to_owned(), rule: GONE.to_owned(), packets: 0, bytes: 0 };
    let (mut rules, gone) = parted(&mut tally.rules, |rule| standing.has_rule(rule));
    rules.push(gone.into_iter().fold(zero, |sum, rule| RuleCount {
        packets: sum.packets + rule.packets,
        bytes: sum.bytes + rule.bytes,
        ..sum
    }));
    tally.rules = rules;
    let zero = TableCount { table: GONE.to_owned(), packets: 0, bytes: 0 };
    let (mut tables, gone) = parted(&mut tally.tables, |table| standing.tables.contains(table.table.as_str()));
    tables.push(gone.into_iter().fold(zero, |sum, table| TableCount {
        packets: sum.packets + table.packets,
        bytes: sum.bytes + table.bytes,
        ..sum
    }));
    tally.tables = tables;
    let (stay, gone): (BTreeMap<_, _>, BTreeMap<_, _>) =
        std::mem::take(&mut tally.reasons).into_iter().partition(|(reason, _)| standing.has_reason(reason));
    tally.reasons = stay;
    tally.reasons.insert(GONE.to_owned(), gone.into_values().sum());
}

/// Those that stay, and those that do not.
fn parted<T>(all: &mut Vec<T>, stays: impl Fn(&T) -> bool) -> (Vec<T>, Vec<T>) {
    std::mem::take(all).into_iter().partition(stays)
}

/// Every table of the program, in order of its slots.
fn table_counts(program: &Program, counters: &[Counter]) -> Vec<TableCount> {
    let names = program.slots.iter().flat_map(|slot| slot.tables());
    let mut counts: Vec<TableCount> =
        names.map(|table| TableCount { table: table.clone(), packets: 0, bytes: 0 }).collect();
    let places: BTreeMap<String, usize> = counts.iter().map(|count| count.table.clone()).zip(0..).collect();
    for (tables, counter) in program.tables_tested().iter().zip(&counters[usize::from(Reason::RULE_BASE)..]) {
        for &table in tables {
            let count = &mut counts[places[table]];
            count.packets += counter.packets;
            count.bytes += counter.bytes;
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_policy::ir::parse::parse;

    #[test]
    fn packets_are_the_sum_of_what_became_of_them() {
        let program = parse(
            "program p\ndefaults malformed drop, arp accept, not-ip drop, fragment rules, ip-options rules, no-match divert\n\
             slot 0 bad ip4 exact-set\nslot 1 good ip4 exact-set\n\
             rule 0 p:1 [] ip saddr @bad counter\nrule 1 p:2 [accept] ip saddr @bad accept\nrule 2 p:2 [accept] icmp accept\n\
             chain upstream\n  ask 0 slot 0 ip saddr\n  when ip4\n    find 0\n    when found 0\n      rule 0\n      rule 1\n",
        )
        .expect("a program");
        let mut counters = vec![Counter::default(); 35];
        let mut count = |reason: Reason, packets: u64| {
            counters[usize::from(reason.0)] = Counter { packets, bytes: 100 * packets };
        };
        count(Reason::NO_MATCH, 1);
        count(Reason::ARP, 2);
        count(Reason::MALFORMED_TCP, 4);
        count(Reason::rule(0), 100);
        count(Reason::rule(1), 8);
        count(Reason::rule(2), 16);
        let mut tally = super::tally(&program, &counters);
        assert_eq!((tally.packets, tally.bytes), (31, 3100));
        assert_eq!((tally.passed, tally.dropped, tally.diverted), (26, 4, 1));
        let reasons: Vec<(&str, u64)> = tally.reasons.iter().map(|(name, &packets)| (name.as_str(), packets)).collect();
        assert_eq!(reasons, [("arp", 2), ("malformed-tcp", 4), ("no-match", 1), ("p:2", 24)]);
        let tables: Vec<(&str, u64)> = tally.tables.iter().map(|count| (count.table.as_str(), count.packets)).collect();
        assert_eq!(tables, [("bad", 108), ("good", 0)]);
        forget(&mut tally, &Standing::default());
        assert_eq!(tally.rules.len(), 3, "few that are gone are still listed");
        let once = tally.clone();
        tally.add(&once);
        assert_eq!((tally.tables.len(), tally.tables[0].bytes), (2, 21600));
        assert_eq!((tally.packets, tally.rules.len(), tally.rules[0].packets), (62, 3, 200));
    }

    #[test]
    fn policies_that_are_gone_are_one_entry_and_stay_in_the_sums() {
        let policy = |number: usize| {
            let text = format!(
                "program p\nslot 0 t{number} ip4 exact-set\nrule 0 p:{number} [accept] ip saddr @t{number} accept\n\
                 chain upstream\n  ask 0 slot 0 ip saddr\n  when ip4\n    find 0\n    when found 0\n      rule 0\n"
            );
            parse(&text).expect("a program")
        };
        let mut counters = vec![Counter::default(); usize::from(Reason::RULE_BASE) + 1];
        counters[usize::from(Reason::rule(0).0)] = Counter { packets: 2, bytes: 120 };
        counters[usize::from(Reason::ARP.0)] = Counter { packets: 1, bytes: 60 };
        let mut tally = Tally::default();
        let loads = 3 * GONE_RULES_MAX;
        for number in 0..loads {
            let program = policy(number);
            tally.add(&super::tally(&program, &counters));
            forget(&mut tally, &Standing::of([&program]));
            assert!(tally.rules.len() <= GONE_RULES_MAX + 2 && tally.reasons.len() <= GONE_RULES_MAX + 3);
            assert!(tally.tables.len() <= GONE_RULES_MAX + 2);
        }
        let loads = loads as u64;
        assert_eq!((tally.packets, tally.reasons["arp"]), (3 * loads, loads));
        assert_eq!(tally.reasons.values().sum::<u64>(), tally.packets);
        assert_eq!(tally.rules.iter().map(|rule| rule.packets).sum::<u64>(), 2 * loads);
        assert_eq!(tally.tables.iter().map(|table| table.bytes).sum::<u64>(), 120 * loads);
        assert!(tally.rules.iter().any(|rule| rule.at == GONE && rule.packets > 0));
        assert!(tally.rules.iter().any(|rule| rule.at == format!("p:{}", loads - 1)), "it stands");
    }
}
