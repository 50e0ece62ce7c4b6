//! The rules of a chain as one function, or, where there are many, as parts that it calls one after the other: compilers and verifiers take
//! more than proportionally longer for longer functions.

use super::action;
use super::chain::ChainEmitter;
use super::writer::{self, Writer};
use crate::ir::{Effect, Node, Program, RuleId, eval};
use crate::pass::hoist_guards::rules_in;

/// Rules of a part.
const PART_RULES: usize = 64;
/// Parts of a chain; where there would be more, they are longer. The kernel takes 256 functions a program.
const PARTS_MAX: usize = 128;

/// Where a function keeps whether the packet was sampled.
#[derive(Clone, Copy)]
enum Sampled {
    /// No rule samples.
    Never,
    /// In a variable.
    Variable,
    /// In its caller's variable.
    Pointer,
}

impl Sampled {
    fn expression(self) -> &'static str {
        match self {
            Sampled::Never => "0",
            Sampled::Variable => "sampled",
            Sampled::Pointer => "*sampled",
        }
    }
}

/// Writes the chain's rules: `<chain>_rules()` decides every packet that it is given.
pub(super) fn emit(chain: &ChainEmitter<'_>, out: &mut Writer) {
    let parts = parts(&chain.chain.body);
    if let [whole] = parts.as_slice() {
        return Rules { chain, out, sampled: if chain.samples { Sampled::Variable } else { Sampled::Never } }
            .whole(whole);
    }
    let sampled = if chain.samples { Sampled::Pointer } else { Sampled::Never };
    for (index, part) in parts.iter().enumerate() {
        Rules { chain, out, sampled }.part(index, part);
    }
    calls(chain, parts.len(), out);
}

/// Neighbouring top nodes, about [`PART_RULES`] rules together.
fn parts(body: &[Node]) -> Vec<&[Node]> {
    let all: usize = body.iter().map(rules_in).sum();
    let limit = PART_RULES.max(all / PARTS_MAX);
    if all <= 2 * limit {
        return vec![body];
    }
    let mut parts = Vec::new();
    let (mut start, mut rules) = (0, 0);
    for (index, node) in body.iter().enumerate() {
        if rules > 0 && rules + rules_in(node) > limit {
            parts.push(&body[start..index]);
            (start, rules) = (index, 0);
        }
        rules += rules_in(node);
    }
    parts.push(&body[start..]);
    parts
}

/// The function that calls the parts.
fn calls(chain: &ChainEmitter<'_>, parts: usize, out: &mut Writer) {
    let mut arguments = vec!["env", "packet"];
    if chain.is_staged() {
        arguments.push("found");
    }
    if chain.conditions.uses_raw() {
        arguments.push("frame");
    }
    if chain.samples {
        arguments.push("&sampled");
    }
    let arguments = arguments.join(", ");
    out.blank();
    out.function(&format!("WEIR_INLINE uint32_t {}_rules", chain.name), &chain.parameters());
    if chain.samples {
        out.line("uint32_t sampled = 0;");
    }
    out.line("uint32_t verdict;");
    out.blank();
    for index in 0..parts {
        out.line(&format!("verdict = {}_part_{index}({arguments});", chain.name));
        out.line("if (verdict != VERDICT_NONE)");
        out.inner("return verdict;");
    }
    no_match(chain, out);
    out.close();
}

/// What becomes of packets that no rule decided.
fn no_match(chain: &ChainEmitter<'_>, out: &mut Writer) {
    let no_match = action(chain.program.defaults.no_match);
    let sampled = if chain.samples { " | sampled" } else { "" };
    out.line(&format!("return decide(env, {no_match}, REASON_NO_MATCH, packet->len){sampled};"));
}

/// A function being written.
struct Rules<'a, 'b> {
    chain: &'a ChainEmitter<'b>,
    out: &'a mut Writer,
    sampled: Sampled,
}

impl Rules<'_, '_> {
    fn whole(mut self, body: &[Node]) {
        self.out.blank();
        self.out.function(&format!("WEIR_INLINE uint32_t {}_rules", self.chain.name), &self.chain.parameters());
        self.variables(self.chain.samples);
        self.block(body);
        if !ends(self.chain.program, body) {
            no_match(self.chain, self.out);
        }
        self.out.close();
    }

    fn part(mut self, index: usize, body: &[Node]) {
        let mut parameters = self.chain.parameters();
        if self.chain.samples {
            parameters.push("uint32_t *sampled".to_owned());
        }
        self.out.blank();
        self.out.function(&format!("WEIR_NOINLINE uint32_t {}_part_{index}", self.chain.name), &parameters);
        // A part may use less than the chain does.
        let unused = parameters.iter().skip(2).filter_map(|parameter| parameter.split(['*', ' ']).next_back());
        for name in unused {
            self.out.line(&format!("(void){name};"));
        }
        self.variables(false);
        self.block(body);
        if !ends(self.chain.program, body) {
            self.out.line("return VERDICT_NONE;");
        }
        self.out.close();
    }

    fn variables(&mut self, sampled: bool) {
        if sampled {
            self.out.line("uint32_t sampled = 0;");
        }
        if self.chain.conditions.uses_raw() {
            self.out.line("struct wide raw __attribute__((unused));");
        }
        if sampled || self.chain.conditions.uses_raw() {
            self.out.blank();
        }
    }

    fn block(&mut self, nodes: &[Node]) {
        for node in nodes {
            match node {
                Node::Find(id) => {
                    let find = self.chain.chain.finds[usize::from(id.0)];
                    let call = self.chain.find_call(*id, "env", "packet->");
                    let name = format!("uint32_t {}", self.chain.conditions.find_name(*id));
                    let table = &self.chain.program.slot(find.slot).name;
                    self.out.assign(&name, &call, &format!(" /* @{table} */"));
                }
                Node::When { test, body } => {
                    let (mut terms, mut body) = (Vec::new(), body);
                    self.chain.conditions.terms(test, &mut terms);
                    // A test that guards nothing but another test joins it.
                    while let [Node::When { test: inner, body: deeper }] = body.as_slice() {
                        self.chain.conditions.terms(inner, &mut terms);
                        body = deeper;
                    }
                    // A rule alone in its block is cited before the test that leads to it.
                    if let [Node::Rule(id)] = body.as_slice() {
                        self.cite(*id);
                        self.out.open_if(&terms);
                        self.rule(*id);
                    } else {
                        self.out.open_if(&terms);
                        self.block(body);
                    }
                    self.out.close();
                }
                Node::Rule(id) => {
                    self.cite(*id);
                    self.rule(*id);
                }
            }
        }
    }

    fn cite(&mut self, id: RuleId) {
        let rule = self.chain.program.rule(id);
        self.out.line(&format!("/* {}  {} */", rule.at, writer::comment(&rule.text)));
    }

    fn rule(&mut self, id: RuleId) {
        let (rule, index) = (self.chain.program.rule(id), id.0);
        let sampled = self.sampled.expression();
        self.out.line(&format!("count(env, REASON_RULE + {index}, packet->len);"));
        for effect in &rule.effects {
            match effect {
                Effect::Sample { one_in } => {
                    let below = eval::sample_below(*one_in);
                    self.out.line(&format!("{sampled} |= sample(env, {index}, {below:#x}ULL); /* 1/{one_in} */"));
                }
                Effect::Verdict(verdict) => {
                    self.out.line(&format!("return rule_verdict({}, {index}, {sampled});", action(*verdict)));
                }
                Effect::Limit { .. } | Effect::Track => unreachable!("compiler bug: refused by emit"),
            }
        }
    }
}

/// Whether the block always ends the chain.
fn ends(program: &Program, nodes: &[Node]) -> bool {
    matches!(nodes.last(), Some(Node::Rule(id)) if program.rule(*id).verdict().is_some())
}
