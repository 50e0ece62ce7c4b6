//! The C backend: one emitter, two targets.
//!
//! For user space each chain becomes `void weir_<chain>(const struct weir_burst *)`, which parses a burst, asks the staged tables and then
//! decides; for BPF it becomes `<chain>_frame()`, which decides one frame, and the wrappers of `xdp.h`. The rules themselves are the same
//! text for both but for where tables are asked. Same program, same bytes.

mod condition;
mod writer;

use super::c::condition::Conditions;
use crate::ir::{Chain, Effect, Fallback, FindId, Node, Program, RuleId, eval, symbol};
use crate::pass::{self, Placement};
use weir_abi::{Action, Family, Layout, Reason};
use writer::Writer;

/// What the C is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A shared object called once a burst.
    Native,
    /// An XDP program.
    Bpf,
}

impl Target {
    /// Native code asks tables a burst at a time; BPF sees one packet and asks as late as it can.
    fn placement(self) -> Placement {
        match self {
            Target::Native => Placement::Staged,
            Target::Bpf => Placement::Lazy,
        }
    }
}

/// Emits the program for a target. The program has no unsupported effects ([`Program::unsupported`]).
pub fn emit(program: &Program, target: Target) -> String {
    assert!(program.unsupported().is_empty(), "compiler bug: the caller refuses unsupported effects");
    let program = pass::optimise(program, target.placement());
    let mut emitter = Emitter { program: &program, target, out: Writer::default() };
    emitter.head();
    emitter.before_rules();
    for chain in &program.chains {
        emitter.chain(chain);
    }
    emitter.out.finish()
}

struct Emitter<'a> {
    program: &'a Program,
    target: Target,
    out: Writer,
}

impl Emitter<'_> {
    fn head(&mut self) {
        let program = self.program;
        let what = match self.target {
            Target::Native => "user space",
            Target::Bpf => "BPF",
        };
        self.out.line(&format!(
            "/* Policy {}, compiled by Weir for {what}. Do not edit: change the policy. */",
            program.name
        ));
        for header in ["env.h", "verdict.h", "packet.h", "raw.h", "lookup.h"] {
            self.out.line(&format!("#include \"{header}\""));
        }
        if self.target == Target::Bpf {
            self.out.line("#include \"xdp.h\"");
        } else {
            self.out.blank();
            self.out.line("const uint32_t weir_abi_version = WEIR_ABI_VERSION;");
        }
        if !program.slots.is_empty() {
            self.out.blank();
        }
        for (index, slot) in program.slots.iter().enumerate() {
            let (name, layout) = (&slot.name, slot.layout.name());
            self.out.line(&match self.target {
                Target::Native => format!("/* Table {index}: @{name}, {layout} */"),
                Target::Bpf => format!("WEIR_TABLE_STORAGE({index}); /* @{name}, {layout} */"),
            });
        }
    }

    /// The defaults, which come before any rule.
    fn before_rules(&mut self) {
        let defaults = &self.program.defaults;
        let cases = [
            ("packet->l3 == L3_ARP", defaults.arp, "REASON_ARP"),
            ("packet->l3 == L3_NONE", defaults.not_ip, "REASON_NOT_IP"),
            ("packet->fragment != FRAGMENT_NONE", defaults.fragment, "REASON_FRAGMENT"),
            ("packet->flags & FLAG_IP_OPTIONS", defaults.ip_options, "REASON_IP_OPTIONS"),
        ];
        self.out.blank();
        self.out.line("/* Decides what the rules do not get to see. */");
        self.out.line(
            "WEIR_INLINE bool before_rules(const struct env *env, const struct packet *packet, enum reason malformed,",
        );
        self.out.line("\t\t\t      uint32_t *verdict)");
        self.out.open("");
        let malformed = action(defaults.malformed);
        self.out.line("if (WEIR_UNLIKELY(malformed != REASON_NONE))");
        self.out.inner(&format!("*verdict = decide(env, {malformed}, malformed, packet->len);"));
        for (test, fallback, reason) in cases {
            if let Fallback::Decide(decided) = fallback {
                self.out.line(&format!("else if ({test})"));
                self.out.inner(&format!("*verdict = decide(env, {}, {reason}, packet->len);", action(decided)));
            }
        }
        self.out.line("else");
        self.out.inner("return false;");
        self.out.line("return true;");
        self.out.close();
    }

    fn chain(&mut self, chain: &Chain) {
        let name = chain.symbol();
        let conditions = Conditions::new(self.program, chain, &name, self.target);
        for line in conditions.sets() {
            self.out.line(line);
        }
        if !chain.staged.is_empty() {
            self.found_struct(chain, &name, &conditions);
        }
        self.rules(chain, &name, &conditions);
        match self.target {
            Target::Native => self.burst(chain, &name, &conditions),
            Target::Bpf => self.frame(&name, &conditions),
        }
    }

    fn found_struct(&mut self, chain: &Chain, name: &str, conditions: &Conditions<'_>) {
        self.out.blank();
        self.out.line(&format!("/* What the tables say of one packet of {}: labels, 0 for none. */", describe(chain)));
        self.out.open(&format!("struct {name}_found"));
        for &id in &chain.staged {
            self.out.line(&format!("uint32_t {}; /* {} */", conditions.find_name(id), self.describe_find(chain, id)));
        }
        self.out.close_with(";");
    }

    fn describe_find(&self, chain: &Chain, id: FindId) -> String {
        let find = chain.finds[usize::from(id.0)];
        format!("{} in @{}", find.key.name(), self.program.slot(find.slot).name)
    }

    /// The chain's rules as one function.
    fn rules(&mut self, chain: &Chain, name: &str, conditions: &Conditions<'_>) {
        let samples = uses_sampling(self.program, &chain.body);
        self.out.blank();
        let mut parameters = vec!["const struct env *env".to_owned(), "const struct packet *packet".to_owned()];
        if !chain.staged.is_empty() {
            parameters.push(format!("const struct {name}_found *found"));
        }
        if conditions.uses_raw() {
            parameters.push("const struct frame *frame".to_owned());
        }
        self.out.function(&format!("WEIR_INLINE uint32_t {name}_rules"), &parameters);
        if samples {
            self.out.line("uint32_t sampled = 0;");
        }
        if conditions.uses_raw() {
            self.out.line("struct wide raw;");
        }
        if samples || conditions.uses_raw() {
            self.out.blank();
        }
        let sampled = if samples { "sampled" } else { "0" };
        self.block(chain, &chain.body, conditions, sampled);
        if !ends(self.program, &chain.body) {
            let no_match = action(self.program.defaults.no_match);
            let sampled = if samples { " | sampled" } else { "" };
            self.out.line(&format!("return decide(env, {no_match}, REASON_NO_MATCH, packet->len){sampled};"));
        }
        self.out.close();
    }

    fn block(&mut self, chain: &Chain, nodes: &[Node], conditions: &Conditions<'_>, sampled: &str) {
        for node in nodes {
            match node {
                Node::Find(id) => {
                    let find = chain.finds[usize::from(id.0)];
                    let call = self.find_call(chain, *id, "packet->");
                    let slot = &self.program.slot(find.slot).name;
                    let name = format!("uint32_t {}", conditions.find_name(*id));
                    self.out.assign(&name, &call, &format!(" /* @{slot} */"));
                }
                Node::When { test, body } => {
                    let (mut terms, mut body) = (Vec::new(), body);
                    conditions.terms(test, &mut terms);
                    // A test that guards nothing but another test joins it.
                    while let [Node::When { test: inner, body: deeper }] = body.as_slice() {
                        conditions.terms(inner, &mut terms);
                        body = deeper;
                    }
                    if let [Node::Rule(id)] = body.as_slice() {
                        self.cite(*id);
                    }
                    self.out.open_if(&terms);
                    self.block(chain, body, conditions, sampled);
                    self.out.close();
                }
                Node::Rule(id) => self.rule(*id, sampled, nodes.len() > 1),
            }
        }
    }

    fn cite(&mut self, id: RuleId) {
        let rule = self.program.rule(id);
        self.out.line(&format!("/* {}  {} */", rule.at, writer::comment(&rule.text)));
    }

    fn rule(&mut self, id: RuleId, sampled: &str, cite: bool) {
        let rule = self.program.rule(id);
        if cite {
            self.cite(id);
        }
        let index = id.0;
        self.out.line(&format!("count(env, REASON_RULE + {index}, packet->len);"));
        for effect in &rule.effects {
            match effect {
                Effect::Sample { one_in } => {
                    let below = eval::sample_below(*one_in);
                    self.out.line(&format!("sampled |= sample(env, {index}, {below:#x}ULL); /* 1/{one_in} */"));
                }
                Effect::Verdict(verdict) => {
                    self.out.line(&format!("return rule_verdict({}, {index}, {sampled});", action(*verdict)));
                }
                Effect::Limit { .. } | Effect::Track => unreachable!("compiler bug: refused by emit"),
            }
        }
    }

    /// The call that asks a table about the packet whose fields are reached through `packet` (`"packet->"`).
    fn find_call(&self, chain: &Chain, id: FindId, packet: &str) -> String {
        let find = chain.finds[usize::from(id.0)];
        let slot = self.program.slot(find.slot);
        let key = if find.key.name().ends_with("saddr") { "saddr" } else { "daddr" };
        let table = format!("WEIR_TABLE({}, {})", self.env(), find.slot.0);
        match slot.layout {
            Layout::Dxr16x4 => format!("dxr16x4_find({table}, {packet}{key})"),
            Layout::ExactSet => format!("exact_set_find({table}, {packet}{key})"),
            Layout::Range6 => format!("range6_find({table}, {packet}{key}6.hi, {packet}{key}6.lo)"),
        }
    }

    fn env(&self) -> &'static str {
        match self.target {
            Target::Native => "&env",
            Target::Bpf => "env",
        }
    }

    /// User space: the function that engines call. It parses the whole burst, asks one table after the other, then decides.
    fn burst(&mut self, chain: &Chain, name: &str, conditions: &Conditions<'_>) {
        let staged = !chain.staged.is_empty();
        self.out.blank();
        self.out.line(&format!("void weir_{name}(const struct weir_burst *burst)"));
        self.out.open("");
        self.out.line("const struct env env = {.counters = burst->counters, .tables = burst->tables};");
        self.out.line("struct packet packets[WEIR_BURST_MAX];");
        self.out.line("enum reason malformed[WEIR_BURST_MAX];");
        if staged {
            self.out.line(&format!("struct {name}_found found[WEIR_BURST_MAX];"));
        }
        self.out.line("uint64_t started = stage_start();");
        self.out.blank();
        self.out.open("for (uint32_t i = 0; i < burst->count; i++)");
        self.out.line("const struct frame frame = burst_frame(burst, i);");
        self.out.blank();
        self.out.line("malformed[i] = parse_packet(&frame, &packets[i]);");
        self.out.close();
        self.out.line("started = stage_end(STAGE_PARSE, started);");
        if staged {
            self.lookups(chain, conditions);
            self.out.line("started = stage_end(STAGE_LOOKUP, started);");
        }
        self.decisions(name, staged, conditions);
        self.out.line("stage_end(STAGE_RULES, started);");
        self.out.close();
    }

    fn lookups(&mut self, chain: &Chain, conditions: &Conditions<'_>) {
        for &id in &chain.staged {
            let find = chain.finds[usize::from(id.0)];
            let field = conditions.find_name(id);
            let call = self.find_call(chain, id, "packets[i].");
            self.out.line("for (uint32_t i = 0; i < burst->count; i++)");
            let answer = match self.program.slot(find.slot).family {
                // Asking for a packet that is not IPv4 costs less than a branch; rules ask for the answer behind a guard.
                Family::Ipv4 => call,
                Family::Ipv6 => format!("packets[i].l3 == L3_IPV6 ? {call} : 0"),
            };
            self.out.indent(|out| out.assign(&format!("found[i].{field}"), &answer, ""));
        }
    }

    fn decisions(&mut self, name: &str, staged: bool, conditions: &Conditions<'_>) {
        let mut arguments = "&env, &packets[i]".to_owned();
        self.out.open("for (uint32_t i = 0; i < burst->count; i++)");
        if staged {
            arguments += ", &found[i]";
        }
        if conditions.uses_raw() {
            arguments += ", &frame";
            self.out.line("const struct frame frame = burst_frame(burst, i);");
            self.out.blank();
        }
        self.out.line("if (!before_rules(&env, &packets[i], malformed[i], &burst->verdicts[i]))");
        self.out.inner(&format!("burst->verdicts[i] = {name}_rules({arguments});"));
        self.out.close();
    }

    /// BPF: one frame, and the programs around it.
    fn frame(&mut self, name: &str, conditions: &Conditions<'_>) {
        self.out.blank();
        self.out.line(&format!("WEIR_INLINE uint32_t {name}_frame(const struct env *env, const struct frame *frame)"));
        self.out.open("");
        self.out.line("struct packet packet;");
        self.out.line("enum reason malformed = parse_packet(frame, &packet);");
        self.out.line("uint32_t verdict;");
        self.out.blank();
        self.out.line("if (before_rules(env, &packet, malformed, &verdict))");
        self.out.inner("return verdict;");
        let frame = if conditions.uses_raw() { ", frame" } else { "" };
        self.out.line(&format!("return {name}_rules(env, &packet{frame});"));
        self.out.close();
        self.out.blank();
        self.out.line(&format!("WEIR_XDP_CHAIN({name})"));
    }
}

fn describe(chain: &Chain) -> String {
    match &chain.posture {
        None => chain.direction.name().to_owned(),
        Some(posture) => format!("{} in posture {posture}", chain.direction.name()),
    }
}

fn uses_sampling(program: &Program, nodes: &[Node]) -> bool {
    nodes.iter().any(|node| match node {
        Node::Rule(id) => program.rule(*id).effects.iter().any(|effect| matches!(effect, Effect::Sample { .. })),
        Node::When { body, .. } => uses_sampling(program, body),
        Node::Find(_) => false,
    })
}

/// Whether the block always ends the chain.
fn ends(program: &Program, nodes: &[Node]) -> bool {
    matches!(nodes.last(), Some(Node::Rule(id)) if program.rule(*id).verdict().is_some())
}

fn action(action: Action) -> &'static str {
    match action {
        Action::Accept => "ACTION_ACCEPT",
        Action::Drop => "ACTION_DROP",
        Action::Divert => "ACTION_DIVERT",
    }
}

/// Names of C symbols that a program's chains have, in order.
pub fn chain_symbols(program: &Program) -> Vec<String> {
    let mut symbols: Vec<String> = Vec::with_capacity(program.chains.len());
    for chain in &program.chains {
        symbols.push(symbol(&chain.symbol()));
    }
    symbols
}

/// Counters that a program needs: the built-in reasons and one a rule.
pub fn counters(program: &Program) -> usize {
    usize::from(Reason::RULE_BASE) + program.rules.len()
}
