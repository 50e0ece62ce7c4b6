//! Tests of the IR: printing, parsing, verification, optimisation and emission.

mod p4;

use weir_abi::Target;
use weir_policy::backend::{self, c};
use weir_policy::ir::parse::parse;
use weir_policy::pass::{Placement, optimise};

const EDGE: &str = include_str!("programs/edge.ir");

#[test]
fn printed_ir_parses_to_itself() {
    let program = parse(EDGE).unwrap();
    assert_eq!(program.to_string(), EDGE);
    for placement in [Placement::Staged, Placement::Lazy] {
        let optimised = optimise(&program, placement);
        assert_eq!(parse(&optimised.to_string()).unwrap(), optimised);
    }
}

#[test]
fn snapshots() {
    let program = parse(EDGE).unwrap();
    insta::with_settings!({ snapshot_path => "programs", prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::assert_snapshot!("edge.staged", optimise(&program, Placement::Staged));
        insta::assert_snapshot!("edge.lazy", optimise(&program, Placement::Lazy));
        insta::assert_snapshot!("edge.native.c", backend::emit(&program, Target::Native));
        insta::assert_snapshot!("edge.bpf.c", backend::emit(&program, Target::Bpf));
    });
}

#[test]
fn postures_that_look_alike_in_c_are_told_apart() {
    let chains: String = ["upstream of a-b", "downstream of a-b", "upstream of a_b", "downstream of a_b"]
        .map(|chain| format!("chain {chain}\n  rule 0\n"))
        .concat();
    let program = parse(&format!("program x\nrule 0 x:1 [drop] drop\n{chains}")).unwrap();
    assert_eq!(c::chain_symbols(&program), ["a_b_upstream", "a_b_downstream", "a_b_upstream_", "a_b_downstream_"]);
}

#[test]
fn tables_that_look_alike_in_c_are_told_apart() {
    // The name that would distinguish `a_b` from `a-b` belongs to another table.
    let slots: String = ["t2_a_b", "a-b", "a_b"]
        .iter()
        .enumerate()
        .map(|(slot, name)| format!("slot {slot} {name} ip4 exact-set\n"))
        .collect();
    let tests: String =
        (0..3).map(|find| format!("    find {find}\n    when found {find}\n      rule {find}\n")).collect();
    let rules: String = (0..3).map(|rule| format!("rule {rule} x:1 [drop] drop\n")).collect();
    let asks: String = (0..3).map(|find| format!("  ask {find} slot {find} ip saddr\n")).collect();
    let program = parse(&format!("program x\n{slots}{rules}chain upstream\n{asks}  when ip4\n{tests}")).unwrap();
    let c = backend::emit(&program, Target::Native);
    for name in ["t2_a_b_saddr", "a_b_saddr", "t2_t2_a_b_saddr"] {
        assert_eq!(c.matches(&format!("uint32_t {name}[WEIR_BURST_MAX];")).count(), 1, "{c}");
    }
}

#[test]
fn broken_programs_are_refused() {
    let head = "program x\nslot 0 bad ip4 exact-set\nrule 0 x:1 [drop] drop\nchain upstream\n  ask 0 slot 0 ip saddr\n";
    let refused = |body: &str| parse(&format!("{head}{body}")).unwrap_err();
    assert_eq!(refused("  rule 1\n"), "chain upstream: rule 1 does not exist");
    assert_eq!(refused("  find 0\n"), "chain upstream: a test is outside of its guard 'ip4'");
    assert_eq!(
        refused("  when ip4\n    when found 0\n      rule 0\n"),
        "chain upstream: find 0 is tested before it is done"
    );
    assert_eq!(refused("  when tcp dport in 22\n    rule 0\n"), "chain upstream: a test is outside of its guard 'tcp'");
    assert_eq!(parse("program x\non-exit later\n").unwrap_err(), "line 2: cannot read 'on-exit later'");
    assert_eq!(
        parse("program x\nrule 0 x:1 [reply] reply\n").unwrap_err(),
        "line 2: cannot read 'rule 0 x:1 [reply] reply'"
    );
    assert_eq!(
        parse("program x\nrule 0 x:1 [synproxy] tcp synproxy\nchain upstream\n  rule 0\n").unwrap_err(),
        "chain upstream: rule 0: nothing says how SYNs are answered"
    );
    assert_eq!(refused("   rule 0\n"), "line 6: bad indentation");
    assert_eq!(refused("  when tcp port in 22\n"), "line 6: cannot read 'when tcp port in 22'");
}
