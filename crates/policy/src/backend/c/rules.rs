//! What the code of a block of rules has to provide for.

use super::writer::Writer;
use crate::ir::{Effect, Node, Program, Rule, match_tree};

/// Whether the block always ends the chain.
pub(super) fn ends(program: &Program, nodes: &[Node]) -> bool {
    matches!(nodes.last(), Some(Node::Rule(id)) if program.rule(*id).verdict().is_some())
}

/// Whether a rule in the block samples.
pub(super) fn samples(program: &Program, nodes: &[Node]) -> bool {
    match_tree::rules(nodes)
        .any(|id| program.rule(id).effects.iter().any(|effect| matches!(effect, Effect::Sample { .. })))
}

/// Whether a rule in the block has a limit.
pub(super) fn limits(program: &Program, nodes: &[Node]) -> bool {
    match_tree::rules(nodes)
        .any(|id| program.rule(id).effects.iter().any(|effect| matches!(effect, Effect::Limit { .. })))
}

/// Whether the rule samples what its limits have left of the packets that it matched.
pub(super) fn samples_what_is_left(rule: &Rule) -> bool {
    let ends = |effect: &Effect| matches!(effect, Effect::Limit { exceed, .. } if exceed.verdict().is_some());
    let behind = rule.effects.iter().skip_while(|effect| !ends(effect));
    behind.into_iter().any(|effect| matches!(effect, Effect::Sample { .. }))
}

/// Says of a part's parameters that it may use less than the chain does.
pub(super) fn may_be_unused(parameters: &[String], out: &mut Writer) {
    for parameter in parameters {
        let name = parameter.split(['*', ' ']).next_back().expect("parameters have names");
        out.line(&format!("(void){name};"));
    }
}
