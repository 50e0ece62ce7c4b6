//! Flattened chains, compared with chains that are followed as the kernel follows them: random chains that call each
//! other, at several hooks, for every packet of a small world.

use super::{Flattener, Line};
use crate::Options;
use crate::condition::{Condition, IPV4, IPV6};
use crate::finding::Findings;
use crate::interfaces::Interfaces;
use crate::ruleset::{Base, Chain, Hook, Rule, Ruleset, Test, Verdict};
use proptest::prelude::*;

/// Chains that only rules call. They call later ones, so that calls end.
const CALLED: usize = 3;
const BASES: usize = 3;
/// Values of a field: 0 to 2.
const VALUES: u128 = 3;

/// A packet: its family, and the values of `ip ttl` (only with IPv4) and `meta length`.
#[derive(Clone, Copy, Debug)]
struct Packet {
    family: u128,
    ttl: u128,
    length: u128,
}

fn holds(condition: &Condition, packet: Packet) -> bool {
    let value = match condition.field.as_str() {
        "ip ttl" if packet.family == IPV6 => return false,
        "ip ttl" => packet.ttl,
        "meta length" => packet.length,
        "meta nfproto" => packet.family,
        other => panic!("{other}"),
    };
    let values = condition.values.as_ref().expect("all values are known");
    values.iter().any(|&(low, high)| (low..=high).contains(&value))
}

fn condition() -> impl Strategy<Value = Test> {
    (any::<bool>(), any::<bool>(), 0..VALUES).prop_map(|(is_ttl, not, value)| {
        let field = if is_ttl { "ip ttl" } else { "meta length" };
        let values = [((value, value), value.to_string())];
        Test::Field(if not { Condition::none_of(field, &values) } else { Condition::one_of(field, &values) })
    })
}

/// A rule of a chain, which may call chains from `first` on.
fn rule(first: usize) -> impl Strategy<Value = Rule> {
    let end = BASES + CALLED;
    let target = if first < end { (first..end).boxed() } else { Just(usize::MAX).boxed() };
    (prop::collection::vec(condition(), 0..3), 0..8, target, any::<u32>()).prop_map(|(tests, kind, target, at)| {
        let verdict = match kind {
            0 => Verdict::Accept,
            1 => Verdict::Drop,
            2 | 3 => Verdict::Return,
            4 | 5 if target != usize::MAX => Verdict::Jump(target),
            6 if target != usize::MAX => Verdict::Goto(target),
            _ => Verdict::Drop,
        };
        Rule { at: at.to_string(), tests, verdict, ..Rule::default() }
    })
}

fn chain(index: usize) -> impl Strategy<Value = Chain> {
    let first = if index < BASES { BASES } else { index + 1 };
    (prop::collection::vec(rule(first), 0..5), any::<bool>(), any::<bool>()).prop_map(move |(rules, drops, is_ipv4)| {
        let base = (index < BASES).then(|| Base {
            hook: Hook::Forward,
            priority: index as i64,
            drops,
            device: Vec::new(),
            at: String::new(),
        });
        let scope = if is_ipv4 && index < BASES { vec![Condition::family(IPV4)] } else { Vec::new() };
        Chain { name: format!("c{index}"), base, scope, rules }
    })
}

/// What the kernel does in a chain: `Some` accepts or drops, `None` reaches its end.
fn follow(ruleset: &Ruleset, chain: usize, packet: Packet) -> Option<bool> {
    for rule in &ruleset.chains[chain].rules {
        if !rule.conditions().iter().all(|condition| holds(condition, packet)) {
            continue;
        }
        match rule.verdict {
            Verdict::Accept => return Some(true),
            Verdict::Drop => return Some(false),
            Verdict::Return => return None,
            Verdict::Jump(target) => {
                if let Some(verdict) = follow(ruleset, target, packet) {
                    return Some(verdict);
                }
            }
            // The end of that chain is the end of this one.
            Verdict::Goto(target) => return follow(ruleset, target, packet),
            Verdict::Continue | Verdict::Foreign(_) => {}
        }
    }
    None
}

fn kernel(ruleset: &Ruleset, packet: Packet) -> bool {
    (0..BASES).all(|index| {
        let chain = &ruleset.chains[index];
        let is_there = chain.scope.iter().all(|condition| holds(condition, packet));
        !is_there || follow(ruleset, index, packet).unwrap_or(!chain.base.as_ref().expect("a base chain").drops)
    })
}

fn weir(lines: &[Line], packet: Packet) -> Option<bool> {
    lines.iter().find_map(|line| match line {
        Line::Rule(rule) if rule.conditions.iter().all(|condition| holds(condition, packet)) => rule.accepts,
        _ => None,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn a_list_decides_as_its_chains_do(chains in (0..BASES + CALLED).map(chain).collect::<Vec<_>>()) {
        let ruleset = Ruleset { chains };
        let mut findings = Findings::default();
        let interfaces = Interfaces::new(&ruleset, &Options::default(), &mut findings);
        let lines = Flattener::flatten(&ruleset, &interfaces, &mut findings, true, &[Hook::Forward]);
        let lines = lines.expect("it is small");
        for family in [IPV4, IPV6] {
            for (ttl, length) in (0..VALUES).flat_map(|ttl| (0..VALUES).map(move |length| (ttl, length))) {
                let packet = Packet { family, ttl, length };
                prop_assert_eq!(weir(&lines, packet), Some(kernel(&ruleset, packet)), "{:?}\n{:#?}", packet, lines);
            }
        }
    }
}
