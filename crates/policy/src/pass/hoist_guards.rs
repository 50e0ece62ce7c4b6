//! Merges neighbours that ask the same: `when A { x } when A { y }` becomes `when A { x y }`. Tests change nothing, so the second
//! time the answer is the same; but for `meta exceeded`, which a limit in the first body may change.

use crate::field::{Field, Subject};
use crate::ir::{Chain, Node, Test};

/// Rules that merged tests may hold together; a longer body would make a function that compilers take too long for.
const MERGED_RULES_MAX: usize = 64;

/// Rules that a node leads to.
pub fn rules_in(node: &Node) -> usize {
    match node {
        Node::Rule(_) => 1,
        Node::Find(_) => 0,
        Node::When { body, .. } => body.iter().map(rules_in).sum(),
    }
}

/// Runs the pass over a chain.
pub fn run(chain: &mut Chain) {
    let body = std::mem::take(&mut chain.body);
    chain.body = block(body);
}

/// Whether the answer depends on what rules did.
fn may_change(test: &Test) -> bool {
    matches!(test, Test::Value { subject: Subject::Field(Field::MetaExceeded), .. })
}

fn block(nodes: Vec<Node>) -> Vec<Node> {
    let mut merged: Vec<Node> = Vec::with_capacity(nodes.len());
    let mut rules = 0;
    for node in nodes {
        let more = rules_in(&node);
        match (merged.last_mut(), node) {
            (Some(Node::When { test: last, body: into }), Node::When { test, body })
                if *last == test && !may_change(&test) && rules + more <= MERGED_RULES_MAX =>
            {
                into.extend(body);
                rules += more;
            }
            (_, node) => {
                merged.push(node);
                rules = more;
            }
        }
    }
    for node in &mut merged {
        if let Node::When { body, .. } = node {
            *body = block(std::mem::take(body));
        }
    }
    merged
}
