//! One walk over the rules of a chain. It says which rule is asked when and what the rule does; a [`Sink`] writes that in C.
//!
//! A statement of the language reaches C in two places: the walk takes its effect apart, and each sink writes it in one method.

use super::chain::ChainEmitter;
use super::writer::{self, Writer};
use crate::ir::{Effect, Exceed, FindId, LimitEach, LimiterId, LimiterKind, Node, Program, RuleId, Test};
use weir_abi::Action;

/// Writes what the walk comes by: for one packet (`packet_rules`) or for a burst (`burst_rules`).
pub(super) trait Sink {
    /// Where it writes.
    fn writer(&mut self) -> &mut Writer;
    /// Asks a table.
    fn find(&mut self, find: FindId);
    /// Opens a block of rules, which are asked about packets that pass the tests. The walk closes it.
    fn open_block(&mut self, way: &Way<'_>);
    /// Begins a rule. Returns whether it opened a block, which the walk closes.
    fn open_rule(&mut self, rule: RuleId, way: &Way<'_>) -> bool;
    /// Counts what the rule matched.
    fn count(&mut self, rule: RuleId);
    /// Copies one packet in so many to the divert interface.
    fn sample(&mut self, rule: RuleId, one_in: u32);
    /// Charges a limiter.
    fn limit(&mut self, charge: &Charge);
    /// Ends the chain.
    fn verdict(&mut self, rule: RuleId, verdict: Action);
}

/// What leads to a rule or to a block of rules.
pub(super) struct Way<'n> {
    /// Tests that all must hold, besides those of the blocks around it.
    pub(super) tests: Vec<&'n Test>,
    /// How many blocks are around it.
    pub(super) depth: usize,
}

/// A limit of a rule.
pub(super) struct Charge {
    pub(super) limiter: LimiterId,
    pub(super) bucket: Bucket,
    pub(super) exceeding: Exceeding,
    /// Names the limits in a comment.
    pub(super) comment: String,
}

/// Which of a limiter's buckets a packet is charged to.
pub(super) enum Bucket {
    /// The only one.
    Only,
    /// That of the label which a table found.
    Found(FindId),
    /// That of an address.
    Each(LimitEach),
}

/// What happens to packets that have no room.
pub(super) enum Exceeding {
    /// They are decided, and counted by the named counter besides that of the reason.
    Decide(Action, String),
    /// They are marked.
    Mark,
    /// No rule asks for the mark.
    Ignore,
}

/// Walks over some of a chain's rules.
pub(super) fn walk(chain: &ChainEmitter<'_>, nodes: &[Node], sink: &mut impl Sink) {
    block(chain, nodes, 0, sink);
}

fn block(chain: &ChainEmitter<'_>, nodes: &[Node], depth: usize, sink: &mut impl Sink) {
    for node in nodes {
        match node {
            Node::Find(id) => sink.find(*id),
            Node::Rule(id) => rule(chain, *id, &Way { tests: vec![], depth }, sink),
            Node::When { test, body } => {
                let (tests, body) = joined(test, body);
                let way = Way { tests, depth };
                // A rule alone in its block is cited before the tests that lead to it.
                if let [Node::Rule(id)] = body {
                    rule(chain, *id, &way, sink);
                } else {
                    sink.open_block(&way);
                    block(chain, body, depth + 1, sink);
                    sink.writer().close();
                }
            }
        }
    }
}

fn rule(chain: &ChainEmitter<'_>, id: RuleId, way: &Way<'_>, sink: &mut impl Sink) {
    cite(chain.program, id, sink.writer());
    let opened = sink.open_rule(id, way);
    sink.count(id);
    for effect in &chain.program.rule(id).effects {
        match effect {
            Effect::Sample { one_in } => sink.sample(id, *one_in),
            Effect::Limit { limiter, find, exceed } => sink.limit(&charge(chain, id, *limiter, *find, *exceed)),
            Effect::Verdict(verdict) => sink.verdict(id, *verdict),
            Effect::Track => unreachable!("compiler bug: refused by emit"),
        }
    }
    if opened {
        sink.writer().close();
    }
}

fn charge(chain: &ChainEmitter<'_>, rule: RuleId, limiter: LimiterId, find: Option<FindId>, exceed: Exceed) -> Charge {
    let bucket = match (chain.program.limiter(limiter).kind, find) {
        (LimiterKind::Each(each), _) => Bucket::Each(each),
        (_, Some(find)) => Bucket::Found(find),
        (_, None) => Bucket::Only,
    };
    let exceeding = match exceed.verdict() {
        Some(verdict) => Exceeding::Decide(verdict, chain.limited_counter(rule, verdict)),
        None if chain.marks() => Exceeding::Mark,
        None => Exceeding::Ignore,
    };
    Charge { limiter, bucket, exceeding, comment: described(chain.program, limiter) }
}

/// The tests that lead to a body. A test that guards nothing but another test joins it.
pub(super) fn joined<'n>(test: &'n Test, mut body: &'n [Node]) -> (Vec<&'n Test>, &'n [Node]) {
    let mut tests = vec![test];
    while let [Node::When { test, body: deeper }] = body {
        tests.push(test);
        body = deeper;
    }
    (tests, body)
}

/// The comment that stands before a rule's code.
fn cite(program: &Program, id: RuleId, out: &mut Writer) {
    let rule = program.rule(id);
    out.line(&format!("/* {}  {} */", rule.at, writer::comment(&rule.text)));
}

/// Whose limits they are.
fn described(program: &Program, id: LimiterId) -> String {
    let limiter = program.limiter(id);
    match limiter.kind {
        LimiterKind::Rate(limit) => limit.to_string(),
        LimiterKind::Prefixes { .. } | LimiterKind::Labels => format!("@{}", limiter.name),
        LimiterKind::Each(each) => each.to_string(),
    }
}
