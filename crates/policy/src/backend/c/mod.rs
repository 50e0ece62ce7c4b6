//! The C backend: one emitter, two targets.
//!
//! For user space each chain becomes `void weir_<chain>(const struct weir_burst *)`, which parses a burst, asks the staged tables and then
//! decides; for BPF it becomes `<chain>_frame()`, which decides one frame, and the wrappers of `xdp.h`. The rules themselves are the same
//! text for both but for where tables are asked. Same program, same bytes.

mod chain;
mod condition;
mod entry;
mod rules;
mod writer;

use crate::ir::{Fallback, Program};
use crate::pass::{self, Placement};
use chain::ChainEmitter;
use weir_abi::Action;
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
    let mut out = Writer::default();
    includes(&program, target, &mut out);
    before_rules(&program, &mut out);
    for (chain, symbol) in program.chains.iter().zip(chain_symbols(&program)) {
        ChainEmitter::new(&program, chain, symbol, target).emit(&mut out);
    }
    out.finish()
}

/// What the text is, what it includes, its tables.
fn includes(program: &Program, target: Target, out: &mut Writer) {
    let what = match target {
        Target::Native => "user space",
        Target::Bpf => "BPF",
    };
    out.line(&format!(
        "/* Policy {}, compiled by Weir for {what}. Do not edit: change the policy. */",
        writer::comment(&program.name)
    ));
    for header in ["env.h", "verdict.h", "packet.h", "raw.h", "lookup.h"] {
        out.line(&format!("#include \"{header}\""));
    }
    if target == Target::Bpf {
        out.line("#include \"xdp.h\"");
    } else {
        out.blank();
        out.line("const uint32_t weir_abi_version = WEIR_ABI_VERSION;");
    }
    if !program.slots.is_empty() {
        out.blank();
    }
    for (index, slot) in program.slots.iter().enumerate() {
        let (name, layout) = (&slot.name, slot.layout.name());
        out.line(&match target {
            Target::Native => format!("/* Table {index}: @{name}, {layout} */"),
            Target::Bpf => format!("WEIR_TABLE_STORAGE({index}); /* @{name}, {layout} */"),
        });
    }
}

/// The defaults, which come before any rule.
fn before_rules(program: &Program, out: &mut Writer) {
    let defaults = &program.defaults;
    let cases = [
        ("packet->l3 == L3_ARP", defaults.arp, "REASON_ARP"),
        ("packet->l3 == L3_NONE", defaults.not_ip, "REASON_NOT_IP"),
        ("packet->fragment != FRAGMENT_NONE", defaults.fragment, "REASON_FRAGMENT"),
        ("packet->flags & FLAG_IP_OPTIONS", defaults.ip_options, "REASON_IP_OPTIONS"),
    ];
    out.blank();
    out.line("/* Decides what the rules do not get to see. */");
    let parameters = ["const struct env *env", "packet_view *packet", "enum reason malformed", "uint32_t *verdict"];
    out.function("WEIR_INLINE bool before_rules", &parameters.map(str::to_owned));
    let malformed = action(defaults.malformed);
    out.line("if (WEIR_UNLIKELY(malformed != REASON_NONE))");
    out.inner(&format!("*verdict = decide(env, {malformed}, malformed, packet->len);"));
    for (test, fallback, reason) in cases {
        if let Fallback::Decide(decided) = fallback {
            out.line(&format!("else if ({test})"));
            out.inner(&format!("*verdict = decide(env, {}, {reason}, packet->len);", action(decided)));
        }
    }
    out.line("else");
    out.inner("return false;");
    out.line("return true;");
    out.close();
}

fn action(action: Action) -> &'static str {
    match action {
        Action::Accept => "ACTION_ACCEPT",
        Action::Drop => "ACTION_DROP",
        Action::Divert => "ACTION_DIVERT",
    }
}

/// What the chains are called in C, in order. Postures whose names differ only in what C does not allow are told apart.
pub fn chain_symbols(program: &Program) -> Vec<String> {
    let mut symbols: Vec<String> = Vec::with_capacity(program.chains.len());
    for chain in &program.chains {
        let mut symbol = chain.symbol();
        while symbols.contains(&symbol) {
            symbol.push('_');
        }
        symbols.push(symbol);
    }
    symbols
}
