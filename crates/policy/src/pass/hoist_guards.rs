//! Merges neighbours that ask the same: `when A { x } when A { y }` becomes `when A { x y }`. Tests change nothing, so the second
//! time the answer is the same; but for `meta exceeded`, which a limit in the first body may change.

use crate::ir::{MatchTree, Node};

/// Rules that merged tests may hold together; a longer body would make a function that compilers take too long for.
const MERGED_RULES_MAX: usize = 64;

/// Runs the pass over a chain's tree.
pub fn run(tree: &mut MatchTree) {
    let nodes = std::mem::take(&mut tree.nodes);
    tree.nodes = block(nodes);
}

fn block(nodes: Vec<Node>) -> Vec<Node> {
    let mut merged: Vec<Node> = Vec::with_capacity(nodes.len());
    let mut rules = 0;
    for node in nodes {
        let more = node.rules().count();
        match (merged.last_mut(), node) {
            (Some(Node::When { test: last, body: into }), Node::When { test, body })
                if *last == test && !test.depends_on_effects() && rules + more <= MERGED_RULES_MAX =>
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
