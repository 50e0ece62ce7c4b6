//! Merges adjacent equal tests: `when A { x } when A { y }` becomes `when A { x y }`. Tests change nothing, so both
//! have the same outcome. Tests of `meta exceeded` are excluded, because a limit in the first body may change it.

use crate::ir::{MatchTree, Node};

/// Most rules in a merged body. Compilers take too long for functions with longer bodies.
const MERGED_RULES_MAX: usize = 64;

/// Runs the pass over the tree of a chain.
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
