//! Decides where tables are asked: all at the start, for a whole burst at a time, or each where its answer is first needed.

use crate::ir::{FindId, MatchTree, Node};

/// Where finds stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Before the body: a burst asks one table for all packets before it asks the next, so that memory is waited for once.
    Staged,
    /// Where first needed: a packet that an early rule decides asks no more tables.
    Lazy,
}

/// Runs the pass over a chain's tree.
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

/// Takes all finds out.
fn strip(nodes: Vec<Node>, staged: &mut Vec<FindId>) -> Vec<Node> {
    let mut kept = Vec::with_capacity(nodes.len());
    for node in nodes {
        match node {
            Node::Find(id) if staged.contains(&id) => {}
            Node::Find(id) => staged.push(id),
            Node::When { test, body } => kept.push(Node::When { test, body: strip(body, staged) }),
            Node::Rule(id) => kept.push(Node::Rule(id)),
        }
    }
    kept
}

/// Drops finds that were done on every way here.
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
            Node::Rule(id) => kept.push(Node::Rule(id)),
        }
    }
    known.truncate(outside);
    kept
}
