//! The rules of a chain as one function, or, where there are many, as parts that it calls one after the other: compilers and verifiers take
//! more than proportionally longer for longer functions.
//!
//! BPF decides packet by packet (`packet_rules`), native code a burst rule by rule (`burst_rules`). Both are sinks of one walk (`walk`).

use super::chain::ChainEmitter;
use super::dialect::Dialect;
use super::writer::Writer;
use super::{burst_rules, packet_rules};
use crate::ir::{Node, match_tree};

/// Rules of a part.
const PART_RULES: usize = 64;
/// Parts of a chain; where there would be more, they are longer. The kernel takes 256 functions a program.
const PARTS_MAX: usize = 128;

/// Writes the chain's rules: `<chain>_rules()` decides every packet that it is given.
pub(super) fn emit(chain: &ChainEmitter<'_>, out: &mut Writer) {
    let parts = parts(&chain.chain.tree.nodes);
    match chain.dialect {
        Dialect::Native => burst_rules::emit(chain, &parts, out),
        Dialect::Bpf | Dialect::BpfParts { .. } => packet_rules::emit(chain, &parts, out),
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
