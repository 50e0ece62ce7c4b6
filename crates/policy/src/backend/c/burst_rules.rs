//! The rules of a chain as native code, which applies one rule after the other to a whole burst.
//!
//! A rule computes a mask of the packets that it matches, counts them at once, and removes those that it decides from
//! `verdicts->open`. `group` is the mask of the packets that enter a block of rules. Rules do not read counters, and
//! each rule processes its packets in order. The outcome is therefore the same as for one packet after the other.

use super::answer;
use super::chain::ChainEmitter;
use super::column::Column;
use super::dialect::action;
use super::rules::{ends, limits, samples_after_limit};
use super::walk::{Addition, Bucket, Charge, Exceeding, Sink, TestPath, cite, joined, walk};
use super::writer::Writer;
use crate::field::Subject;
use crate::ir::{FindId, Node, Program, RuleId, RuleSlotId, Test, eval, match_tree};
use weir_abi::{Action, Family};

/// Rules in a row that are decided in one step, if the card says which of them is the first to match. With fewer, a
/// mask for each costs less.
const FIRSTS_MIN: usize = 3;

/// The rules of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The rules before the tracking point. They may leave packets open.
    BeforeTracking,
    /// The other rules.
    Rules,
}

impl Stage {
    /// The suffix of the function.
    pub(super) fn suffix(self) -> &'static str {
        match self {
            Stage::BeforeTracking => "before",
            Stage::Rules => "rules",
        }
    }

    /// The prefix of the suffixes of its parts.
    fn part_prefix(self) -> &'static str {
        match self {
            Stage::BeforeTracking => "before_part",
            Stage::Rules => "part",
        }
    }

    /// The name of a part.
    pub(super) fn part(self, chain: &str, index: usize) -> String {
        format!("{chain}_{}_{index}", self.part_prefix())
    }
}

/// Writes the parts of the rules of a stage and the function that calls them.
pub(super) fn emit(chain: &ChainEmitter<'_>, stage: Stage, parts: &[&[Node]], out: &mut Writer) {
    let name = format!("{}_{}", chain.name, stage.suffix());
    let parameters = parameters(chain);
    if parts.len() > 1 {
        for (index, part) in parts.iter().enumerate() {
            out.blank();
            out.function_with(&format!("WEIR_NOINLINE void {}", stage.part(&chain.name, index)), &parameters, |out| {
                BurstSink { chain, out, coverage: Coverage::Some }.body(part);
            });
        }
    }
    out.blank();
    out.function_with(&format!("static void {name}"), &parameters, |out| {
        match parts {
            [whole] => BurstSink { chain, out, coverage: Coverage::Some }.body(whole),
            _ => calls(chain, stage, parts.len(), out),
        }
        if stage == Stage::Rules && !parts.last().is_some_and(|last| ends(chain.program, last)) {
            let no_match = action(chain.program.defaults.no_match);
            out.line(&format!("decide_open(env, verdicts, {no_match}, REASON_NO_MATCH);"));
        }
    });
}

/// Calls the parts of a stage until no packet is open.
fn calls(chain: &ChainEmitter<'_>, stage: Stage, parts: usize, out: &mut Writer) {
    let arguments = arguments(chain).join(", ");
    for index in 0..parts {
        out.line(&format!("{}({arguments});", stage.part(&chain.name, index)));
        out.line("if (!verdicts->open)");
        out.inner("return;");
    }
}

fn parameters(chain: &ChainEmitter<'_>) -> Vec<String> {
    let mut parameters = vec!["const struct env *env".to_owned()];
    if chain.needs_burst() {
        parameters.push("const struct weir_burst *burst".to_owned());
    }
    if chain.has_columns() {
        let access = if chain.marks() || chain.counts_entries() || chain.answers() { "" } else { "const " };
        parameters.push(format!("{access}struct {}_packets *packets", chain.name));
    }
    parameters.push("struct verdicts *verdicts".to_owned());
    parameters
}

/// The arguments with which a function with the same parameters calls another.
fn arguments(chain: &ChainEmitter<'_>) -> Vec<&'static str> {
    let mut arguments = vec!["env"];
    if chain.needs_burst() {
        arguments.push("burst");
    }
    if chain.has_columns() {
        arguments.push("packets");
    }
    arguments.push("verdicts");
    arguments
}

/// Writes the body of a function.
struct BurstSink<'a, 'b> {
    chain: &'a ChainEmitter<'b>,
    out: &'a mut Writer,
    /// Coverage of the current rule.
    coverage: Coverage,
}

impl BurstSink<'_, '_> {
    fn body(mut self, nodes: &[Node]) {
        let parts = by_firsts(self.chain.program, nodes);
        let walked: Vec<Node> =
            parts.iter().filter(|(firsts, _)| !firsts).flat_map(|(_, nodes)| nodes.to_vec()).collect();
        let mut variables: Vec<String> = (1..=groups(&walked)).map(group).collect();
        if match_tree::rules(&walked).next().is_some() {
            variables.push("hits".to_owned());
        }
        if limits(self.chain.program, &walked) {
            variables.push("exceeding".to_owned());
        }
        if match_tree::rules(&walked).any(|id| samples_after_limit(self.chain.program.rule(id))) {
            variables.push("matched".to_owned());
        }
        if !variables.is_empty() {
            self.out.line(&format!("uint64_t {};", variables.join(", ")));
            self.out.blank();
        }
        for (firsts, nodes) in parts {
            if firsts { self.firsts(nodes) } else { walk(self.chain, nodes, &mut self) }
        }
    }

    /// Decides packets by rules that the card names.
    fn firsts(&mut self, nodes: &[Node]) {
        let program = self.chain.program;
        let card = program.card.as_ref().expect("`verify` requires a card where answers are tested");
        let mut words = vec!["VERDICT_NONE".to_owned(); 1 << card.body.first_bits()];
        for (rule, number, verdict) in nodes.iter().filter_map(|node| answer::decided_by_first(program, node)) {
            cite(program, rule, self.out);
            words[number] = format!("{} | (uint32_t)(REASON_RULE + {}) << 16", action(verdict), rule.0);
        }
        self.out.open("");
        self.out.open("static const uint32_t words[] =");
        words.iter().for_each(|word| self.out.line(&format!("{word},")));
        self.out.close_with(";");
        self.out.blank();
        let mask = words.len() - 1;
        self.out.line(&format!("decide_firsts(env, verdicts, packets->card_flags_0, words, {mask:#x});"));
        self.out.close();
        self.out.line("if (!verdicts->open)");
        self.out.inner("return;");
    }

    /// Sets `mask` to the open packets of the block that pass all tests.
    fn select(&mut self, mask: &str, path: &TestPath<'_>) {
        let mut masks = vec!["verdicts->open".to_owned()];
        if path.depth > 0 {
            masks.push(group(path.depth));
        }
        let (mut terms, mut reads_raw) = (Vec::new(), false);
        for test in &path.tests {
            if self.chain.conditions.is_per_packet(test) {
                reads_raw |= matches!(test, Test::Value { subject: Subject::Raw(_), .. });
                self.chain.conditions.terms(test, &mut terms);
            } else {
                self.chain.conditions.masks(test, &mut masks);
            }
        }
        self.out.assign_all(mask, &masks);
        if terms.is_empty() {
            return;
        }
        self.out.open(&format!("for (uint64_t left = {mask}; left; left &= left - 1)"));
        self.out.line("const uint32_t i = first_of(left);");
        if reads_raw {
            self.out.line("const struct frame frame = burst_frame(burst, i);");
            self.out.line("struct wide raw;");
        }
        self.out.blank();
        self.out.unless(&terms);
        self.out.inner(&format!("{mask} &= ~(1ULL << i);"));
        self.out.close();
    }

    /// The call that charges the packets in `hits` and returns those that exceed the limit.
    fn exceeding(&self, charge: &Charge) -> String {
        let limiter = charge.limiter.0;
        match &charge.bucket {
            Bucket::Only => format!("limit_exceeding(env, burst, {limiter}, NULL, hits)"),
            Bucket::Found(find) => {
                let found = self.chain.conditions.find_name(*find);
                format!("limit_exceeding(env, burst, {limiter}, packets->{found}, hits)")
            }
            Bucket::Each(each) => {
                let (key, mask) = (Column::of(each.key).name, each.mask());
                let (what, tracked) = match each.connections() {
                    Some(_) => ("connections", "&packets->tracked, "),
                    None => ("each", ""),
                };
                let family = if each.key.family() == Family::Ipv4 { 4 } else { 6 };
                let call = format!("limit_{what}{family}_exceeding(env, burst, {limiter}, {tracked}");
                match each.key.family() {
                    Family::Ipv4 => format!("{call}packets->{key}, {mask:#x}u, hits)"),
                    Family::Ipv6 => {
                        let [hi, lo] = [mask >> 64, mask & u128::from(u64::MAX)].map(|half| format!("{half:#x}ULL"));
                        format!("{call}packets->{key}.hi, {hi}, packets->{key}.lo, {lo}, hits)")
                    }
                }
            }
        }
    }
}

/// The call that adds an address of the packets in `hits` to a table.
fn add_hits(Addition { id, adder, .. }: &Addition, hits: &str) -> String {
    let (key, mask) = (Column::of(adder.key).name, adder.mask());
    match adder.key.family() {
        Family::Ipv4 => format!("add4_hits(burst, {}, packets->{key}, {mask:#x}u, {hits});", id.0),
        Family::Ipv6 => {
            let [hi, lo] = [mask >> 64, mask & u128::from(u64::MAX)].map(|half| format!("{half:#x}ULL"));
            format!("add6_hits(burst, {}, packets->{key}.hi, {hi}, packets->{key}.lo, {lo}, {hits});", id.0)
        }
    }
}

impl Sink for BurstSink<'_, '_> {
    fn writer(&mut self) -> &mut Writer {
        self.out
    }

    fn find(&mut self, _: FindId) {
        unreachable!("compiler bug: native code stages its finds");
    }

    fn open_block(&mut self, path: &TestPath<'_>) {
        let group = group(path.depth + 1);
        self.select(&group, path);
        self.out.open(&format!("if ({group})"));
    }

    fn open_rule(&mut self, _: RuleId, path: &TestPath<'_>) -> bool {
        let takes_all = path.tests.is_empty() && path.depth == 0;
        if takes_all {
            self.out.line("hits = verdicts->open;");
            self.coverage = Coverage::All;
        } else {
            self.select("hits", path);
            self.out.open("if (hits)");
            self.coverage = Coverage::Some;
        }
        !takes_all
    }

    fn track(&mut self) {
        unreachable!("compiler bug: native code tracks between two functions");
    }

    fn drop_refused(&mut self) {
        self.out.line("hits = drop_refused(env, verdicts, &packets->tracked, hits);");
    }

    fn answer(&mut self) {
        self.out.line("hits = answer_hits(env, burst, verdicts, &packets->tracked, hits);");
    }

    fn count(&mut self, rule: RuleId) {
        self.out.line(&format!("count_hits(env, REASON_RULE + {}, hits, verdicts);", rule.0));
        if samples_after_limit(self.chain.program.rule(rule)) {
            self.out.line("matched = hits;");
        }
    }

    fn sample(&mut self, rule: RuleId, one_in: u32) {
        let below = eval::sample_below(one_in);
        let matched = if samples_after_limit(self.chain.program.rule(rule)) { "matched" } else { "hits" };
        let call = format!("sample_hits(env, verdicts, {}, {matched}, hits, {below:#x}ULL);", rule.0);
        self.out.line(&format!("{call} /* 1/{one_in} */"));
    }

    fn limit(&mut self, charge: &Charge) {
        let call = self.exceeding(charge);
        self.out.assign("exceeding", &call, &format!(" /* {} */", charge.comment));
        if let Some(add) = &charge.add {
            self.out.line(&format!("{} /* {} */", add_hits(add, "exceeding"), add.comment));
        }
        match &charge.exceeding {
            Exceeding::Decide(verdict, counter) => {
                let action = action(*verdict);
                self.out.line(&format!("end_exceeding(env, verdicts, exceeding, {action}, {counter});"));
                self.out.line("hits &= ~exceeding;");
            }
            Exceeding::Mark => {
                self.out.line("for (uint64_t left = exceeding; left; left &= left - 1)");
                self.out.inner("packets->exceeded[first_of(left)] = 1;");
            }
            Exceeding::Ignore if charge.add.is_some() => {}
            Exceeding::Ignore => self.out.line("(void)exceeding; /* no rule tests the mark */"),
        }
    }

    fn count_entries(&mut self, find: FindId) {
        self.out.line(&format!("packets->{}_hits |= hits;", self.chain.conditions.find_name(find)));
    }

    fn add(&mut self, addition: &Addition) {
        self.out.line(&format!("{} /* {} */", add_hits(addition, "hits"), addition.comment));
    }

    fn slot(&mut self, slot: RuleSlotId, counter: &str) {
        let name = &self.chain.program.rule_slot(slot).name;
        self.out.line(&format!("hits = slot_hits(env, burst, verdicts, {}, {counter}, hits); /* {name} */", slot.0));
    }

    fn verdict(&mut self, rule: RuleId, verdict: Action) {
        let call = format!("settle(verdicts, hits, rule_verdict({}, {}, 0))", action(verdict), rule.0);
        match self.coverage {
            Coverage::All => self.out.line(&format!("{call};")),
            Coverage::Some => {
                self.out.line(&format!("if (!{call})"));
                self.out.inner("return;");
            }
        }
    }
}

/// Which of the open packets a rule matches.
#[derive(Clone, Copy)]
enum Coverage {
    All,
    Some,
}

/// The name of the mask of a block of rules.
fn group(depth: usize) -> String {
    if depth == 1 { "group".to_owned() } else { format!("group{depth}") }
}

/// Splits nodes into rows of rules that are decided in one step ([`answer::decided_by_first`]), and other nodes.
fn by_firsts<'n>(program: &Program, nodes: &'n [Node]) -> Vec<(bool, &'n [Node])> {
    let is_first = |node: &Node| answer::decided_by_first(program, node).is_some();
    let rows = nodes.chunk_by(|one, next| is_first(one) == is_first(next));
    let mut parts: Vec<(bool, &[Node])> = Vec::new();
    let mut start = 0;
    for row in rows {
        if is_first(&row[0]) && row.len() >= FIRSTS_MIN {
            parts.push((true, row));
        } else if let Some((false, before)) = parts.last_mut() {
            *before = &nodes[start - before.len()..start + row.len()];
        } else {
            parts.push((false, row));
        }
        start += row.len();
    }
    parts
}

/// The nesting depth of blocks of rules.
fn groups(nodes: &[Node]) -> usize {
    let deep = nodes.iter().map(|node| match node {
        Node::When { test, body } => match joined(test, body).1 {
            [Node::Rule(_)] => 0,
            body => 1 + groups(body),
        },
        Node::Find(_) | Node::Rule(_) | Node::Track => 0,
    });
    deep.max().unwrap_or(0)
}
