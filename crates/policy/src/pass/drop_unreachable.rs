//! Removes nodes without effect: tests with a known outcome, empty bodies, unused finds, and nodes after an
//! unconditional verdict.

use crate::field::Guard;
use crate::ir::{FindId, MatchTree, Node, Rule, Test};

/// Runs the pass over the tree of a chain. Of the rules it uses only the verdicts and the finds.
pub fn run(tree: &mut MatchTree, rules: &[Rule]) {
    let nodes = std::mem::take(&mut tree.nodes);
    tree.nodes = block(nodes, rules, &mut vec![Guard::Any]);
}

/// The remaining nodes of a block inside `guards`.
fn block(nodes: Vec<Node>, rules: &[Rule], guards: &mut Vec<Guard>) -> Vec<Node> {
    let mut kept = Vec::with_capacity(nodes.len());
    for node in nodes {
        match node {
            Node::When { test, body } => match known_outcome(&test, guards) {
                Some(false) => {}
                Some(true) => kept.extend(block(body, rules, guards)),
                None => {
                    let depth = guards.len();
                    if let Test::Guard(guard) = test {
                        guards.push(guard);
                    }
                    let body = block(body, rules, guards);
                    guards.truncate(depth);
                    if !body.iter().all(|node| matches!(node, Node::Find(_))) {
                        kept.push(Node::When { test, body });
                    }
                }
            },
            leaf => kept.push(leaf),
        }
        let ends = |node: &Node| matches!(node, Node::Rule(id) if rules[usize::from(id.0)].verdict().is_some());
        if let Some(end) = kept.iter().position(ends) {
            kept.truncate(end + 1);
            break;
        }
    }
    drop_unused_finds(&mut kept, rules);
    kept
}

/// The outcome of a test inside the guards, if it is known.
fn known_outcome(test: &Test, guards: &[Guard]) -> Option<bool> {
    match test {
        Test::Guard(guard) if guards.iter().any(|held| held.implies(*guard)) => Some(true),
        Test::Guard(guard) if guards.iter().any(|held| held.excludes(*guard)) => Some(false),
        // Raw bits may be missing, so a test with a full set can fail.
        Test::Value { set, negated, .. } if set.ranges().is_empty() && !negated => Some(false),
        Test::Value { subject: crate::field::Subject::Field(field), mask: None, set, negated } => {
            if set.is_full(field.bits()) {
                Some(!negated)
            } else if set.ranges().is_empty() {
                Some(*negated)
            } else {
                None
            }
        }
        _ => None,
    }
}

fn drop_unused_finds(nodes: &mut Vec<Node>, rules: &[Rule]) {
    for at in (0..nodes.len()).rev() {
        if let Node::Find(id) = nodes[at]
            && !nodes[at + 1..].iter().any(|node| uses(node, id, rules))
        {
            nodes.remove(at);
        }
    }
}

fn uses(node: &Node, id: FindId, rules: &[Rule]) -> bool {
    match node {
        Node::When { test: Test::Found { find, .. }, .. } if *find == id => true,
        Node::When { body, .. } => body.iter().any(|node| uses(node, id, rules)),
        Node::Rule(rule) => rules[usize::from(rule.0)].finds().any(|find| find == id),
        Node::Find(_) | Node::Track => false,
    }
}
