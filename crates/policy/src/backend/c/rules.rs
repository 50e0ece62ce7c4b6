//! Properties of a block of rules that its code depends on.

use crate::ir::{Effect, FindId, Node, Program, Rule, match_tree};

/// Whether the block decides every packet.
pub(in crate::backend) fn ends(program: &Program, nodes: &[Node]) -> bool {
    matches!(nodes.last(), Some(Node::Rule(id)) if program.rule(*id).verdict().is_some())
}

/// Whether a rule in the block samples.
pub(in crate::backend) fn samples(program: &Program, nodes: &[Node]) -> bool {
    match_tree::rules(nodes)
        .any(|id| program.rule(id).effects.iter().any(|effect| matches!(effect, Effect::Sample { .. })))
}

/// Whether a rule in the block has a limit.
pub(in crate::backend) fn limits(program: &Program, nodes: &[Node]) -> bool {
    match_tree::rules(nodes)
        .any(|id| program.rule(id).effects.iter().any(|effect| matches!(effect, Effect::Limit { .. })))
}

/// Whether a rule in the block adds to a table.
pub(in crate::backend) fn adds(program: &Program, nodes: &[Node]) -> bool {
    match_tree::rules(nodes).any(|id| program.rule(id).effects.iter().any(|effect| effect.adder().is_some()))
}

/// Whether a rule in the block asks a slot.
pub(in crate::backend) fn asks_slots(program: &Program, nodes: &[Node]) -> bool {
    match_tree::rules(nodes).any(|id| program.rule(id).effects.iter().any(|effect| effect.rule_slot().is_some()))
}

/// The finds at whose entries rules in the block count, each with the number of these rules.
pub(in crate::backend) fn counts(program: &Program, nodes: &[Node]) -> Vec<(FindId, usize)> {
    let mut counts: Vec<(FindId, usize)> = Vec::new();
    for effect in match_tree::rules(nodes).flat_map(|id| &program.rule(id).effects) {
        let Effect::Count { find } = effect else { continue };
        match counts.iter_mut().find(|(known, _)| known == find) {
            Some((_, rules)) => *rules += 1,
            None => counts.push((*find, 1)),
        }
    }
    counts.sort_unstable();
    counts
}

/// Whether the rule samples after a limit or slot that may have decided some of its packets.
pub(in crate::backend) fn samples_after_limit(rule: &Rule) -> bool {
    let ends = |effect: &Effect| effect.exceeded_verdict().is_some() || effect.rule_slot().is_some();
    let from_limit = rule.effects.iter().skip_while(|effect| !ends(effect));
    from_limit.into_iter().any(|effect| matches!(effect, Effect::Sample { .. }))
}
