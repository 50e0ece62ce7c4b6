//! The C backend, for user space and for BPF.
//!
//! For user space each chain becomes `void weir_<chain>(const struct weir_burst *)`. It calls three stages:
//! `<chain>_parse()` parses all headers of a burst into columns, `<chain>_lookups()` looks up the staged tables, and
//! `<chain>_rules()` applies one rule after the other. For BPF each chain becomes `<chain>_frame()`, which decides one
//! frame, and the wrappers of `datapath/kernel/hook.h`. A chain that the verifier refuses as one program is split into
//! programs that jump to one another (`parts`, `datapath/kernel/parts.h`).

mod answer;
mod burst_rules;
mod chain;
mod column;
mod condition;
mod defaults;
mod dialect;
mod entry;
mod functions;
mod mask;
pub(super) mod observe;
mod packet_rules;
mod parts;
mod raw;
pub(super) mod rules;
mod scale;
mod set;
mod slot;
pub(super) mod tracking;
mod walk;
pub(super) mod writer;

use std::collections::BTreeSet;

use crate::capability::{self, Engine};
use crate::ir::answers::Answering;
use crate::ir::{Direction, Limiter, LimiterKind, Program, SlotContents, TableKind};
use crate::pass;
use chain::ChainEmitter;
pub(super) use chain::lookup_header;
use defaults::DefaultVerdicts;
pub use dialect::Dialect;
use writer::Writer;

/// Emits the program in a dialect. The caller has checked that the dialect's target supports the program
/// ([`capability::unsupported`]). The same program gives the same bytes.
pub fn emit(program: &Program, dialect: Dialect) -> String {
    let unsupported = capability::unsupported(program, &[Engine::of(dialect.target())]);
    assert!(unsupported.is_empty(), "compiler bug: the caller refuses unsupported effects");
    let optimised = pass::optimise(program, dialect.placement());
    let mut out = Writer::default();
    includes(program, dialect, &mut out);
    DefaultVerdicts::of(&optimised).emit(&mut out);
    let chains = optimised.chains.iter().zip(chain_symbols(&optimised));
    let chains = chains.map(|(chain, symbol)| ChainEmitter::new(&optimised, chain, symbol, dialect));
    match dialect {
        Dialect::Native | Dialect::Bpf => chains.for_each(|chain| chain.emit(&mut out)),
        Dialect::BpfParts { rules } => parts::emit(program, rules, &chains.collect::<Vec<_>>(), &mut out),
    }
    if let (true, Some(card)) = (dialect.is_bpf(), &program.card) {
        fronts(program, card, &mut out);
    }
    out.finish()
}

/// Writes the programs of interfaces behind a card, one for each chain of packets from the lower side. The card's
/// answers are about the rules of one of them.
fn fronts(program: &Program, card: &Answering, out: &mut Writer) {
    out.blank();
    for (number, chain) in program.chains.iter().enumerate() {
        if chain.direction == Direction::Upstream && number != card.chain {
            let answered = if number == card.plain { card.chain } else { number };
            out.line(&format!("WEIR_CARD_FRONT({number}, {answered})"));
        }
    }
}

fn counts_connections(program: &Program) -> bool {
    program.limiters.iter().any(Limiter::is_of_connections)
}

/// Writes what the headers must know of the program.
fn defines(program: &Program, dialect: Dialect, out: &mut Writer) {
    if let Dialect::BpfParts { rules } = dialect {
        out.line(&format!("#define WEIR_PARTS {}", parts::count(program, rules)));
    }
    if program.rewrites() {
        out.line("#define WEIR_REWRITES");
    }
    if counts_connections(program) {
        out.line("#define WEIR_CONNECTIONS");
    }
    if let (true, Some(card)) = (dialect.is_bpf(), &program.card) {
        out.line(&format!("#define WEIR_ANSWERS {}", card.body.bytes()));
        out.line(&format!("#define WEIR_CHAINS {}", program.chains.len()));
    }
}

/// Writes the head of the file: its title, includes and tables.
fn includes(program: &Program, dialect: Dialect, out: &mut Writer) {
    let environment = match dialect {
        Dialect::Native => "user space",
        Dialect::Bpf => "BPF",
        Dialect::BpfParts { .. } => "BPF, verified in parts",
    };
    out.line(&format!(
        "/* Policy {}, compiled by Weir for {environment}. Do not edit: change the policy. */",
        writer::comment(&program.name)
    ));
    defines(program, dialect, out);
    // Each once, in order.
    let lookups: BTreeSet<&str> = program.slots.iter().map(|slot| chain::lookup_header(slot.layout)).collect();
    for header in ["core/env.h", "core/verdict.h", "core/packet.h", "core/raw.h"].into_iter().chain(lookups) {
        out.include(header);
    }
    if dialect.is_bpf() {
        out.include(if dialect == Dialect::Bpf { "kernel/hook.h" } else { "kernel/parts.h" });
    } else {
        out.include("core/burst.h");
        out.blank();
        out.line("const uint32_t weir_abi_version = WEIR_ABI_VERSION;");
    }
    if program.card.is_some() {
        out.blank();
        out.include(dialect.header("card/answers.h", "card/burst.h"));
    }
    if !program.limiters.is_empty() {
        out.blank();
        out.include("limits/limit.h");
        if program.limiters.iter().any(|limiter| matches!(limiter.kind, LimiterKind::Each(_))) {
            out.include("limits/each.h");
        }
    }
    if !program.adders.is_empty() {
        out.blank();
        out.include(dialect.header("tables/kernel_addition.h", "tables/addition.h"));
    }
    if program.counts_entries() {
        out.blank();
        out.include(dialect.header("tables/kernel_entry_counter.h", "tables/entry_counter.h"));
    }
    slot::emit(program, dialect, out);
    if let Some(tracking) = &program.tracking {
        tracking::emit(tracking, dialect, out);
    }
    if counts_connections(program) {
        out.include(dialect.header("connections/kernel.h", "connections/burst.h"));
    }
    if let Some(observe) = &program.observe {
        observe::emit(observe, dialect, out);
    }
    storage(program, dialect, out);
}

/// Writes the memory of the tables for BPF, and their names for native code.
fn storage(program: &Program, dialect: Dialect, out: &mut Writer) {
    if !program.slots.is_empty() {
        out.blank();
    }
    for (index, slot) in program.slots.iter().enumerate() {
        let name = match &slot.contents {
            SlotContents::Tables(names) => format!("@{}", names.join(", @")),
            SlotContents::Limits(name) => format!("limits @{name}"),
        };
        let layout = slot.layout.name();
        out.line(&match dialect {
            Dialect::Native => format!("/* Table {index}: {name}, {layout} */"),
            Dialect::Bpf | Dialect::BpfParts { .. } => format!("WEIR_TABLE_STORAGE({index}); /* {name}, {layout} */"),
        });
        if dialect.is_bpf() && slot.counted.is_some() {
            out.line(&format!("WEIR_ENTRY_STORAGE({index});"));
            if slot.counted == Some(TableKind::Labels) {
                out.line(&format!("WEIR_LABEL_STORAGE({index});"));
            }
        }
    }
}

/// The C names of the chains, in order. Names of postures may be equal after conversion to C identifiers; underscores
/// make them distinct.
pub fn chain_symbols(program: &Program) -> Vec<String> {
    let mut symbols: Vec<String> = Vec::with_capacity(program.chains.len());
    let answered = program.card.as_ref().map(|card| card.chain);
    for (index, chain) in program.chains.iter().enumerate() {
        let mut symbol = chain.symbol();
        if Some(index) == answered {
            symbol.insert_str(0, "answered_");
        }
        while symbols.contains(&symbol) {
            symbol.push('_');
        }
        symbols.push(symbol);
    }
    symbols
}
