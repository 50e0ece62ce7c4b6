use super::{Exempt, Refusal, Why, offload};
use crate::checked::ValueSet;
use crate::ir::Program;
use crate::ir::parse::parse;
use weir_abi::Family;

/// A program with the tables `bad` and `admin` of IPv4 and `six` of IPv6. Rule 0 is `ip saddr @bad drop`, whose node is
/// behind the nodes `before`.
fn program(rules: &str, before: &str) -> Program {
    let text = format!(
        "program p\nslot 0 bad ip4 rank-leaf\nslot 1 admin ip4 rank-leaf\nslot 2 six ip6 rank-leaf6\n\
         rule 0 p:9 [drop] ip saddr @bad drop\n{rules}chain upstream\n  ask 0 slot 0 ip saddr\n  ask 1 slot 1 ip saddr\n  \
         ask 2 slot 2 ip6 saddr\n{before}  when ip4\n    find 0\n    when found 0\n      rule 0\n"
    );
    parse(&text).unwrap_or_else(|error| panic!("{error:?}: {text}"))
}

fn refused(program: &Program, table: &str) -> String {
    offload(program, None, table).expect_err("it is refused").to_string()
}

#[test]
fn the_first_rule_for_a_source_may_be_offloaded() {
    let found = offload(&program("", ""), None, "bad").expect("it may");
    assert_eq!((found.rule.0, found.family, found.exempt, found.unseen), (0, Family::Ipv4, vec![], vec![]));
    assert_eq!(
        refused(&program("", ""), "admin"),
        "table admin: no rule upstream is `ip saddr @admin drop` (or `ip6 saddr`), with no other match"
    );
    assert_eq!(
        offload(&program("", ""), Some("high"), "bad"),
        Err(Refusal { table: "bad".to_owned(), why: Why::NoRule })
    );
}

#[test]
fn rules_in_front_that_drop_or_count_are_said() {
    let rules = "rule 1 p:1 [drop] udp dport 1 drop\nrule 2 p:2 [sample 1/4] sample 1/4\n";
    let before = "  when udp\n    when udp dport in 1\n      rule 1\n  rule 2\n";
    let found = offload(&program(rules, before), None, "bad").expect("it may");
    assert_eq!(found.unseen.iter().map(|rule| rule.0).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn rules_in_front_that_accept_are_obstacles_unless_for_others() {
    let rules = "rule 1 p:1 [accept] tcp accept\n";
    assert_eq!(
        refused(&program(rules, "  when tcp\n    rule 1\n"), "bad"),
        "table bad: p:1: `tcp accept` stands before its rule, and accepts packets of its sources"
    );
    // Of another family.
    let found = offload(&program(rules, "  when ip6\n    when tcp\n      rule 1\n"), None, "bad").expect("it may");
    assert_eq!((found.exempt, found.unseen), (vec![], vec![]));
    let found = offload(&program(rules, "  when icmpv6\n    rule 1\n"), None, "bad");
    assert!(found.is_ok(), "{found:?}");
    // From sources of another table, or that are listed.
    let before = "  when ip4\n    find 1\n    when found 1\n      rule 1\n";
    let found = offload(&program(rules, before), None, "bad").expect("it may");
    assert_eq!(found.exempt, [Exempt::Table("admin".to_owned())]);
    let before = "  when ip4\n    when ip saddr in 192.0.2.0-192.0.2.255\n      rule 1\n";
    let found = offload(&program(rules, before), None, "bad").expect("it may");
    assert_eq!(found.exempt, [Exempt::Addresses(ValueSet::new([(0xc000_0200, 0xc000_02ff)]))]);
    // From all but those, or from sources of the table itself.
    let but = "  when ip4\n    find 1\n    when not found 1\n      rule 1\n";
    let own = "  when ip4\n    find 0\n    when found 0\n      when tcp\n        rule 1\n";
    for before in [but, own] {
        assert!(refused(&program(rules, before), "bad").contains("p:1: `tcp accept`"), "{before}");
    }
}

#[test]
fn packets_that_defaults_let_pass_are_an_obstacle() {
    let mut program = program("", "");
    program.defaults.fragment = crate::checked::Fallback::Decide(weir_abi::Action::Accept);
    assert_eq!(refused(&program, "bad"), "table bad: `defaults` accepts or diverts fragment packets of its sources");
    program.defaults.malformed = weir_abi::Action::Accept;
    assert!(refused(&program, "bad").contains("malformed"));
}
