//! Verdicts and counters as text for snapshots.

use crate::engines::{Decided, verdict};
use std::fmt::Write;
use weir_abi::features::key_address;
use weir_abi::{Counter, FeatureCell, FeatureRecord, PacketClass, Reason};
use weir_command::limit_counts::{self, Counting};
use weir_control::TOP_MAX;
use weir_loading::Policy;
use weir_policy::ir::Node;
use weir_policy::source::Span;
use weir_state::features::{DirectionSnapshot, Samples};

/// The lines of packets.txt that contain packets.
pub fn lines(text: &str) -> Vec<&str> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or("").trim());
    lines.filter(|line| !line.is_empty()).collect()
}

/// The verdict of every packet in every chain, then every non-zero counter and all counters of rules, then limits that
/// log, then entries that were hit, then what was observed.
pub fn report(policy: &Policy, lines: &[&str], decided: &Decided) -> String {
    let program = &policy.program;
    let mut text = String::new();
    for (chain, words) in program.chains.iter().zip(&decided.verdicts) {
        if matches!(chain.tree.nodes[..], [Node::Rule(_)]) {
            continue;
        }
        let posture = chain.posture.as_ref().map_or(String::new(), |name| format!(" in posture {name}"));
        let _ = writeln!(text, "{}{posture}", chain.direction.name());
        for (word, line) in words.iter().zip(lines) {
            let _ = writeln!(text, "  {:<28} {line}", verdict(program, *word));
        }
        text.push('\n');
    }
    let _ = writeln!(text, "counters");
    let mut line = |counter: &Counter, name: &str, rule: &str| {
        let line = format!("  {:>5} {:>7}  {name:<20} {rule}", counter.packets, counter.bytes);
        let _ = writeln!(text, "{}", line.trim_end());
    };
    let (reasons, limited) = decided.counters.split_at(usize::from(Reason::RULE_BASE) + program.rules.len());
    for (index, counter) in reasons.iter().enumerate() {
        let reason = Reason(index as u16);
        let rule = reason.rule_index().map(|rule| &program.rules[usize::from(rule)]);
        if counter.packets > 0 || rule.is_some() {
            line(counter, &weir_command::report::reason_name(program, reason), rule.map_or("", |rule| &rule.text));
        }
    }
    for ((rule, action, reason), counter) in program.limited().into_iter().zip(limited) {
        let reason = reason.builtin_name().expect("it is built in");
        line(counter, &format!("{reason} of {}", program.rule(rule).at), action.name());
    }
    let top = Counting::of(policy, None).and_then(|counting| {
        counting.top(TOP_MAX, |limiter, visit| {
            decided.limits[limiter].iter().for_each(|&(entry, count)| visit(entry, count));
            Ok(())
        })
    });
    let limits = top.expect("all lists are asked").limits;
    if !limits.is_empty() {
        let _ = write!(text, "\nlimits\n{}", limit_counts::describe(&limits));
    }
    for ((slot, rules), counts) in program.rule_slots.iter().zip(policy.slot_rules()).zip(&decided.slots) {
        let _ = writeln!(text, "\nrules of {} (packets, bytes, dropped)", slot.name);
        for (rule, counts) in rules.iter().zip(counts) {
            let rule = weir_policy::slot_rule::text(&rule.record);
            let _ = writeln!(text, "  {:>5} {:>7} {:>5}  {rule}", counts.packets, counts.bytes, counts.dropped);
        }
    }
    for (slot, hits) in program.slots.iter().zip(&decided.entries).filter(|(slot, _)| slot.counted.is_some()) {
        let _ = writeln!(text, "\nentries of {} (packets, bytes, time)", slot.name());
        for (addr, length, counts) in hits {
            let _ = writeln!(text, "  {:>5} {:>7} {:>5}  {addr}/{length}", counts.packets, counts.bytes, counts.last);
        }
    }
    observed(&mut text, decided);
    text
}

/// Writes what was observed.
fn observed(text: &mut String, decided: &Decided) {
    for (direction, observed) in ["upstream", "downstream"].iter().zip(decided.features.iter().flatten()) {
        let _ = writeln!(text, "\nobserved {direction}");
        let DirectionSnapshot { entries, rest, without_address, outside, samples } = observed;
        for entry in entries {
            let _ = writeln!(text, "{}", features(&entry.counts, &key_address(entry.key).to_string()));
        }
        for (entry, name) in [(rest, "no room"), (without_address, "no address"), (outside, "outside")] {
            let _ = if entry.bytes > 0 { writeln!(text, "{}", features(entry, name)) } else { Ok(()) };
        }
        for Samples { seen, taken, records } in samples {
            let _ = writeln!(text, "  {taken} of {seen} sampled");
            for FeatureRecord { source, destination, len, sport, dport, proto, ttl, .. } in records {
                let [source, destination] = [source, destination].map(|key| key_address(*key));
                let _ = writeln!(text, "    {source} to {destination}, {len}, {proto} {sport} {dport}, TTL {ttl}");
            }
        }
    }
}

/// Counts of an address.
fn features(entry: &FeatureCell, name: &str) -> String {
    let classes = PacketClass::ALL.iter().zip(entry.packets).filter(|(_, packets)| *packets > 0);
    let classes: Vec<String> = classes.map(|(class, packets)| format!("{} {packets}", class.name())).collect();
    let (packets, peers) = (entry.total(), entry.peers());
    format!("  {packets:>5} {:>7}  {name:<20} {peers} peers: {}", entry.bytes, classes.join(", "))
}

/// Checks that every rule has a matching packet, except for rules that the checker reports as never matching, and for
/// those of answered flows: each chain sees all packets, and none sees answers from the other side. tests/tracking has
/// those.
pub fn every_rule_is_hit(policy: &Policy, decided: &Decided) -> Result<(), String> {
    let text = policy.text().expect("features are text");
    let inside = |span: Span, rule: Span| {
        span.file == rule.file && (rule.start..=rule.end).contains(&span.start) && span.end <= rule.end
    };
    let warned = |rule: usize| {
        let mut never = text.checked.warnings.iter().filter(|warning| warning.code == "W0401");
        never.any(|warning| inside(warning.span, text.lowered.spans[rule]))
    };
    let is_of_answered = |text: &str| text.contains("ct state established");
    let counters = &decided.counters[usize::from(Reason::RULE_BASE)..];
    let rules = policy.program.rules.iter().zip(counters).enumerate();
    let idle: Vec<&str> = rules
        .filter(|(index, (rule, counter))| counter.packets == 0 && !warned(*index) && !is_of_answered(&rule.text))
        .map(|(_, (rule, _))| rule.at.as_str())
        .collect();
    if idle.is_empty() { Ok(()) } else { Err(format!("no packet matches the rules of {}", idle.join(", "))) }
}
