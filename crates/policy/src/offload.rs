//! Which tables a card may drop packets by (docs/guide/card.md).
//!
//! A card drops every packet of a source before the policy sees it. That is what the policy means if `ip saddr @t drop`
//! is the first rule upstream that does anything else than drop or count with packets of these sources. The check is
//! conservative: it says why not, and names the rule.
//!
//! A rule in front that is restricted to other sources (`ip saddr @admin accept`) is no obstacle, but sources that are
//! in both must stay out of the card: these are exempt.

use std::fmt;

use weir_abi::{Action, Family};

use crate::checked::{Fallback, ValueSet};
use crate::field::{Field, Guard, Subject};
use crate::ir::match_tree::{Condition, conditions, rules};
use crate::ir::{Chain, Direction, Effect, Node, Program, RuleId, Test, Wanted};

/// A table whose sources a card may drop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offload {
    /// The rule that drops them, which the packets that the card drops are counted for.
    pub rule: RuleId,
    /// The family of the table.
    pub family: Family,
    /// Sources that must not be in the card, although they are in the table.
    pub exempt: Vec<Exempt>,
    /// Rules in front that count, sample or drop packets of these sources too, and do not see those that the card
    /// drops.
    pub unseen: Vec<RuleId>,
}

/// Sources that rules in front treat otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exempt {
    /// Addresses that a rule lists.
    Addresses(ValueSet),
    /// The entries of another table.
    Table(String),
}

/// Why a card must not drop packets by a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The table.
    pub table: String,
    /// The reason.
    pub why: Why,
}

/// The reason of a refusal. Rules are by citation and text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// No rule upstream drops all packets from its sources.
    NoRule,
    /// Packets that `defaults` names are accepted or diverted without asking the rules.
    Default(&'static str),
    /// A rule in front does something else with packets of its sources.
    Rule {
        /// `edge.weir:12`
        at: String,
        /// Its text.
        text: String,
        /// What it does.
        does: &'static str,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table = &self.table;
        match &self.why {
            Why::NoRule => write!(
                f,
                "table {table}: no rule upstream is `ip saddr @{table} drop` (or `ip6 saddr`), with no other match"
            ),
            Why::Default(name) => {
                write!(f, "table {table}: `defaults` accepts or diverts {name} packets of its sources")
            }
            Why::Rule { at, text, does } => {
                write!(f, "table {table}: {at}: `{text}` stands before its rule, and {does} packets of its sources")
            }
        }
    }
}

/// Whether a card may drop packets by a table, in a posture.
///
/// # Errors
/// It must not.
pub fn offload(program: &Program, posture: Option<&str>, table: &str) -> Result<Offload, Refusal> {
    let refuse = |why| Err(Refusal { table: table.to_owned(), why });
    let Some(chain) = program.chain(posture, Direction::Upstream) else { return refuse(Why::NoRule) };
    let chain = &program.chains[chain];
    let all = conditions(&chain.tree.nodes);
    let Some((at, family)) = all.iter().enumerate().find_map(|(at, one)| {
        let family = sources_of(program, chain, one, table)?;
        drops_only(program, one.rule).then_some((at, family))
    }) else {
        return refuse(Why::NoRule);
    };
    if let Some(name) = passing_default(program) {
        return refuse(Why::Default(name));
    }
    let mut found = Offload { rule: all[at].rule, family, exempt: Vec::new(), unseen: Vec::new() };
    let obstacle = |rule: RuleId, does| {
        let rule = program.rule(rule);
        refuse(Why::Rule { at: rule.at.clone(), text: rule.text.clone(), does })
    };
    if let Some(tracks) = tracks_before(chain, all[at].rule) {
        return obstacle(tracks, "needs the state of all");
    }
    for condition in all[..at].iter().filter(|one| may_match(one, family)) {
        match only_from(program, chain, condition) {
            Some(Exempt::Table(own)) if own == table => {}
            Some(exempt) => {
                found.exempt.extend((!found.exempt.contains(&exempt)).then_some(exempt));
                continue;
            }
            None => {}
        }
        match does(program, condition.rule) {
            None => found.unseen.push(condition.rule),
            Some(what) => return obstacle(condition.rule, what),
        }
    }
    found.unseen.dedup();
    Ok(found)
}

/// What a rule does besides counting and dropping; `None` if nothing.
fn does(program: &Program, rule: RuleId) -> Option<&'static str> {
    program.rule(rule).effects.iter().find_map(|effect| match effect {
        Effect::Sample { .. } | Effect::Count { .. } | Effect::Verdict(Action::Drop) => None,
        Effect::Verdict(Action::Accept) => Some("accepts"),
        Effect::Verdict(_) => Some("diverts or answers"),
        Effect::Limit { .. } => Some("limits"),
        Effect::Add { .. } => Some("adds to a table by"),
        Effect::Track | Effect::Synproxy => Some("tracks"),
        Effect::Slot(_) => Some("lets a slot decide"),
    })
}

/// Whether a rule only counts and drops.
fn drops_only(program: &Program, rule: RuleId) -> bool {
    program.rule(rule).verdict() == Some(Action::Drop) && does(program, rule).is_none()
}

/// The family of a table if a condition holds for all packets from its sources, and for no others.
fn sources_of(program: &Program, chain: &Chain, condition: &Condition<'_>, table: &str) -> Option<Family> {
    let mut family = None;
    for test in &condition.tests {
        match test {
            Test::Guard(Guard::Any | Guard::Ip | Guard::Ipv4 | Guard::Ipv6) => {}
            Test::Found { wanted: Wanted::Any | Wanted::Table(_), .. } if family.is_none() => {
                match source_table(program, chain, test) {
                    Some((name, of)) if name == table => family = Some(of),
                    _ => return None,
                }
            }
            _ => return None,
        }
    }
    family
}

/// The table that a test finds the source in, and its family.
fn source_table<'p>(program: &'p Program, chain: &Chain, test: &Test) -> Option<(&'p str, Family)> {
    let Test::Found { find, wanted, negated: false } = test else { return None };
    let find = chain.finds[usize::from(find.0)];
    let family = match find.key {
        Field::IpSaddr => Family::Ipv4,
        Field::Ip6Saddr => Family::Ipv6,
        _ => return None,
    };
    let index = match wanted {
        Wanted::Table(index) => usize::from(*index),
        Wanted::Any | Wanted::Labels(_) => 0,
    };
    Some((program.slot(find.slot).tables().get(index)?.as_str(), family))
}

/// Whether a condition may hold for packets of a family.
fn may_match(condition: &Condition<'_>, family: Family) -> bool {
    let own = match family {
        Family::Ipv4 => Guard::Ipv4,
        Family::Ipv6 => Guard::Ipv6,
    };
    !condition.tests.iter().any(|test| matches!(test, Test::Guard(guard) if own.excludes(*guard)))
}

/// The sources that a condition is restricted to, if it is.
fn only_from(program: &Program, chain: &Chain, condition: &Condition<'_>) -> Option<Exempt> {
    condition.tests.iter().find_map(|test| match test {
        Test::Value { subject: Subject::Field(Field::IpSaddr | Field::Ip6Saddr), mask: None, set, negated: false } => {
            Some(Exempt::Addresses(set.clone()))
        }
        test => source_table(program, chain, test).map(|(name, _)| Exempt::Table(name.to_owned())),
    })
}

/// A kind of IP packets that defaults let pass without rules. A card does not tell them from others.
fn passing_default(program: &Program) -> Option<&'static str> {
    let defaults = &program.defaults;
    let passes = |fallback| matches!(fallback, Fallback::Decide(action) if action != Action::Drop);
    if defaults.malformed != Action::Drop {
        return Some("malformed");
    }
    let fallbacks = [(defaults.fragment, "fragment"), (defaults.ip_options, "ip-options")];
    fallbacks.into_iter().find_map(|(fallback, name)| passes(fallback).then_some(name))
}

/// The first rule from the tracker on, if packets are tracked before a rule.
fn tracks_before(chain: &Chain, rule: RuleId) -> Option<RuleId> {
    let nodes = &chain.tree.nodes;
    let at = nodes.iter().position(|node| matches!(node, Node::Track))?;
    let mut behind = rules(&nodes[at..]);
    let first = behind.next()?;
    (first == rule || behind.any(|other| other == rule)).then_some(first)
}

#[cfg(test)]
#[path = "offload/tests.rs"]
mod tests;
