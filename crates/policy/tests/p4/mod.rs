//! Tests of the P4 backend: what it prints, and that what it prints is P4.

mod architecture;
mod kinds;
mod reader;
mod tables;
mod tokens;

use reader::read;
use weir_policy::backend::p4;
use weir_policy::ir::Program;
use weir_policy::ir::parse::parse;

/// A program with what the others lack: counted tables, limits of all kinds, additions, marks, wide values.
const EFFECTS: &str = include_str!("../programs/effects.ir");

/// A program with tracking and a slot.
const STATE: &str = include_str!("../programs/state.ir");

fn edge() -> Program {
    parse(super::EDGE).expect("a program")
}

#[test]
fn snapshots_of_p4() {
    insta::with_settings!({ snapshot_path => "../programs", prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::assert_snapshot!("edge.p4", p4::emit_p4(&edge()));
        insta::assert_snapshot!("edge.spec", after(&p4::emit_spec(&edge()), "PARSED"));
        let effects = parse(EFFECTS).unwrap();
        let text = p4::emit_p4(&effects);
        insta::assert_snapshot!("effects.p4", before(after(&text, "control chain_upstream"), "control Deparser"));
        let state = p4::emit_p4(&parse(STATE).unwrap());
        let mark = "control chain_upstream";
        insta::assert_snapshot!("state.p4", before(after(&state, mark), "control Deparser"));
        insta::assert_snapshot!("effects.p4.c", before(&p4::emit(&effects), "static const struct p4_field arrival_t"));
    });
}

/// What a text has from a mark on. The parser is the same for all policies.
fn after<'t>(text: &'t str, mark: &str) -> &'t str {
    &text[text.rfind(mark).expect("the mark")..]
}

fn before<'t>(text: &'t str, mark: &str) -> &'t str {
    &text[..text.find(mark).expect("the mark")]
}

#[test]
fn what_is_printed_is_p4() {
    for program in [edge(), parse(EFFECTS).unwrap(), parse(STATE).unwrap()] {
        read(&p4::emit_p4(&program)).unwrap();
    }
}

/// A program with sets that are too large for conditions.
fn sets() -> String {
    let ports: Vec<String> = (1..10).map(|port| format!("{port}0-{port}5")).collect();
    let addresses: Vec<String> = (1..9).map(|number| format!("2001:db8:0:{number}::{number}")).collect();
    let addresses = addresses.join(", ");
    let [tcp, dscp] = ["tcp sport", "ip dscp"].map(|field| (field, "0, 2, 4, 6, 8, 10, 12, 14, 16, 18"));
    let text = format!(
        "program sets\nrule 0 sets.weir:1 [drop] one\nrule 1 sets.weir:2 [drop] two\nchain upstream\n  when tcp\n    \
         when tcp dport not in {}\n      when {} in {}\n        rule 0\n  when ip6\n    \
         when ip6 saddr in {addresses}, 2001:db8:1::7-2001:db8:3::9\n      rule 1\n  when ip4\n    \
         when {} in {}\n      rule 1\nchain downstream\n",
        ports.join(", "),
        tcp.0,
        tcp.1,
        dscp.0,
        dscp.1
    );
    p4::emit_p4(&parse(&text).expect("the rules are a policy"))
}

#[test]
fn large_sets_are_tables() {
    let text = sets();
    read(&text).unwrap();
    for expected in [
        "!set_0.apply().hit && set_1.apply().hit",
        "hdr.tcp.destination: range;",
        "90 .. 95: NoAction();",
        "((hdr.ipv4.tos >> 2) & 0x3f): range @name(\"value\");",
        "(0x20010db800000001, 1): NoAction();",
        "(0x20010db800010000, 7 .. 0xffffffffffffffff): NoAction();",
        "(0x20010db800010001 .. 0x20010db80002ffff, _): NoAction();",
        "(0x20010db800030000, 0 .. 9): NoAction();",
    ] {
        assert!(text.contains(expected), "{expected} is not in {}", after(&text, "control chain_upstream"));
    }
    for (from, to, error) in [
        ("90 .. 95:", "95 .. 90:", "95 .. 90 is empty"),
        ("90 .. 95:", "90 .. 65536:", "65536 needs more than 16 bits"),
        ("set_1.apply().hit", "set_0.apply().hit", "set_1 is never applied"),
        ("set_1.apply().hit", "set_9.apply().hit", "set_9 is not declared"),
        ("table set_1", "table set_0", "set_0 is declared twice"),
    ] {
        let found = read(&text.replace(from, to)).expect_err(from);
        assert!(found.contains(error), "{from} gives: {found}");
    }
}

#[test]
fn the_reader_of_p4_finds_faults() {
    let text = p4::emit_p4(&edge());
    for (from, to, error) in [
        ("meta.l3 = 0;", "meta.l9 = 0;", "no metadata l9"),
        ("bit<16> total_length;", "bit<24> total_length;", "16"),
        ("bit<8> ttl;", "bit<4> ttl;", "ttl has 4 bits"),
        ("bit<8> l4;", "bit<8> l3;", "l3 is declared twice"),
        ("0x800: ipv4;", "0x800: ipv5;", "no state ipv5"),
        ("0x800: ipv4;", "0x10800: ipv4;", "67584 needs more than 16 bits"),
        ("default: cooked2_header;", "default: accept;", "state cooked2_header is not reached"),
        ("lookup_0.find(hdr.ipv4.source, meta.found_0)", "lookup_0.find(hdr.ipv4.source)", "lookup_0.find has 2"),
        ("lookup_0.find(hdr.ipv4.source", "lookup_0.find(hdr.ipv4.ttl", "argument 0 of lookup_0.find"),
        ("lookup_1.find(hdr.ipv4.source, meta.found_1)", "lookup_1.find(hdr.ipv4.source, 7)", "argument 1 of lookup_1"),
        ("lookup_1.find(hdr.ipv4.source, meta.found_1);", "", "lookup_1 is never used"),
        ("sample_3.sample", "sample_4.sample", "no object sample_4"),
        ("weir_lookup6(2) lookup_2;", "weir_lookup6() lookup_2;", "begins"),
        ("rule_1();", "rule_9();", "no action rule_9"),
        ("if (meta.found_1 != 0)", "if (meta.found_1)", "a condition is no bool"),
        ("(meta.raw_lo & 0xff) == 5", "meta.raw_lo & hdr.ipv4.ttl == 5", "&"),
        ("packet.emit(hdr.tcp);", "packet.emit(hdr.tcp2);", "no header tcp2"),
        ("chain_upstream() chain_upstream_rules;", "chain_up() chain_upstream_rules;", "chain_up is not declared"),
        ("decide(DROP, 33);", "decide(DROPPED, 33);", "DROPPED is not declared"),
        // What compilers refused or warned of.
        ("IngressControl", "Ingress", "Ingress is a name of the architecture"),
        ("struct empty_t {", "struct PortId_t {", "PortId_t is a name of the architecture"),
        ("extern weir_sample {", "extern weir_lookup4 {", "weir_lookup4 is declared twice"),
        ("weir_lookup4(1) lookup_1;", "weir_lookup4(1) lookup_0;", "lookup_0 is declared twice"),
        ("const bit<8> DROP = 1;", "const bit<8> DROP = 1; const bit<8> REPLY = 3;", "REPLY is never used"),
        ("PSA_CounterType_t.PACKETS)", "PSA_CounterType_t.PACKETS_AND_BYTES)", "PACKETS is missing"),
        ("const bit<32> COUNTERS = ", "const bit<32> COUNTS = ", "COUNTERS is not declared"),
        ("hdr.udp.source == 19 ||", "hdr.udp.source <= 19 ||", "<= is an operand of ||"),
        ("hdr.udp.source == 11211)", "hdr.udp.source >= 11211)", ">= is an operand of ||"),
        ("meta.l4 == 2 && (", "meta.l4 > 1 && (", "> is an operand of &&"),
        ("bit<8> ttl;", "bit<8> this;", "this is no name"),
        ("meta.left = meta.left - 20;", "meta.left = meta.left - 20", "; is missing"),
    ] {
        let broken = text.replace(from, to);
        assert_ne!(broken, text, "{from} is not in the text");
        let found = read(&broken).expect_err(from);
        assert!(found.contains(error) || error == "begins", "{from} gives: {found}");
    }
}
