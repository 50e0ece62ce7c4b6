//! Packets: by verdict, reason, rule and table.

use super::figures::{Figures, Memory};
use super::page::{Metric, Page};
use std::collections::{HashMap, HashSet};
use weir_abi::Reason;
use weir_control::{DirectionStats, RuleCount};
use weir_policy::ir::Direction;

static PACKETS: Metric = Metric::counter(
    "weir_packets",
    &["direction", "verdict"],
    "Packets that were received and decided, by verdict: accept, drop, divert or reply.",
);
static BYTES: Metric =
    Metric::counter("weir_bytes", &["direction"], "Bytes on the wire of the packets that were received and decided.");
static SAMPLED: Metric = Metric::counter(
    "weir_sampled_packets",
    &["direction"],
    "Packets that were copied to the divert interface. Diverted packets do not count.",
);
static REASONS: Metric = Metric::counter(
    "weir_reason_packets",
    &["direction", "reason"],
    "Packets by the reason of their verdict. All packets that a rule decided have the reason `rule`.",
);
static RULE_PACKETS: Metric = Metric::counter(
    "weir_rule_packets",
    &["direction", "rule"],
    "Packets that matched a rule, by its place in the policy: `edge.weir:12`. What a file had at this place earlier \
     counts too.",
);
static RULE_BYTES: Metric =
    Metric::counter("weir_rule_bytes", &["direction", "rule"], "Bytes of the packets that matched a rule.");
static TABLE_PACKETS: Metric =
    Metric::counter("weir_table_packets", &["direction", "table"], "Packets of the rules that look up a table.");
static TABLE_BYTES: Metric = Metric::counter(
    "weir_table_bytes",
    &["direction", "table"],
    "Bytes of the packets of the rules that look up a table.",
);

/// The metrics of this file.
#[cfg(test)]
pub const ALL: &[&Metric] =
    &[&PACKETS, &BYTES, &SAMPLED, &REASONS, &RULE_PACKETS, &RULE_BYTES, &TABLE_PACKETS, &TABLE_BYTES];

/// The reason of packets that a rule decided.
const RULE: &str = "rule";

/// Adds the metrics of this file to a page.
pub fn put(page: &mut Page, figures: &Figures, memory: &mut Memory) {
    let directions = [&figures.stats.upstream, &figures.stats.downstream];
    remember(directions, memory);
    for (index, stats) in directions.into_iter().enumerate() {
        let direction = Direction::BOTH[index].name();
        let total = &stats.total;
        let verdicts =
            [("accept", total.passed), ("drop", total.dropped), ("divert", total.diverted), ("reply", total.replied)];
        verdicts.iter().for_each(|&(verdict, packets)| page.put(&PACKETS, &[direction, verdict], packets));
        page.put(&BYTES, &[direction], total.bytes);
        page.put(&SAMPLED, &[direction], total.sampled);
        reasons(page, direction, stats);
        for rule in rules(stats, &figures.rules[index]) {
            let key = (index, rule.to_owned());
            page.put(&RULE_PACKETS, &[direction, rule], memory.rules[0].of(&key));
            page.put(&RULE_BYTES, &[direction, rule], memory.rules[1].of(&key));
        }
        for table in &total.tables {
            page.put(&TABLE_PACKETS, &[direction, &table.table], table.packets);
            page.put(&TABLE_BYTES, &[direction, &table.table], table.bytes);
        }
    }
}

/// All built-in reasons, so that the first packet of a reason is an increase, and the rest as one reason.
fn reasons(page: &mut Page, direction: &str, stats: &DirectionStats) {
    let reasons = &stats.total.reasons;
    let mut by_rules: u64 = reasons.values().sum();
    for &(_, name) in Reason::BUILTIN {
        let packets = reasons.get(name).copied().unwrap_or(0);
        by_rules -= packets;
        page.put(&REASONS, &[direction, name], packets);
    }
    page.put(&REASONS, &[direction, RULE], by_rules);
}

/// Sums up the rules of all policies by their places.
fn remember(directions: [&DirectionStats; 2], memory: &mut Memory) {
    let mut sums: HashMap<(usize, String), [u64; 2]> = HashMap::new();
    for (index, stats) in directions.into_iter().enumerate() {
        for RuleCount { at, packets, bytes, .. } in &stats.total.rules {
            let sum = sums.entry((index, at.clone())).or_default();
            *sum = [sum[0] + packets, sum[1] + bytes];
        }
    }
    for (of, growing) in memory.rules.iter_mut().enumerate() {
        growing.see(sums.iter().map(|(key, sum)| (key.clone(), sum[of])));
    }
}

/// The places of rules: first those of the active policy in its order, then those of other policies that have counted.
fn rules<'a>(stats: &'a DirectionStats, active: &'a [String]) -> Vec<&'a str> {
    let mut known = HashSet::new();
    let others = stats.total.rules.iter().filter(|rule| rule.packets > 0).map(|rule| rule.at.as_str());
    active.iter().map(String::as_str).chain(others).filter(|rule| known.insert(*rule)).collect()
}
