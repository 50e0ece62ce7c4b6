//! Sums the counters of one direction by verdict, rule, reason and table.

use std::collections::{BTreeMap, HashSet};
use weir_abi::{Action, Counter, Reason};
use weir_command::report::{self, Decided};
use weir_control::{FromCard, GONE, Outcome, RuleCount, TableCount, Tally};
use weir_policy::ir::Program;

/// Most rules of removed policies that a tally lists separately.
pub const GONE_RULES_MAX: usize = 1024;

/// The rules and tables of loaded policies.
#[derive(Default)]
pub struct LoadedNames<'a> {
    rules: HashSet<(&'a str, &'a str)>,
    citations: HashSet<&'a str>,
    tables: HashSet<&'a str>,
}

impl<'a> LoadedNames<'a> {
    /// The rules and tables of programs.
    pub fn of(programs: impl IntoIterator<Item = &'a Program>) -> Self {
        let mut loaded = LoadedNames::default();
        for program in programs {
            loaded.rules.extend(program.rules.iter().map(|rule| (rule.at.as_str(), rule.text.as_str())));
            loaded.citations.extend(program.rules.iter().map(|rule| rule.at.as_str()));
            loaded.tables.extend(program.slots.iter().flat_map(|slot| slot.tables()).map(String::as_str));
        }
        loaded
    }

    fn has_rule(&self, rule: &RuleCount) -> bool {
        self.rules.contains(&(rule.at.as_str(), rule.rule.as_str()))
    }

    /// Whether a reason is built in or the citation of a rule.
    fn has_reason(&self, reason: &str) -> bool {
        self.citations.contains(reason) || (0..Reason::RULE_BASE).any(|n| Reason(n).builtin_name() == Some(reason))
    }
}

/// The verdicts in the counters of a program.
pub fn outcome(program: &Program, counters: &[Counter]) -> Outcome {
    let mut outcome = Outcome::default();
    for Decided { action, counter, .. } in report::decided(program, counters) {
        outcome.packets += counter.packets;
        outcome.bytes += counter.bytes;
        *match action {
            Action::Accept => &mut outcome.passed,
            Action::Drop => &mut outcome.dropped,
            Action::Divert => &mut outcome.diverted,
            Action::Reply => &mut outcome.replied,
        } += counter.packets;
    }
    outcome
}

/// The tally of the counters of a program. Samples are not in these counters.
pub fn tally(program: &Program, counters: &[Counter]) -> Tally {
    let Outcome { packets, bytes, passed, dropped, diverted, replied } = outcome(program, counters);
    Tally {
        packets,
        bytes,
        passed,
        dropped,
        diverted,
        replied,
        sampled: 0,
        rules: report::rule_counts(program, counters),
        reasons: report::reason_counts(program, counters),
        drops: drop_counts(program, counters),
        tables: table_counts(program, counters),
        from_card: from_card(counters),
    }
}

/// Dropped packets by the reason of their verdict.
fn drop_counts(program: &Program, counters: &[Counter]) -> BTreeMap<String, u64> {
    let mut drops = BTreeMap::new();
    for Decided { reason, action, counter, .. } in report::decided(program, counters) {
        if action == Action::Drop && counter.packets > 0 {
            *drops.entry(report::reason_name(program, reason)).or_insert(0) += counter.packets;
        }
    }
    drops
}

fn from_card(counters: &[Counter]) -> Option<FromCard> {
    let [answered, alone] = [Reason::COUNTER_ANSWERED, Reason::COUNTER_ALONE]
        .map(|counter| counters.get(usize::from(counter.0)).map_or(0, |counter| counter.packets));
    (answered + alone > 0).then_some(FromCard { answered, alone })
}

/// Sums up the entries of removed policies, if they have more than [`GONE_RULES_MAX`] rules. Otherwise the tally would
/// grow with every loaded policy. The sums do not change.
pub fn forget(tally: &mut Tally, loaded: &LoadedNames<'_>) {
    if tally.rules.iter().filter(|rule| !loaded.has_rule(rule)).count() <= GONE_RULES_MAX {
        return;
    }
    let zero = RuleCount { at: GONE.to_owned(), rule: GONE.to_owned(), packets: 0, bytes: 0 };
    let (mut rules, gone) = split(&mut tally.rules, |rule| loaded.has_rule(rule));
    rules.push(gone.into_iter().fold(zero, |sum, rule| RuleCount {
        packets: sum.packets + rule.packets,
        bytes: sum.bytes + rule.bytes,
        ..sum
    }));
    tally.rules = rules;
    let zero = TableCount { table: GONE.to_owned(), packets: 0, bytes: 0 };
    let (mut tables, gone) = split(&mut tally.tables, |table| loaded.tables.contains(table.table.as_str()));
    tables.push(gone.into_iter().fold(zero, |sum, table| TableCount {
        packets: sum.packets + table.packets,
        bytes: sum.bytes + table.bytes,
        ..sum
    }));
    tally.tables = tables;
    for counts in [&mut tally.reasons, &mut tally.drops] {
        let (stay, gone): (BTreeMap<_, _>, BTreeMap<_, _>) =
            std::mem::take(counts).into_iter().partition(|(reason, _)| loaded.has_reason(reason));
        *counts = stay;
        counts.insert(GONE.to_owned(), gone.into_values().sum());
    }
}

/// Splits the entries into those that are kept and the others.
fn split<T>(all: &mut Vec<T>, stays: impl Fn(&T) -> bool) -> (Vec<T>, Vec<T>) {
    std::mem::take(all).into_iter().partition(stays)
}

/// The counts of every table of the program, in order of slots.
fn table_counts(program: &Program, counters: &[Counter]) -> Vec<TableCount> {
    let names = program.slots.iter().flat_map(|slot| slot.tables());
    // What finishes a card's lookups is another image of the same table.
    let mut known = HashSet::new();
    let mut counts: Vec<TableCount> = names
        .filter(|table| known.insert(table.as_str()))
        .map(|table| TableCount { table: table.clone(), packets: 0, bytes: 0 })
        .collect();
    let indices: BTreeMap<String, usize> = counts.iter().map(|count| count.table.clone()).zip(0..).collect();
    for (tables, counter) in program.tables_tested().iter().zip(&counters[usize::from(Reason::RULE_BASE)..]) {
        for &table in tables {
            let count = &mut counts[indices[table]];
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
    fn packets_are_the_sum_of_verdicts() {
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
        forget(&mut tally, &LoadedNames::default());
        assert_eq!(tally.rules.len(), 3, "a few removed rules are still listed");
        let once = tally.clone();
        tally.add(&once);
        assert_eq!((tally.tables.len(), tally.tables[0].bytes), (2, 21600));
        assert_eq!((tally.packets, tally.rules.len(), tally.rules[0].packets), (62, 3, 200));
    }

    #[test]
    fn removed_policies_are_one_entry_and_remain_in_the_sums() {
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
            forget(&mut tally, &LoadedNames::of([&program]));
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
