//! The rules of a chain for one packet: what BPF decides with.

use super::action;
use super::chain::ChainEmitter;
use super::column::Column;
use super::rules::{cite, described, ends, joined, may_be_unused};
use super::writer::Writer;
use crate::checked::Exceed;
use crate::ir::{Effect, FindId, Holds, LimiterId, LimiterKind, Node, RuleId, eval};
use weir_abi::Family;

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

/// Writes the parts and the function that calls them.
pub(super) fn emit(chain: &ChainEmitter<'_>, parts: &[&[Node]], out: &mut Writer) {
    if let [whole] = parts {
        let sampled = if chain.samples { Sampled::Variable } else { Sampled::Never };
        return Rules { chain, out, sampled }.whole(whole);
    }
    let sampled = if chain.samples { Sampled::Pointer } else { Sampled::Never };
    for (index, part) in parts.iter().enumerate() {
        Rules { chain, out, sampled }.part(index, part);
    }
    calls(chain, parts.len(), out);
}

/// Writes a part of a chain that is a program of its own: `<name>()`, which decides the packet or, unless it is the last, leaves it to the next.
pub(super) fn emit_part(chain: &ChainEmitter<'_>, is_last: bool, out: &mut Writer) {
    let mut parameters = parameters(chain);
    parameters.truncate(2);
    parameters.extend(["const struct frame *frame".to_owned(), "uint32_t *sampled".to_owned()]);
    let sampled = if chain.samples { Sampled::Pointer } else { Sampled::Never };
    out.blank();
    out.function(&format!("WEIR_INLINE uint32_t {}", chain.name), &parameters);
    may_be_unused(&parameters, out);
    let mut rules = Rules { chain, out, sampled };
    rules.variables(false);
    rules.block(&chain.chain.body);
    match (ends(chain.program, &chain.chain.body), is_last) {
        (true, _) => {}
        (false, true) => no_match(chain, sampled, out),
        (false, false) => out.line("return VERDICT_NONE;"),
    }
    out.close();
}

fn parameters(chain: &ChainEmitter<'_>) -> Vec<String> {
    let packet = if chain.marks() { "WEIR_FRESH struct packet *packet" } else { "packet_view *packet" };
    let mut parameters = vec!["const struct env *env".to_owned(), packet.to_owned()];
    if chain.conditions.uses_raw() {
        parameters.push("const struct frame *frame".to_owned());
    }
    parameters
}

/// The function that calls the parts.
fn calls(chain: &ChainEmitter<'_>, parts: usize, out: &mut Writer) {
    let mut arguments = vec!["env", "packet"];
    if chain.conditions.uses_raw() {
        arguments.push("frame");
    }
    if chain.samples {
        arguments.push("&sampled");
    }
    let arguments = arguments.join(", ");
    out.blank();
    out.function(&format!("WEIR_INLINE uint32_t {}_rules", chain.name), &parameters(chain));
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
    no_match(chain, Sampled::Variable, out);
    out.close();
}

/// What becomes of packets that no rule decided.
fn no_match(chain: &ChainEmitter<'_>, sampled: Sampled, out: &mut Writer) {
    let no_match = action(chain.program.defaults.no_match);
    let sampled = if chain.samples { format!(" | {}", sampled.expression()) } else { String::new() };
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
        self.out.function(&format!("WEIR_INLINE uint32_t {}_rules", self.chain.name), &parameters(self.chain));
        self.variables(self.chain.samples);
        self.block(body);
        if !ends(self.chain.program, body) {
            no_match(self.chain, self.sampled, self.out);
        }
        self.out.close();
    }

    fn part(mut self, index: usize, body: &[Node]) {
        let mut parameters = parameters(self.chain);
        if self.chain.samples {
            parameters.push("uint32_t *sampled".to_owned());
        }
        self.out.blank();
        self.out.function(&format!("WEIR_NOINLINE uint32_t {}_part_{index}", self.chain.name), &parameters);
        may_be_unused(&parameters[2..], self.out);
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
                    let call = self.chain.find_call(*id);
                    let name = format!("uint32_t {}", self.chain.conditions.find_name(*id));
                    let asked = match &self.chain.program.slot(find.slot).holds {
                        Holds::Tables(names) => names.join(", @"),
                        Holds::Limits(name) => name.clone(),
                    };
                    self.out.assign(&name, &call, &format!(" /* @{asked} */"));
                }
                Node::When { test, body } => {
                    let (tests, body) = joined(test, body);
                    let mut terms = Vec::new();
                    for test in tests {
                        self.chain.conditions.terms(test, &mut terms);
                    }
                    // A rule alone in its block is cited before the test that leads to it.
                    if let [Node::Rule(id)] = body {
                        cite(self.chain.program, *id, self.out);
                        self.out.open_if(&terms);
                        self.rule(*id);
                    } else {
                        self.out.open_if(&terms);
                        self.block(body);
                    }
                    self.out.close();
                }
                Node::Rule(id) => {
                    cite(self.chain.program, *id, self.out);
                    self.rule(*id);
                }
            }
        }
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
                Effect::Limit { limiter, find, exceed } => self.limit(id, *limiter, *find, *exceed),
                Effect::Track => unreachable!("compiler bug: refused by emit"),
            }
        }
    }

    /// The call that charges the packet and tells whether it has room.
    fn has_room(&self, limiter: LimiterId, find: Option<FindId>) -> String {
        let bucket = match self.chain.program.limiter(limiter).kind {
            LimiterKind::Each(each) => {
                let (key, mask) = (Column::of(each.key).expression, each.mask());
                match each.key.family() {
                    Family::Ipv4 => format!("limit_each4_has_room(env, {}, {key} & {mask:#x}u", limiter.0),
                    Family::Ipv6 => {
                        let [hi, lo] = [mask >> 64, mask & u128::from(u64::MAX)].map(|half| format!("{half:#x}ULL"));
                        format!("limit_each6_has_room(env, {}, {key}.hi & {hi}, {key}.lo & {lo}", limiter.0)
                    }
                }
            }
            _ => {
                let found = find.map_or("0", |find| self.chain.conditions.find_name(find));
                format!("limit_has_room(env, {}, {found}", limiter.0)
            }
        };
        format!("{bucket}, env_now(env), packet->len)")
    }

    /// Charges the packet, and does what the rule says if there is no room.
    fn limit(&mut self, rule: RuleId, limiter: LimiterId, find: Option<FindId>, exceed: Exceed) {
        self.out.line(&format!("/* {} */", described(self.chain.program, limiter)));
        let charged = self.has_room(limiter, find);
        match exceed.verdict() {
            Some(verdict) => {
                self.out.line(&format!("if (!{charged})"));
                let (action, beside) = (action(verdict), self.chain.limited_counter(rule, verdict));
                let sampled =
                    if self.chain.samples { format!(" | {}", self.sampled.expression()) } else { String::new() };
                self.out.inner(&format!("return decide_exceeding(env, {action}, {beside}, packet->len){sampled};"));
            }
            None if self.chain.marks() => {
                self.out.line(&format!("if (!{charged})"));
                self.out.inner("packet->flags |= FLAG_EXCEEDED;");
            }
            // Nobody asks.
            None => self.out.line(&format!("{charged};")),
        }
    }
}
