//! The rules of a chain as one function, which calls parts if there are many rules. The time of compilers and verifiers
//! grows faster than the length of a function.
//!
//! BPF decides one packet (`packet_rules`), native code a burst rule by rule (`burst_rules`). Both are sinks of one
//! walk (`walk`).

use super::burst_rules::{self, Stage};
use super::chain::ChainEmitter;
use super::dialect::Dialect;
use super::packet_rules;
use super::writer::Writer;
use crate::ir::{Node, match_tree};

/// Rules in a part.
const PART_RULES: usize = 64;
/// Most parts of a chain; longer chains have longer parts. The kernel allows 256 functions in a program.
const PARTS_MAX: usize = 128;

/// Writes `<chain>_rules()`, which decides every packet that it gets. Native code tracks between two functions:
/// `<chain>_before()` has the rules before the tracking point.
pub(super) fn emit(chain: &ChainEmitter<'_>, out: &mut Writer) {
    let nodes = &chain.chain.tree.nodes;
    match (chain.dialect, chain.tracking_point()) {
        (Dialect::Native, None) => burst_rules::emit(chain, Stage::Rules, &parts(nodes), out),
        (Dialect::Native, Some(point)) => {
            if point > 0 {
                burst_rules::emit(chain, Stage::BeforeTracking, &parts(&nodes[..point]), out);
            }
            burst_rules::emit(chain, Stage::Rules, &parts(&nodes[point + 1..]), out);
        }
        (Dialect::Bpf | Dialect::BpfParts { .. }, _) => packet_rules::emit(chain, &parts(nodes), out),
    }
}

/// Splits top nodes into parts of about [`PART_RULES`] rules.
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
