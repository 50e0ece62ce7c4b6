//! The walk over the rules of a chain. It determines the order of rules and the effects of each; a [`Sink`] writes them
//! as C.
//!
//! A statement of the language needs code in two places: the walk splits its effect into parts, and each sink has a
//! method that writes it.

use super::chain::ChainEmitter;
use super::writer::{self, Writer};
use crate::ir::{
    Adder, AdderId, Effect, Exceed, FindId, LimitEach, LimiterId, LimiterKind, Node, Program, RuleId, RuleSlotId, Test,
};
use weir_abi::slot::VERDICT;
use weir_abi::{Action, Reason};

/// Writes the steps of the walk as C: for one packet (`packet_rules`) or for a burst (`burst_rules`).
pub(super) trait Sink {
    /// The writer.
    fn writer(&mut self) -> &mut Writer;
    /// Looks up a key in a table.
    fn find(&mut self, find: FindId);
    /// Opens a block of rules for the packets that pass the tests. The walk closes it.
    fn open_block(&mut self, path: &TestPath<'_>);
    /// Begins a rule. Returns whether it opened a block, which the walk closes.
    fn open_rule(&mut self, rule: RuleId, path: &TestPath<'_>) -> bool;
    /// Tracks the packet.
    fn track(&mut self);
    /// Drops packets of TCP that the tracker refuses.
    fn drop_refused(&mut self);
    /// Answers packets of a rule with `tcp synproxy`.
    fn answer(&mut self);
    /// Counts the packets that match the rule.
    fn count(&mut self, rule: RuleId);
    /// Copies one packet in `one_in` to the divert interface.
    fn sample(&mut self, rule: RuleId, one_in: u32);
    /// Charges a limiter.
    fn limit(&mut self, charge: &Charge);
    /// Counts the packets at the entries that a find has found.
    fn count_entries(&mut self, find: FindId);
    /// Adds an address of the packets to a table.
    fn add(&mut self, addition: &Addition);
    /// Drops packets as the rules of a slot say, and counts them by this counter besides the counter of the reason.
    fn slot(&mut self, slot: RuleSlotId, counter: &str);
    /// Decides the packets.
    fn verdict(&mut self, rule: RuleId, verdict: Action);
}

/// The tests on the path to a rule or a block of rules.
pub(super) struct TestPath<'n> {
    /// Tests that must all hold, besides the tests of the enclosing blocks.
    pub(super) tests: Vec<&'n Test>,
    /// Number of enclosing blocks.
    pub(super) depth: usize,
}

/// A limit statement of a rule.
pub(super) struct Charge {
    pub(super) limiter: LimiterId,
    pub(super) bucket: Bucket,
    /// What packets that exceed the limit add to a table.
    pub(super) add: Option<Addition>,
    pub(super) exceeding: Exceeding,
    /// The limits, for a comment.
    pub(super) comment: String,
}

/// An address that is added to a table.
pub(super) struct Addition {
    pub(super) id: AdderId,
    pub(super) adder: Adder,
    /// The table and the timeout, for a comment.
    pub(super) comment: String,
}

/// The bucket of a limiter to which a packet is charged.
pub(super) enum Bucket {
    /// The only bucket.
    Only,
    /// The bucket of the label that a find returned.
    Found(FindId),
    /// The bucket of an address.
    Each(LimitEach),
}

/// What happens to packets that exceed a limit.
pub(super) enum Exceeding {
    /// The packets are decided, and counted by this counter besides the counter of the reason.
    Decide(Action, String),
    /// The packets are marked.
    Mark,
    /// No rule tests the mark.
    Ignore,
}

/// Walks over some rules of a chain.
pub(super) fn walk(chain: &ChainEmitter<'_>, nodes: &[Node], sink: &mut impl Sink) {
    block(chain, nodes, 0, sink);
}

fn block(chain: &ChainEmitter<'_>, nodes: &[Node], depth: usize, sink: &mut impl Sink) {
    for node in nodes {
        match node {
            Node::Find(id) => sink.find(*id),
            Node::Track => sink.track(),
            Node::Rule(id) => rule(chain, *id, &TestPath { tests: vec![], depth }, sink),
            Node::When { test, body } => {
                let (tests, body) = joined(test, body);
                let path = TestPath { tests, depth };
                // The citation of a rule that is alone in its block comes before the tests of the block.
                if let [Node::Rule(id)] = body {
                    rule(chain, *id, &path, sink);
                } else {
                    sink.open_block(&path);
                    block(chain, body, depth + 1, sink);
                    sink.writer().close();
                }
            }
        }
    }
}

fn rule(chain: &ChainEmitter<'_>, id: RuleId, path: &TestPath<'_>, sink: &mut impl Sink) {
    cite(chain.program, id, sink.writer());
    let opened = sink.open_rule(id, path);
    if chain.program.rule(id).tracks() {
        sink.drop_refused();
    }
    if chain.program.rule(id).answers() {
        sink.answer();
    }
    sink.count(id);
    for effect in &chain.program.rule(id).effects {
        match effect {
            Effect::Sample { one_in } => sink.sample(id, *one_in),
            Effect::Limit { limiter, find, add, exceed } => {
                let add = add.map(|add| addition(chain.program, add));
                sink.limit(&Charge { add, ..charge(chain, id, *limiter, *find, *exceed) });
            }
            Effect::Add { adder } => sink.add(&addition(chain.program, *adder)),
            Effect::Count { find } => sink.count_entries(*find),
            Effect::Slot(slot) => sink.slot(*slot, &chain.limited_counter(id, VERDICT, Reason::SLOT)),
            Effect::Verdict(verdict) => sink.verdict(id, *verdict),
            // It came before the rule counted.
            Effect::Track | Effect::Synproxy => {}
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
        Some(verdict) => Exceeding::Decide(verdict, chain.limited_counter(rule, verdict, Reason::LIMIT)),
        None if chain.marks() => Exceeding::Mark,
        None => Exceeding::Ignore,
    };
    Charge { limiter, bucket, add: None, exceeding, comment: limits_text(chain.program, limiter) }
}

fn addition(program: &Program, id: AdderId) -> Addition {
    let adder = *program.adder(id);
    let timeout = adder.timeout_ms.map(|ms| format!(" timeout {ms}ms")).unwrap_or_default();
    let comment = format!("{} @{}{timeout}", adder.kind.name(), program.slot(adder.slot).name());
    Addition { id, adder, comment }
}

/// Joins a test with the tests that are alone in its body. Returns all of them, and the innermost body.
pub(super) fn joined<'n>(test: &'n Test, mut body: &'n [Node]) -> (Vec<&'n Test>, &'n [Node]) {
    let mut tests = vec![test];
    while let [Node::When { test, body: deeper }] = body {
        tests.push(test);
        body = deeper;
    }
    (tests, body)
}

/// Writes the comment before the code of a rule.
pub(super) fn cite(program: &Program, id: RuleId, out: &mut Writer) {
    let rule = program.rule(id);
    out.line(&format!("/* {}  {} */", rule.at, writer::comment(&rule.text)));
}

/// The limits of a limiter, for a comment.
fn limits_text(program: &Program, id: LimiterId) -> String {
    let limiter = program.limiter(id);
    match limiter.kind {
        LimiterKind::Rate(limit) => limit.to_string(),
        LimiterKind::Prefixes { .. } | LimiterKind::Labels => format!("@{}", limiter.name),
        LimiterKind::Each(each) => each.to_string(),
    }
}
