//! The rules of a chain as one function, or, where there are many, as parts that it calls one after the other: compilers and verifiers take
//! more than proportionally longer for longer functions.
//!
//! BPF decides packet by packet (`packet_rules`), native code a burst rule by rule (`burst_rules`). Both are sinks of one walk (`walk`).

use super::chain::ChainEmitter;
use super::writer::Writer;
use super::{Target, burst_rules, packet_rules};
use crate::ir::{Effect, Node, Program, Rule, match_tree};

/// Rules of a part.
const PART_RULES: usize = 64;
/// Parts of a chain; where there would be more, they are longer. The kernel takes 256 functions a program.
const PARTS_MAX: usize = 128;

/// Writes the chain's rules: `<chain>_rules()` decides every packet that it is given.
pub(super) fn emit(chain: &ChainEmitter<'_>, out: &mut Writer) {
    let parts = parts(&chain.chain.tree.nodes);
    match chain.target {
        Target::Native => burst_rules::emit(chain, &parts, out),
        Target::Bpf | Target::BpfParts { .. } => packet_rules::emit(chain, &parts, out),
    }
}

/// Neighbouring top nodes, about [`PART_RULES`] rules together.
fn parts(body: &[Node]) -> Vec<&[Node]> {
    let all = match_tree::rules(body).count();
    let limit = PART_RULES.max(all / PARTS_MAX);
    if all <= 2 * limit {
        return vec![body];
    }
    let mut parts = Vec::new();
    let (mut start, mut rules) = (0, 0);
    for (index, node) in body.iter().enumerate() {
        let more = node.rules().count();
        if rules > 0 && rules + more > limit {
            parts.push(&body[start..index]);
            (start, rules) = (index, 0);
        }
        rules += more;
    }
    parts.push(&body[start..]);
    parts
}

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
