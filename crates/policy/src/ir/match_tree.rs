//! Which rules match a packet: tests, and the rules that they lead to. Nothing here knows what a rule does.
//!
//! A tree is a list of nodes, run in order. A packet matches a rule if all tests around it hold and no rule before it has ended
//! the chain. [`conditions`] says the same as a list, which is what a classifier would be built from.

use super::id::{FindId, RuleId};
use crate::checked::{LabelId, ValueSet};
use crate::field::{Field, Guard, Subject};

/// Leads packets to the rules that they match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatchTree {
    /// Finds done before the nodes, for a whole burst at a time. Those are not among the nodes.
    pub staged: Vec<FindId>,
    /// The nodes.
    pub nodes: Vec<Node>,
}

/// Which packets a rule matches, unless a rule before it ended the chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition<'t> {
    /// The rule.
    pub rule: RuleId,
    /// Tests that all hold, in the order in which they are made: each stands behind the guard of what it looks at.
    pub tests: Vec<&'t Test>,
}

/// The conditions of the rules among some nodes, in the order in which the rules are asked. Finds are not listed: a test names the
/// one whose answer it needs.
pub fn conditions(nodes: &[Node]) -> Vec<Condition<'_>> {
    let mut conditions = Vec::new();
    collect(nodes, &mut Vec::new(), &mut conditions);
    conditions
}

fn collect<'t>(nodes: &'t [Node], way: &mut Vec<&'t Test>, conditions: &mut Vec<Condition<'t>>) {
    for node in nodes {
        match node {
            Node::Find(_) => {}
            Node::Rule(rule) => conditions.push(Condition { rule: *rule, tests: way.clone() }),
            Node::When { test, body } => {
                way.push(test);
                collect(body, way, conditions);
                way.pop();
            }
        }
    }
}

/// The rules among some nodes, in the order in which they are asked.
pub fn rules(nodes: &[Node]) -> impl Iterator<Item = RuleId> {
    nodes.iter().flat_map(Node::rules)
}

/// One step of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// Runs the body if the test holds.
    When {
        /// The test.
        test: Test,
        /// The body.
        body: Vec<Node>,
    },
    /// Asks a table; the key's guard holds here.
    Find(FindId),
    /// The rule matched.
    Rule(RuleId),
}

impl Node {
    /// The rules that it leads to.
    pub fn rules(&self) -> Box<dyn Iterator<Item = RuleId> + '_> {
        match self {
            Node::Find(_) => Box::new(std::iter::empty()),
            Node::Rule(rule) => Box::new(std::iter::once(*rule)),
            Node::When { body, .. } => Box::new(rules(body)),
        }
    }
}

/// A test of the packet. The guard of what it looks at holds where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Test {
    /// The packet has the header.
    Guard(Guard),
    /// The value is, or negated is not, in the set.
    Value {
        /// What is looked at. Raw bits outside the captured packet make the test fail, negated or not.
        subject: Subject,
        /// Bits that count.
        mask: Option<u128>,
        /// The values.
        set: ValueSet,
        /// Turns the test around.
        negated: bool,
    },
    /// What was found is, or negated is not, what was looked for.
    Found {
        /// Done before on every way here.
        find: FindId,
        /// What was looked for.
        wanted: Wanted,
        /// Turns the test around.
        negated: bool,
    },
}

impl Test {
    /// Whether its answer depends on what rules did with the packet before, and not on the packet and tables alone.
    pub fn depends_on_effects(&self) -> bool {
        matches!(self, Test::Value { subject: Subject::Field(Field::MetaExceeded), .. })
    }
}

/// What a find is to have found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Any label but 0.
    Any,
    /// A label of the list, which is sorted.
    Labels(Vec<LabelId>),
    /// The bit of one of a fused slot's tables.
    Table(u8),
}

impl Wanted {
    /// Whether `found` is it.
    pub fn is(&self, found: u32) -> bool {
        match self {
            Wanted::Any => found != 0,
            Wanted::Labels(labels) => labels.iter().any(|label| label.0 == found),
            Wanted::Table(index) => found >> index & 1 != 0,
        }
    }
}
