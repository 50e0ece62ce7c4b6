use super::{Act, SlotRule, text};
use crate::ir::Test;
use weir_abi::slot::{SlotField, header, tested};

fn record(rule: &str) -> weir_abi::slot::SlotRule {
    SlotRule::parse(rule).unwrap_or_else(|refused| panic!("{rule}\n{refused}")).record
}

#[test]
fn a_rule_is_a_record() {
    let rule = record("ip daddr 192.0.2.0/24 udp sport 53 meta length 512-1500 drop");
    assert_eq!(rule.headers, header::IPV4 | header::UDP);
    let (sport, length) = (SlotField::Sport as usize, SlotField::Length as usize);
    assert_eq!(rule.tested, tested::DADDR | 1 << sport | 1 << length);
    assert_eq!((rule.first[sport], rule.span[sport]), (53, 0));
    assert_eq!((rule.first[length], rule.span[length]), (512, 988));
    assert_eq!(rule.daddr.ends(), (0xc000_0200, 0xc000_02ff));
    assert_eq!(rule.act, 1);
}

#[test]
fn records_print_as_rules_that_read_as_themselves() {
    let rules = [
        "ip daddr 192.0.2.1 drop",
        "ip daddr 192.0.2.0/24 ip saddr 198.51.100.1-198.51.100.9 drop",
        "ip6 daddr 2001:db8::/32 meta l4proto udp th sport 53 @th,64,32 0x0badcafe drop",
        "ip6 daddr 2001:db8::1 ip6 saddr 2001:db8::2-2001:db8::9 ip6 hoplimit 1-63 drop",
        "tcp sport 80 tcp dport 1024-65535 tcp flags == syn,ack tcp doff 5 tcp window 0-1023 drop",
        "tcp flags & (syn | ack) == syn drop",
        "tcp flags == 0 counter",
        "udp sport 53 limit rate 20kpps burst 200packets",
        "udp drop",
        "icmp type 8 icmp code 0 limit rate 5/minute burst 1packets",
        "icmpv6 type 128 limit rate 10mbit burst 64kbytes",
        "icmpv6 counter",
        "meta fragment later meta length 1000-1500 drop",
        "meta fragment 1-2 drop",
        "meta l4proto gre drop",
        "meta l4proto 254 drop",
        "meta l4proto tcp th dport 443 ip ttl 64 counter",
        "counter",
    ];
    for rule in rules {
        assert_eq!(text(&record(rule)), rule);
    }
}

#[test]
fn what_means_the_same_is_the_same_record() {
    let same = [
        ("tcp flags syn drop", "tcp flags & (syn) == syn drop"),
        ("tcp flags & syn == syn drop", "tcp flags & (syn) == syn drop"),
        ("tcp flags & syn != 0 drop", "tcp flags & (syn) == syn drop"),
        ("th dport >= 1024 drop", "th dport 1024-65535 drop"),
        ("th dport 1000-2000 th dport 1500-3000 counter drop", "th dport 1500-2000 drop"),
        ("tcp flags ! syn,ack drop", "tcp flags & (syn | ack) == 0 drop"),
        ("udp dport domain drop", "udp dport 53 drop"),
        ("meta length > 512 drop", "meta length 513-4294967295 drop"),
        ("tcp counter limit rate 100/second", "tcp limit rate 100pps burst 10packets"),
        ("th dport 1-9 udp sport 3 drop", "udp sport 3 udp dport 1-9 drop"),
    ];
    for (rule, printed) in same {
        assert_eq!(text(&record(rule)), printed, "{rule}");
    }
}

#[test]
fn the_tests_are_those_of_the_language() {
    let rule = SlotRule::parse("tcp flags syn drop").unwrap();
    assert_eq!(rule.act, Act::Drop);
    let shown: Vec<String> = rule.tests.iter().map(Test::to_string).collect();
    assert_eq!(shown, ["tcp", "tcp flags & 0x2 not in 0"]);
}

#[test]
fn what_no_record_has_is_refused_in_its_place() {
    let refused = |rule: &str| SlotRule::parse(rule).expect_err(rule).to_string();
    let all: Vec<String> = [
        "",
        "ip daddr 192.0.2.1 accept",
        "ip daddr 192.0.2.1",
        "ip daddr @victims drop",
        "ip daddr { 192.0.2.1 } drop",
        "ip daddr 192.0.2.1 drop; accept",
        "tcp dport != 80 drop",
        "vlan id 7 drop",
        "@nh,0,8 1 drop",
        "tcp flags syn,ack drop",
        "tcp flags != syn drop",
        "ip daddr 192.0.2.1 ip6 saddr ::1 drop",
        "tcp dport 80 udp sport 53 drop",
        "th dport 80 udp dport 81 drop",
        "ip ttl 300 drop",
        "udp sport 53 limit rate 5/second drop",
        "udp sport 53 limit rate 5/second exceed divert",
        "udp sport 53 sample 1/10 drop",
        "meta lenght 5 drop",
        "limit each ip saddr 5pps",
        "ct state new drop",
        "slot other",
    ]
    .into_iter()
    .map(|rule| format!("{rule}\n{}", refused(rule)))
    .collect();
    insta::assert_snapshot!("refused", all.join("\n"));
}
