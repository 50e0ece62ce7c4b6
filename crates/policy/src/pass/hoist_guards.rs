//! Merges neighbours that ask the same: `when A { x } when A { y }` becomes `when A { x y }`. Tests change nothing, so the second
//! time the answer is the same.

use crate::ir::{Chain, Node};

/// Runs the pass over a chain.
pub fn run(chain: &mut Chain) {
    let body = std::mem::take(&mut chain.body);
    chain.body = block(body);
}

fn block(nodes: Vec<Node>) -> Vec<Node> {
    let mut merged: Vec<Node> = Vec::with_capacity(nodes.len());
    for node in nodes {
        match (merged.last_mut(), node) {
            (Some(Node::When { test: last, body: into }), Node::When { test, body }) if *last == test => {
                into.extend(body)
            }
            (_, node) => merged.push(node),
        }
    }
    for node in &mut merged {
        if let Node::When { body, .. } = node {
            *body = block(std::mem::take(body));
        }
    }
    merged
}
