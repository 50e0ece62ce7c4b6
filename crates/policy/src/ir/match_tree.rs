//! Which rules match a packet: tests, and the rules that they lead to. Effects of rules are in [`super::effect`].
//!
//! A tree is a list of nodes, run in order. A packet matches a rule if all tests around the rule hold and no earlier
//! rule has ended the chain. [`conditions`] gives the same as a list of rules with their tests, the input that a
//! classifier needs.

use super::id::{FindId, RuleId};
use crate::checked::{LabelId, ValueSet};
use crate::field::{Field, Guard, Subject};

/// Finds the rules that a packet matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatchTree {
    /// Finds that are done before the nodes, for a whole burst at a time. They are not among the nodes.
    pub staged: Vec<FindId>,
    /// The nodes.
    pub nodes: Vec<Node>,
}

/// The condition under which a packet matches a rule, unless an earlier rule ended the chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition<'t> {
    /// The rule.
    pub rule: RuleId,
    /// Tests that must all hold, in order. Each comes after the guard of its subject.
    pub tests: Vec<&'t Test>,
}

/// The conditions of the rules among some nodes, in the order in which rules are evaluated. Finds are not listed,
/// because each test names its find.
pub fn conditions(nodes: &[Node]) -> Vec<Condition<'_>> {
    let mut conditions = Vec::new();
    collect(nodes, &mut Vec::new(), &mut conditions);
    conditions
}

fn collect<'t>(nodes: &'t [Node], path: &mut Vec<&'t Test>, conditions: &mut Vec<Condition<'t>>) {
    for node in nodes {
        match node {
            Node::Find(_) | Node::Track => {}
            Node::Rule(rule) => conditions.push(Condition { rule: *rule, tests: path.clone() }),
            Node::When { test, body } => {
                path.push(test);
                collect(body, path, conditions);
                path.pop();
            }
        }
    }
}

/// The rules among some nodes, in the order in which they are evaluated.
pub fn rules(nodes: &[Node]) -> impl Iterator<Item = RuleId> {
    nodes.iter().flat_map(Node::rules)
}

/// A node of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// Runs the body if the test holds.
    When {
        /// The test.
        test: Test,
        /// The body.
        body: Vec<Node>,
    },
    /// Looks up a key in a table. The guard of the key holds here.
    Find(FindId),
    /// The rule matched.
    Rule(RuleId),
    /// Tracks the packet. At most once in a chain, outside of all tests, before the first rule that needs the state.
    Track,
}

impl Node {
    /// The rules in the node.
    pub fn rules(&self) -> Box<dyn Iterator<Item = RuleId> + '_> {
        match self {
            Node::Find(_) | Node::Track => Box::new(std::iter::empty()),
            Node::Rule(rule) => Box::new(std::iter::once(*rule)),
            Node::When { body, .. } => Box::new(rules(body)),
        }
    }
}

/// A test of the packet. The guard of its subject holds here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Test {
    /// The packet has the header.
    Guard(Guard),
    /// The value is in the set.
    Value {
        /// The field or raw bits. The test fails for raw bits outside the captured packet, negated or not.
        subject: Subject,
        /// The bits that are compared; all of them if `None`.
        mask: Option<u128>,
        /// The values.
        set: ValueSet,
        /// Inverts the test.
        negated: bool,
    },
    /// The result of a find is the wanted one.
    Found {
        /// The find, done on every path to the test.
        find: FindId,
        /// The wanted result.
        wanted: Wanted,
        /// Inverts the test.
        negated: bool,
    },
}

impl Test {
    /// Whether it needs an answer of a card.
    pub fn asks_card(&self) -> bool {
        matches!(self, Test::Value { subject: Subject::Card(_), .. })
    }

    /// Whether its outcome depends on effects of earlier rules, and not only on the packet and tables.
    pub fn depends_on_effects(&self) -> bool {
        matches!(self, Test::Value { subject: Subject::Field(Field::MetaExceeded), .. })
    }
}

impl Node {
    /// Whether it needs the state of the packet.
    pub fn needs_state(&self, rules: &[super::Rule], limiters: &[super::Limiter]) -> bool {
        match self {
            Node::Rule(rule) => {
                let rule = &rules[usize::from(rule.0)];
                rule.tracks() || rule.counts_connections(limiters)
            }
            Node::When { test: Test::Value { subject: Subject::Field(Field::CtState), .. }, .. } => true,
            Node::When { body, .. } => body.iter().any(|node| node.needs_state(rules, limiters)),
            Node::Find(_) | Node::Track => false,
        }
    }
}

/// The wanted result of a find.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Any label but 0.
    Any,
    /// One of these labels, which are sorted.
    Labels(Vec<LabelId>),
    /// The bit of one table of a fused slot.
    Table(u8),
}

impl Wanted {
    /// Whether the result `found` is wanted.
    pub fn is(&self, found: u32) -> bool {
        match self {
            Wanted::Any => found != 0,
            Wanted::Labels(labels) => labels.iter().any(|label| label.0 == found),
            Wanted::Table(index) => found >> index & 1 != 0,
        }
    }
}
