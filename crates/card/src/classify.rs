//! The category of each rule of a chain. It depends on the rule and the profile only; what the card has room for is
//! decided by the split.

use crate::TableSizes;
use crate::category::{Category, Kind, Offloadability, Outcome};
use crate::pattern::{Pattern, Reader};
use crate::profile::Profile;
use weir_abi::Action;
use weir_policy::ir::match_tree::{Condition, conditions};
use weir_policy::ir::{Effect, Program, Rule, RuleId};

/// A rule with its category.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Classified {
    /// The rule.
    pub rule: RuleId,
    /// Its category.
    pub category: Category,
    /// What the card can do with each of its patterns, and why.
    pub why: Vec<(Kind, String)>,
}

/// Classifies the rules of a chain, in order. `counters` says which rules have a `counter` statement, by index
/// ([`weir_policy::ir::lower::Lowered::counters`]).
pub fn classify(
    program: &Program,
    counters: &[bool],
    chain: usize,
    profile: &Profile,
    sizes: &dyn TableSizes,
) -> Vec<Classified> {
    let chain = &program.chains[chain];
    let reader = Reader { program, chain, profile, sizes };
    let of = |condition: Condition<'_>| {
        let patterns: Vec<Pattern<'_>> = reader.patterns(&condition.tests).into_iter().map(|(_, own)| own).collect();
        let has_counter = counters[usize::from(condition.rule.0)];
        Classified {
            rule: condition.rule,
            category: category(program.rule(condition.rule), has_counter, &patterns),
            why: patterns.into_iter().map(|pattern| (pattern.kind, pattern.why)).collect(),
        }
    };
    conditions(&chain.tree.nodes).into_iter().map(of).collect()
}

/// The category of a rule with these patterns.
pub(crate) fn category(rule: &Rule, has_counter: bool, patterns: &[Pattern<'_>]) -> Category {
    let kinds: Vec<Kind> = patterns.iter().map(|pattern| pattern.kind).collect();
    let outcome = match rule.verdict() {
        Some(Action::Drop) => Outcome::Deny,
        Some(Action::Accept | Action::Divert | Action::Reply) => Outcome::Accept,
        None => Outcome::NonTerminating,
    };
    let acts = rule.effects.iter().any(|effect| !matches!(effect, Effect::Verdict(_)));
    // A rule that neither ends nor acts counts, or it would do nothing.
    let counted = has_counter || acts || outcome == Outcome::NonTerminating;
    Category { offloadability: Offloadability::of(&kinds), outcome, counted }
}
