//! One chain as C: what it found, its rules, its entry.

use super::condition::Conditions;
use super::writer::Writer;
use super::{Target, rules};
use crate::ir::{Chain, Effect, FindId, Node, Program};
use weir_abi::Layout;

/// Writes one chain.
pub(super) struct ChainEmitter<'a> {
    pub(super) program: &'a Program,
    pub(super) chain: &'a Chain,
    pub(super) target: Target,
    /// The chain's name in C.
    pub(super) name: String,
    pub(super) conditions: Conditions<'a>,
    /// Whether any rule samples.
    pub(super) samples: bool,
}

impl<'a> ChainEmitter<'a> {
    pub(super) fn new(program: &'a Program, chain: &'a Chain, name: String, target: Target) -> Self {
        let conditions = Conditions::new(program, chain, &name, target);
        let samples = samples(program, &chain.body);
        ChainEmitter { program, chain, target, name, conditions, samples }
    }

    pub(super) fn emit(&self, out: &mut Writer) {
        for line in self.conditions.sets() {
            out.line(line);
        }
        if self.is_staged() {
            self.found_struct(out);
        }
        rules::emit(self, out);
        match self.target {
            Target::Native => self.burst(out),
            Target::Bpf => self.frame(out),
        }
    }

    /// Whether tables are asked before the rules.
    pub(super) fn is_staged(&self) -> bool {
        !self.chain.staged.is_empty()
    }

    /// What the rules' functions take.
    pub(super) fn parameters(&self) -> Vec<String> {
        let mut parameters = vec!["const struct env *env".to_owned(), "packet_view *packet".to_owned()];
        if self.is_staged() {
            parameters.push(format!("const struct {}_found *found", self.name));
        }
        if self.conditions.uses_raw() {
            parameters.push("const struct frame *frame".to_owned());
        }
        parameters
    }

    fn found_struct(&self, out: &mut Writer) {
        out.blank();
        out.line(&format!("/* What the tables say of one packet of {}: labels, 0 for none. */", self.described()));
        out.open(&format!("struct {}_found", self.name));
        for &id in &self.chain.staged {
            let find = self.chain.finds[usize::from(id.0)];
            let table = &self.program.slot(find.slot).name;
            out.line(&format!("uint32_t {}; /* {} in @{table} */", self.conditions.find_name(id), find.key.name()));
        }
        out.close_with(";");
    }

    fn described(&self) -> String {
        match &self.chain.posture {
            None => self.chain.direction.name().to_owned(),
            Some(posture) => format!("{} in posture {posture}", self.chain.direction.name()),
        }
    }

    /// The call that asks a table about a packet; `packet` is how its fields are reached (`packet->`), `env` the environment's address.
    pub(super) fn find_call(&self, id: FindId, env: &str, packet: &str) -> String {
        let find = self.chain.finds[usize::from(id.0)];
        let key = if find.key.name().ends_with("saddr") { "saddr" } else { "daddr" };
        let table = format!("WEIR_TABLE({env}, {})", find.slot.0);
        match self.program.slot(find.slot).layout {
            Layout::Dxr16x4 => format!("dxr16x4_find({table}, {packet}{key})"),
            Layout::ExactSet => format!("exact_set_find({table}, {packet}{key})"),
            Layout::Range6 => format!("range6_find({table}, {packet}{key}6.hi, {packet}{key}6.lo)"),
            Layout::RankLeaf => format!("rank_leaf_find({table}, {packet}{key})"),
            Layout::RankLeaf6 => format!("rank_leaf6_find({table}, {packet}{key}6.hi, {packet}{key}6.lo)"),
        }
    }
}

fn samples(program: &Program, nodes: &[Node]) -> bool {
    nodes.iter().any(|node| match node {
        Node::Rule(id) => program.rule(*id).effects.iter().any(|effect| matches!(effect, Effect::Sample { .. })),
        Node::When { body, .. } => samples(program, body),
        Node::Find(_) => false,
    })
}
