//! A chain as several BPF programs, for chains that the verifier refuses as one program.
//!
//! The verifier follows every path with different register states, up to a million instructions and 8192 open branches
//! in a program. Here each program has a few dozen rules and jumps to the next by a tail call
//! (`datapath/kernel/parts.h`). The parsed packet is in a map value, so the verifier knows nothing about it at the
//! start of a part. Global functions look up tables and large sets, and the verifier follows a global function once in
//! a program. Each jump and each call costs a packet nanoseconds (docs/decisions/0020-bpf-in-parts.md).

use super::chain::{self, ChainEmitter};
use super::packet_rules;
use super::writer::Writer;
use crate::ir::{Chain, MatchTree, Node, Program, SlotId, match_tree};
use crate::pass::{self, Placement};
use std::iter;
use weir_abi::Family;

/// Maximum number of parts of a chain. The kernel allows 33 tail calls, and one of them enters the first part.
const PARTS_MAX: usize = 32;

/// Writes everything after the declarations of tables. `chains` are the optimised chains of `program`.
pub(super) fn emit(program: &Program, rules: usize, chains: &[ChainEmitter<'_>], out: &mut Writer) {
    for slot in 0..program.slots.len() {
        find_function(program, SlotId(slot as u16), out);
    }
    let mut first = 0;
    for (lowered, chain) in program.chains.iter().zip(chains) {
        let bodies = split(&lowered.tree.nodes, rules);
        if bodies.is_empty() {
            chain.emit(out);
        } else {
            emit_chain(program, lowered, chain, &bodies, first, out);
        }
        first += bodies.len();
    }
}

/// Writes a chain whose parts are programs, numbered from `first`.
fn emit_chain(
    program: &Program,
    lowered: &Chain,
    chain: &ChainEmitter<'_>,
    bodies: &[&[Node]],
    first: usize,
    out: &mut Writer,
) {
    let part = |body: &&[Node]| {
        let tree = MatchTree { nodes: body.to_vec(), ..lowered.tree.clone() };
        Chain { tree, ..lowered.clone() }
    };
    let parts = Program { chains: bodies.iter().map(part).collect(), ..program.clone() };
    let parts = pass::optimise_parts(&parts, Placement::Lazy);
    for (index, part) in parts.chains.iter().enumerate() {
        let is_last = index + 1 == parts.chains.len();
        let part = chain.part(&parts, part, format!("{}_part_{index}", chain.name));
        part.sets(out);
        packet_rules::emit_part(&part, is_last, out);
        out.blank();
        out.line(&format!("WEIR_PART_OF_CHAIN({}, {})", part.name, first + index));
    }
    chain.frame(None, out);
    out.blank();
    out.line(&format!("WEIR_CHAIN_IN_PARTS({}, {first})", chain.name));
}

/// Number of parts of all chains.
pub(super) fn count(program: &Program, rules: usize) -> usize {
    program.chains.iter().map(|chain| split(&chain.tree.nodes, rules).len()).sum()
}

/// Splits top nodes into parts of about `wanted` rules. Empty if one program is enough for the chain.
fn split(body: &[Node], wanted: usize) -> Vec<&[Node]> {
    let all = match_tree::rules(body).count();
    let limit = wanted.max(all.div_ceil(PARTS_MAX));
    let (mut parts, mut start, mut rules) = (Vec::new(), 0, 0);
    for (index, node) in body.iter().enumerate() {
        rules += node.rules().count();
        if rules >= limit {
            parts.push(&body[start..=index]);
            (start, rules) = (index + 1, 0);
        }
    }
    if start < body.len() {
        parts.push(&body[start..]);
    }
    if parts.len() == 1 { vec![] } else { parts }
}

/// Writes the global lookup function of a slot.
fn find_function(program: &Program, id: SlotId, out: &mut Writer) {
    let slot = program.slot(id);
    let (parameters, keys) = match slot.family {
        Family::Ipv4 => (vec!["uint32_t addr"], ["addr", "", ""]),
        Family::Ipv6 => (vec!["uint64_t hi", "uint64_t lo"], ["", "hi", "lo"]),
    };
    let parameters: Vec<String> = iter::once("uint64_t halves").chain(parameters).map(str::to_owned).collect();
    out.blank();
    out.function(&format!("WEIR_GLOBAL uint32_t {}", chain::find_name(id)), &parameters);
    // A table that does not change has no use for it. Callers would not set an argument that nothing reads, and the
    // verifier refuses that.
    out.line("__asm__ volatile(\"\" : \"+r\"(halves));");
    out.line(&format!("return {};", chain::lookup(slot.layout, &format!("WEIR_TABLE_HALF(halves, {})", id.0), keys)));
    out.close();
}
