//! Places table lookups: all before the rules, or each where its result is first needed.

use crate::ir::{FindId, MatchTree, Node};

/// The position of finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Before the rules. A burst looks up all its packets in one table before the next table, so that cache misses
    /// overlap.
    Staged,
    /// Where first needed. A packet that an early rule decides needs no further lookups.
    Lazy,
}

/// Runs the pass over the tree of a chain.
pub fn run(tree: &mut MatchTree, placement: Placement) {
    let nodes = std::mem::take(&mut tree.nodes);
    tree.nodes = match placement {
        Placement::Staged => {
            let nodes = strip(nodes, &mut tree.staged);
            tree.staged.sort_unstable();
            nodes
        }
        Placement::Lazy => keep_first(nodes, &mut Vec::new()),
    };
}

/// Moves all finds to `staged`.
fn strip(nodes: Vec<Node>, staged: &mut Vec<FindId>) -> Vec<Node> {
    let mut kept = Vec::with_capacity(nodes.len());
    for node in nodes {
        match node {
            Node::Find(id) if staged.contains(&id) => {}
            Node::Find(id) => staged.push(id),
            Node::When { test, body } => kept.push(Node::When { test, body: strip(body, staged) }),
            leaf @ (Node::Rule(_) | Node::Track) => kept.push(leaf),
        }
    }
    kept
}

/// Drops finds that are done on every path to here.
fn keep_first(nodes: Vec<Node>, known: &mut Vec<FindId>) -> Vec<Node> {
    let outside = known.len();
    let mut kept = Vec::with_capacity(nodes.len());
    for node in nodes {
        match node {
            Node::Find(id) if known.contains(&id) => {}
            Node::Find(id) => {
                known.push(id);
                kept.push(Node::Find(id));
            }
            Node::When { test, body } => kept.push(Node::When { test, body: keep_first(body, known) }),
            leaf @ (Node::Rule(_) | Node::Track) => kept.push(leaf),
        }
    }
    known.truncate(outside);
    kept
}
