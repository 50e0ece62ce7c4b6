//! The split: from one chain to two, the card's and the software's.
//!
//! The software keeps its program, with one chain more: the *answered* chain, for packets that have the card's answers.
//! Its rules are those of the plain chain in the same order, with the same effects, counters and state. Only the tests
//! differ: what the card has answered is read instead of parsed and looked up. Rules whose packets the card drops are
//! missing.
//!
//! ```text
//!  plain     tcp dport 22 drop     ip saddr @bad drop     udp sport { 53, 123 } counter     limit rate 5kpps    accept
//!  card      drops                 D16 and X4 of @bad     counted bit 0                     -                   ends: 1
//!  answered                        card label 0 drop      card counted 0                    the same            card first 1
//! ```
//! All effects stay in the software, whatever the card answers, so limits, tables that rules fill, flows, slots and
//! samples are not split. Tests of what they change are the software's, too.

use crate::TableSizes;
use crate::category::{Category, Kind, Offload, Offloadability, Outcome, Place};
use crate::classify::category;
use crate::pattern::{Pattern, Reader};
use crate::profile::Profile;
use crate::program::{CardProgram, TableKey};
use crate::room::Room;
use weir_abi::{Family, Layout};
use weir_policy::field::Guard;
use weir_policy::ir::answers::Answering;
use weir_policy::ir::match_tree::{Condition, conditions};
use weir_policy::ir::{
    Chain, Effect, Fallback, FindId, MatchTree, Node, Program, RuleId, Slot, SlotContents, SlotId, Test, verify,
};

/// Both parts of a policy, for one chain.
#[derive(Clone, Debug)]
pub struct Split {
    /// What the card does.
    pub card: CardProgram,
    /// The policy with the answered chain.
    pub software: Program,
    /// Index of the chain for packets without answers.
    pub plain: usize,
    /// Index of the chain for packets with answers.
    pub answered: usize,
    /// Each rule of the chain, in order.
    pub rules: Vec<Placed>,
}

/// Where a rule is decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The rule.
    pub rule: RuleId,
    /// Its category, by what the card can do.
    pub category: Category,
    /// Where it is decided, by what the card has room for.
    pub offload: Offload,
    /// The metadata that it needs.
    pub metadata: Vec<u8>,
    /// Why, for the operator.
    pub why: String,
}

/// Splits a chain of a program as it was lowered, before passes. `counters` says which rules have a `counter`
/// statement. Only rules that are `wanted` are offloaded, and in the order of the chain as far as the card has room.
///
/// # Panics
/// The program was optimised.
pub fn split(
    program: &Program,
    counters: &[bool],
    chain: usize,
    profile: &Profile,
    sizes: &dyn TableSizes,
    wanted: &dyn Fn(RuleId) -> bool,
) -> Split {
    let Placement { card, rules, nodes } = place(program, counters, chain, profile, sizes, wanted);
    let mut software = program.clone();
    let lookups = card.lookups.iter().map(|TableKey { name, .. }| {
        // The card has this table as it is now, so its image is not one that changes.
        let contents = SlotContents::Tables(vec![name.clone()]);
        let slot = Slot { contents, family: Family::Ipv4, layout: Layout::Dxr16x4, dynamic: None, counted: None };
        software.slots.push(slot);
        SlotId((software.slots.len() - 1) as u16)
    });
    let lookups = lookups.collect();
    software.card = Some(Answering { chain: software.chains.len(), plain: chain, body: card.body.clone(), lookups });
    software.chains.push(Chain { tree: MatchTree { staged: vec![], nodes }, ..program.chains[chain].clone() });
    if let Err(broken) = verify::verify(&software) {
        panic!("compiler bug: {broken}\n{software}");
    }
    Split { card, answered: software.chains.len() - 1, software, plain: chain, rules }
}

/// Where the rules of a chain are decided.
pub(crate) struct Placement {
    pub card: CardProgram,
    pub rules: Vec<Placed>,
    /// The answered chain.
    pub nodes: Vec<Node>,
}

/// Places the rules of a chain.
pub(crate) fn place(
    program: &Program,
    counters: &[bool],
    chain: usize,
    profile: &Profile,
    sizes: &dyn TableSizes,
    wanted: &dyn Fn(RuleId) -> bool,
) -> Placement {
    let plain = &program.chains[chain];
    assert!(plain.tree.staged.is_empty(), "compiler bug: a chain is split before passes");
    let reader = Reader { program, chain: plain, profile, sizes };
    let mut splitting =
        Splitting { reader, counters, wanted, room: Room::new(profile), place: Place::Head, rules: vec![] };
    let mut nodes = Vec::new();
    for node in &plain.tree.nodes {
        if *node == Node::Track {
            // What comes behind may be refused by the tracker, so the card must not drop it before.
            splitting.place = Place::Behind;
            nodes.push(Node::Track);
        }
        for condition in conditions(std::slice::from_ref(node)) {
            nodes.extend(splitting.rule(&condition));
        }
    }
    let options_alone = program.defaults.ip_options != Fallback::Rules;
    Placement { card: splitting.room.program(options_alone), rules: splitting.rules, nodes }
}

struct Splitting<'a> {
    reader: Reader<'a>,
    counters: &'a [bool],
    wanted: &'a dyn Fn(RuleId) -> bool,
    room: Room<'a>,
    /// Of the next rule.
    place: Place,
    rules: Vec<Placed>,
}

impl<'a> Splitting<'a> {
    /// Places a rule. The result is its node in the answered chain, unless the card drops its packets.
    fn rule(&mut self, condition: &Condition<'a>) -> Option<Node> {
        let (indices, patterns): (Vec<usize>, Vec<Pattern<'a>>) =
            self.reader.patterns(&condition.tests).into_iter().unzip();
        let rule = self.reader.program.rule(condition.rule);
        let category = category(rule, self.counters[usize::from(condition.rule.0)], &patterns);
        let why = patterns.iter().map(|pattern| pattern.why.as_str()).collect::<Vec<_>>().join("; ");
        let mut placed = Placed {
            rule: condition.rule,
            category,
            offload: category.offload(),
            metadata: category.metadata(Place::Behind).to_vec(),
            why: if patterns.is_empty() { "it matches every packet".to_owned() } else { why },
        };
        let place = self.place;
        if category.may_drop() && place == Place::Head && (self.wanted)(condition.rule) {
            match self.room.drop(condition.rule, &patterns) {
                Ok(()) => {
                    placed.metadata = category.metadata(Place::Head).to_vec();
                    placed.why = format!("{}; the card drops, because it also does for every rule before", placed.why);
                    self.rules.push(placed);
                    return None;
                }
                Err(why) => placed.why = format!("{}; {why}", placed.why),
            }
        }
        self.place = Place::Behind;
        let node = match self.answers(condition.rule, category, &patterns) {
            // Nothing is to be found out.
            Ok(answers) if patterns.is_empty() => {
                (placed.offload, placed.metadata) = (Offload::Software, vec![]);
                self.answered(condition.rule, answers, &[])
            }
            Ok(answers) => {
                let is_left = |(_, pattern): &(usize, &Pattern<'_>)| pattern.kind == Kind::Not;
                let left = indices.into_iter().zip(&patterns).filter(is_left);
                let left: Vec<&Test> = left.map(|(index, _)| condition.tests[index]).collect();
                self.answered(condition.rule, answers, &left)
            }
            Err(why) => {
                if category.offloadability != Offloadability::N {
                    placed.why = format!("{}; {why}", placed.why);
                    (placed.offload, placed.metadata) = (Offload::Software, vec![]);
                }
                self.nested(condition.rule, condition.tests.iter().map(|&test| test.clone()).collect())
            }
        };
        self.rules.push(placed);
        Some(node)
    }

    /// The tests of answers that replace the patterns of a rule.
    fn answers(&mut self, rule: RuleId, category: Category, patterns: &[Pattern<'_>]) -> Result<Vec<Test>, String> {
        if !(self.wanted)(rule) {
            return Err("it is not chosen".to_owned());
        }
        match (category.offloadability, category.outcome) {
            (Offloadability::N, _) => Err("no pattern is the card's".to_owned()),
            _ if patterns.is_empty() => Ok(vec![]),
            (Offloadability::O, Outcome::NonTerminating) => self.room.count(patterns),
            (Offloadability::O, Outcome::Accept | Outcome::Deny) => self.room.end(patterns),
            (Offloadability::P0 | Offloadability::P1 | Offloadability::P2, _) => self.room.assist(patterns),
        }
    }

    /// The node of a rule with answers in place of some tests. Headers are tested again only where a test that is left,
    /// or an effect, reads them.
    fn answered(&self, rule: RuleId, answers: Vec<Test>, left: &[&Test]) -> Node {
        let chain = self.reader.chain;
        let key_of = |find: FindId| chain.finds[usize::from(find.0)].key;
        let of_test = |test: &&Test| match test {
            Test::Guard(guard) => *guard,
            Test::Value { subject, .. } => subject.guard(),
            Test::Found { find, .. } => key_of(*find).guard(),
        };
        let program = self.reader.program;
        let of_finds = program.rule(rule).finds().map(|find| key_of(find).guard());
        let of_addresses = program.addresses_read(rule).map(|field| field.guard());
        let mut guards = vec![Guard::Any];
        let mut tests = answers;
        for guard in left.iter().map(of_test).chain(of_finds).chain(of_addresses) {
            if !guards.iter().any(|held| held.implies(guard)) {
                guards.push(guard);
                tests.push(Test::Guard(guard));
            }
        }
        tests.extend(left.iter().map(|&test| test.clone()));
        self.nested(rule, tests)
    }

    /// The node of a rule: its tests, each lookup in front of the first test that needs it, and those of its effects.
    fn nested(&self, rule: RuleId, tests: Vec<Test>) -> Node {
        enum Step {
            Test(Test),
            Find(FindId),
        }
        let mut found: Vec<FindId> = Vec::new();
        let mut steps = Vec::new();
        let mut find = |id: FindId, steps: &mut Vec<Step>| {
            if !found.contains(&id) {
                found.push(id);
                steps.push(Step::Find(id));
            }
        };
        for test in tests {
            if let Test::Found { find: id, .. } = test {
                find(id, &mut steps);
            }
            steps.push(Step::Test(test));
        }
        let effects = &self.reader.program.rule(rule).effects;
        effects.iter().filter_map(Effect::find).for_each(|id| find(id, &mut steps));
        let mut body = vec![Node::Rule(rule)];
        for step in steps.into_iter().rev() {
            match step {
                Step::Test(test) => body = vec![Node::When { test, body }],
                Step::Find(id) => body.insert(0, Node::Find(id)),
            }
        }
        // A lookup has a key, so a guard is around it: the outermost node is a test or the rule.
        body.remove(0)
    }
}
