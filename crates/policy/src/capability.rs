//! Which features each engine supports, and the check that compares a program with engines.
//!
//! A new statement needs a [`Feature`], a new engine an [`Engine`]. [`Engine::lacks`] is the table of what each
//! supports. A bundle has the code of several engines and needs what they support.

use crate::backend::p4;
use crate::checked::TableKind;
use crate::field::Subject;
use crate::ir::{Effect, Find, Program, RuleId, Test, match_tree};
use std::collections::BTreeSet;
use weir_abi::Target;

/// An implementation that decides packets by a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// The reference interpreter.
    Eval,
    /// Generated C in this process, for captures and for interfaces in user space.
    Native,
    /// Generated BPF in the kernel.
    Xdp,
    /// Generated BPF in the kernel of the host that it protects (`weir run --host`).
    Host,
    /// Generated P4 on DPDK's SWX pipeline.
    P4,
}

/// A feature that some engines lack. All engines support matches, counters and verdicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// `add`, `update`, `exceed add`
    Add,
    /// A table with `counters`.
    Count,
    /// `limit`
    Limit,
    /// `sample`
    Sample,
    /// `tracking`, `track`, `ct state`
    Track,
    /// `limit each` of connections
    Connections,
    /// `synproxy`
    Synproxy,
    /// `slot`
    Slot,
    /// Matches on a card's answers, which only the split between card and software makes.
    Card,
    /// `observe`
    Observe,
    /// More extern objects than a pipeline has.
    Objects,
    /// More lookups in a chain than the metadata of a pipeline has room for.
    Lookups,
}

/// A feature of a rule that engines do not support.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported {
    /// The rule that uses it; `None` if it is used besides the rules.
    pub rule: Option<RuleId>,
    /// The feature.
    pub feature: Feature,
    /// The engines that lack it, each with the reason.
    pub lacking: Vec<(Engine, &'static str)>,
}

impl Engine {
    /// Every engine.
    pub const ALL: [Self; 5] = [Engine::Eval, Engine::Native, Engine::Xdp, Engine::Host, Engine::P4];

    /// The engine that runs what is compiled for a target.
    pub const fn of(target: Target) -> Self {
        match target {
            Target::Native => Engine::Native,
            Target::Bpf => Engine::Xdp,
            Target::P4 => Engine::P4,
        }
    }

    /// The name in messages and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Engine::Eval => "eval",
            Engine::Native => "native",
            Engine::Xdp => "xdp",
            Engine::Host => "xdp --host",
            Engine::P4 => "p4",
        }
    }

    /// Why the engine does not support the feature, or `None` if it does.
    pub const fn lacks(self, feature: Feature) -> Option<&'static str> {
        match (self, feature) {
            (Engine::P4, Feature::Objects) => Some("a pipeline has room for 200 tables, limits, additions and samples"),
            (Engine::P4, Feature::Lookups) => {
                Some("a pipeline has room for 41 lookups in a chain, fewer in tables with counters")
            }
            (Engine::Eval | Engine::Native | Engine::Xdp | Engine::P4, Feature::Synproxy) => None,
            (_, Feature::Synproxy) => Some("it cannot answer SYNs yet"),
            (Engine::Eval | Engine::Native | Engine::Xdp, Feature::Card) => None,
            (_, Feature::Card) => Some("it does not read a card's answers yet"),
            (_, Feature::Observe) => None,
            (_, Feature::Add | Feature::Count | Feature::Limit | Feature::Sample) => None,
            (_, Feature::Track | Feature::Connections | Feature::Slot) => None,
            (_, Feature::Objects | Feature::Lookups) => None,
        }
    }
}

impl Feature {
    /// The keyword of the statement that needs it.
    pub const fn name(self) -> &'static str {
        match self {
            Feature::Add => "add",
            Feature::Count => "counters",
            Feature::Limit => "limit",
            Feature::Sample => "sample",
            Feature::Track => "track",
            Feature::Connections => "limit each of connections",
            Feature::Synproxy => "synproxy",
            Feature::Slot => "slot",
            Feature::Card => "card",
            Feature::Observe => "observe",
            Feature::Objects => "many objects",
            Feature::Lookups => "many lookups",
        }
    }

    /// The features that an effect needs. If there are none, every engine supports the effect.
    const fn of(effect: &Effect) -> &'static [Self] {
        match effect {
            Effect::Add { .. } => &[Feature::Add],
            Effect::Count { .. } => &[Feature::Count],
            Effect::Limit { add: Some(_), .. } => &[Feature::Limit, Feature::Add],
            Effect::Limit { add: None, .. } => &[Feature::Limit],
            Effect::Sample { .. } => &[Feature::Sample],
            Effect::Slot(_) => &[Feature::Slot],
            // Reported once for the whole program.
            Effect::Track | Effect::Synproxy | Effect::Verdict(_) => &[],
        }
    }
}

impl Unsupported {
    /// Names of the engines that lack it: `native, xdp`.
    pub fn engines(&self) -> String {
        self.lacking.iter().map(|(engine, _)| engine.name()).collect::<Vec<_>>().join(", ")
    }
}

/// The features of a program that engines do not support, in order of the rules. If there are none, every one of them
/// supports the program.
pub fn unsupported(program: &Program, engines: &[Engine]) -> Vec<Unsupported> {
    let mut found = Vec::new();
    let mut report = |rule: Option<RuleId>, feature: Feature| {
        let lacking = |&engine: &Engine| Some((engine, engine.lacks(feature)?));
        let lacking: Vec<_> = engines.iter().filter_map(lacking).collect();
        if !lacking.is_empty() {
            found.push(Unsupported { rule, feature, lacking });
        }
    };
    if program.tracking.is_some() {
        report(first_tracking(program), Feature::Track);
    }
    if program.tracking.is_some_and(|tracking| tracking.synproxy.is_some()) {
        let answering = (0..).zip(&program.rules).find(|(_, rule)| rule.answers());
        report(answering.map(|(index, _)| RuleId(index)), Feature::Synproxy);
    }
    if program.observe.is_some() {
        report(None, Feature::Observe);
    }
    if objects(program) > OBJECTS_MAX {
        // The last one that needs an object.
        let needing =
            program.rules.iter().rposition(|rule| rule.effects.iter().any(|effect| !Feature::of(effect).is_empty()));
        report(Some(RuleId(needing.unwrap_or(program.rules.len() - 1) as u16)), Feature::Objects);
    }
    if metadata_bytes(program) > METADATA_BYTES_MAX {
        report(None, Feature::Lookups);
    }
    for (index, rule) in (0..).zip(&program.rules) {
        for &feature in rule.effects.iter().flat_map(Feature::of) {
            report(Some(RuleId(index)), feature);
        }
        if rule.counts_connections(&program.limiters) {
            report(Some(RuleId(index)), Feature::Connections);
        }
    }
    let conditions = program.chains.iter().flat_map(|chain| match_tree::conditions(&chain.tree.nodes));
    let answered = conditions.filter(|condition| condition.tests.iter().any(|test| test.asks_card()));
    let rules: BTreeSet<RuleId> = answered.map(|condition| condition.rule).collect();
    rules.into_iter().for_each(|rule| report(Some(rule), Feature::Card));
    found
}

/// Most extern objects of a pipeline. SWX numbers them and the headers with 8 bits.
pub(crate) const OBJECTS_MAX: usize = 200;

/// The counters, `track`, `tracked` or `left`, `synproxy`, and `observe`.
const OTHER_OBJECTS: usize = 5;

/// No fewer than the extern objects that a pipeline needs.
fn objects(program: &Program) -> usize {
    let slots = program.slots.iter().map(|slot| if slot.counted.is_some() { 3 } else { 1 }).sum::<usize>();
    let is_sample = |effect: &&Effect| matches!(effect, Effect::Sample { .. });
    let samples = program.rules.iter().flat_map(|rule| &rule.effects).filter(is_sample).count();
    let conditions = program.chains.iter().flat_map(|chain| match_tree::conditions(&chain.tree.nodes));
    let subjects = conditions.flat_map(|condition| condition.tests).filter_map(|test| match test {
        Test::Value { subject: Subject::Raw(raw), .. } => Some(*raw),
        _ => None,
    });
    let raws = subjects.collect::<BTreeSet<_>>().len();
    let limits = program.limiters.len() + program.adders.len() + program.rule_slots.len();
    OTHER_OBJECTS + slots + samples + raws + limits
}

/// Most bytes of metadata. SWX has the offset of a field in 8 bits: behind 256 bytes, it reads another field.
pub(crate) const METADATA_BYTES_MAX: usize = 256;

/// No fewer than the bytes of metadata that a pipeline needs. Chains share those of their lookups.
fn metadata_bytes(program: &Program) -> usize {
    let bytes = |find: &Find| match program.slot(find.slot).counted {
        None => size_of::<u32>(),
        Some(TableKind::Labels) => 2 * size_of::<u32>() + size_of::<u8>(),
        Some(_) => size_of::<u32>() + size_of::<u8>(),
    };
    let lookups = program.chains.iter().map(|chain| chain.finds.iter().map(bytes).sum::<usize>());
    p4::METADATA_BYTES + lookups.max().unwrap_or_default()
}

/// The first rule that needs the state of packets.
fn first_tracking(program: &Program) -> Option<RuleId> {
    let needing = program.chains.iter().flat_map(|chain| &chain.tree.nodes);
    let needing = needing.filter(|node| node.needs_state(&program.rules, &program.limiters));
    needing.flat_map(|node| match_tree::rules(std::slice::from_ref(node))).min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::parse::parse;

    const PROGRAM: &str = "\
program test
defaults malformed drop, arp accept, not-ip drop, fragment rules, ip-options rules, no-match accept
on-exit block
tracking size 64 embryonic 25% unproven 50% pickup on one-way off vlan match invalid rules syn-sent 1ms syn-recv 1ms established 1ms \
fin-wait 1ms close-wait 1ms last-ack 1ms time-wait 1ms closed 1ms unacknowledged 1ms udp 1ms udp-replied 1ms icmp 1ms \
other 1ms
limiter 0 rate upstream 0 rate 2pps burst 1packets log off
rule 0 test.weir:1 [limit 0 exceed drop] limit rate 2pps burst 1
rule 1 test.weir:2 [accept] accept
rule 2 test.weir:3 [track] tcp track
chain upstream
  rule 0
  track
  when tcp
    rule 2
  rule 1
chain downstream
";

    const CONNECTIONS: &str = "limiter 0 each upstream 0 each ip saddr/32 connections 16 size 1024";

    #[test]
    fn a_pipeline_has_a_limited_number_of_objects() {
        let program = |count: usize| {
            let rules: String = (0..count).map(|rule| format!("rule {rule} x:1 [sample 1/2] sample 1/2\n")).collect();
            let uses: String = (0..count).map(|rule| format!("  rule {rule}\n")).collect();
            parse(&format!("program x\n{rules}chain upstream\n{uses}chain downstream\n")).unwrap()
        };
        assert_eq!(unsupported(&program(OBJECTS_MAX - OTHER_OBJECTS), &Engine::ALL), []);
        let found = unsupported(&program(OBJECTS_MAX - OTHER_OBJECTS + 1), &Engine::ALL);
        assert_eq!(found.len(), 1);
        assert!(found[0].rule.is_some(), "a message names a rule");
        assert_eq!((found[0].feature, found[0].engines().as_str()), (Feature::Objects, "p4"));
    }

    #[test]
    fn a_pipeline_has_a_limited_number_of_lookups_in_a_chain() {
        let found = |count: usize, counters: &str| {
            let lines = |line: &dyn Fn(usize) -> String| (0..count).map(line).collect::<String>();
            let slots = lines(&|slot| format!("slot {slot} t{slot} ip4 rank-leaf{counters}\n"));
            let asks = lines(&|slot| format!("  ask {slot} slot {slot} ip saddr\n"));
            let text = format!("program x\n{slots}chain upstream\n{asks}chain downstream\n{asks}");
            unsupported(&parse(&text).unwrap(), &Engine::ALL)
        };
        for (most, counters) in [(41, ""), (33, " counters"), (18, " counters of labels")] {
            assert_eq!(found(most, counters), []);
            let more = found(most + 1, counters);
            assert_eq!(more.len(), 1, "{more:?}");
            assert_eq!((more[0].feature, more[0].engines().as_str()), (Feature::Lookups, "p4"));
        }
    }

    #[test]
    fn a_program_is_compared_with_the_features_of_each_engine() {
        let program = parse(PROGRAM).unwrap();
        let found = |program: &Program, engines: &[Engine]| {
            let found = unsupported(program, engines);
            let line = |entry: &Unsupported| {
                format!("{:?} {}: {}", entry.rule.map(|rule| rule.0), entry.feature.name(), entry.engines())
            };
            found.iter().map(line).collect::<Vec<_>>()
        };
        assert_eq!(found(&program, &[]), [""; 0]);
        assert_eq!(found(&program, &[Engine::Xdp, Engine::P4]), [""; 0]);
        let seats = PROGRAM
            .replace("limiter 0 rate upstream 0 rate 2pps burst 1packets", CONNECTIONS)
            .replace("  rule 0\n  track\n", "  track\n  when ip4\n    rule 0\n");
        let program = parse(&seats).unwrap();
        assert_eq!(found(&program, &Engine::ALL), [""; 0]);
        let proxy = PROGRAM.replace("limiter 0", "synproxy mss 1460\nlimiter 0").replace("[track]", "[synproxy]");
        let program = parse(&proxy).unwrap();
        assert_eq!(found(&program, &Engine::ALL), ["Some(2) synproxy: xdp --host"]);
    }
}
