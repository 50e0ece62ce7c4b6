//! The meaning of rules: the text on the left, the checked matches on the right.

mod check_support;

use check_support::front;
use weir_policy::checked::{Checked, Defaults, Effect, Fallback, Match, OnExit};
use weir_policy::diag::render::{Style, render};
use weir_policy::field::Subject;
use weir_policy::syntax::NoIncludes;
use weir_policy::{check::Members, source::Source, syntax::parse};

const TABLES: &str = "
table bad { type ipv4; elements = { 192.0.2.1 } }
table geo { type ipv4 : label; elements = { 192.0.2.0/24 : HR, 192.0.3.0/24 : SI, 192.0.4.0/24 : AT } }
limits slow { file \"slow.csv\" }
define WEB = { http, https }
define ALL = { ssh, $WEB }
define FLAGS = syn,ack
define HIGH = 1024
define NET = 192.0.2.0/24
downstream { accept }
";

fn policy(text: &str) -> Checked {
    let (sources, _, checked) = front("dir/edge.weir", text, &NoIncludes);
    checked.unwrap_or_else(|errors| panic!("{text}\n{}", render(&errors, &sources, Style::Plain)))
}

/// `tcp dport not (22..22)`, `tcp flags &18 (2..2)`, `ip saddr table 1 labels [1, 3]`.
fn meaning(rule: &str) -> String {
    let checked = policy(&format!("{TABLES}upstream {{ {rule} drop; accept }}"));
    let rules = checked.postures[0].upstream.as_ref().expect("upstream is written");
    let text = |condition: &Match| match condition {
        Match::Guard(guard) => format!("{guard:?}"),
        Match::Value { subject, mask, set, negated } => {
            let subject = match subject {
                Subject::Field(field) => field.name().to_owned(),
                Subject::Raw(raw) => format!("{:?}+{}:{}", raw.base, raw.offset_bits, raw.bits),
                Subject::Card(answer) => format!("{answer:?}"),
            };
            let mask = mask.map_or(String::new(), |mask| format!(" &{mask}"));
            let not = if *negated { " not" } else { "" };
            let ranges: Vec<_> = set.ranges().iter().map(|(a, b)| format!("{a}..{b}")).collect();
            format!("{subject}{mask}{not} ({})", ranges.join(" "))
        }
        Match::Table { key, table, labels, negated } => {
            let not = if *negated { " not" } else { "" };
            let labels = labels.as_ref().map_or(String::new(), |labels| {
                format!(" labels {:?}", labels.iter().map(|label| label.0).collect::<Vec<_>>())
            });
            format!("{}{not} table {}{labels}", key.name(), table.0)
        }
    };
    rules[0].matches.iter().map(text).collect::<Vec<_>>().join(", ")
}

#[test]
fn comparisons() {
    for (rule, expected) in [
        ("tcp dport 22", "tcp dport (22..22)"),
        ("tcp dport eq ssh", "tcp dport (22..22)"),
        ("tcp dport != 22", "tcp dport not (22..22)"),
        ("tcp dport ne { 22, 23, 80-90 }", "tcp dport not (22..23 80..90)"),
        ("tcp dport < 1024", "tcp dport (0..1023)"),
        ("tcp dport le 1024", "tcp dport (0..1024)"),
        ("tcp dport > 1024", "tcp dport (1025..65535)"),
        ("tcp dport ge 1024", "tcp dport (1024..65535)"),
        ("meta length > 512", "meta length (513..4294967295)"),
        ("tcp dport $HIGH - 65535", "tcp dport (1024..65535)"),
        ("tcp dport $HIGH - 2000", "tcp dport (1024..2000)"),
        ("tcp dport $ALL", "tcp dport (22..22 80..80 443..443)"),
        ("tcp dport != { 1, $WEB }", "tcp dport not (1..1 80..80 443..443)"),
        ("ip saddr 192.0.2.0/24", "ip saddr (3221225984..3221226239)"),
        ("ip saddr $NET", "ip saddr (3221225984..3221226239)"),
        ("ip saddr 0.0.0.0/0", "ip saddr (0..4294967295)"),
        ("ip saddr & 255.0.0.0 == 10.0.0.0", "ip saddr &4278190080 (167772160..167772160)"),
        ("ip6 saddr ::/0", "ip6 saddr (0..340282366920938463463374607431768211455)"),
        ("ip6 saddr ::ffff:192.0.2.1", "ip6 saddr (281473902969345..281473902969345)"),
        ("ip frag-off & 0x1fff != 0", "ip frag-off &8191 not (0..0)"),
        ("ip ttl & 3 { 1, 2 }", "ip ttl &3 (1..2)"),
        ("ip dscp { cs1, ef }", "ip dscp (8..8 46..46)"),
        ("ip ecn ce", "ip ecn (3..3)"),
        ("ip options exists", "ip options (1..1)"),
        ("exthdr hbh missing", "exthdr hbh (0..0)"),
        ("meta fragment { first, later }", "meta fragment (1..2)"),
        ("meta nfproto ipv6", "meta nfproto (10..10)"),
        ("meta l4proto != { tcp, icmpv6 }", "meta l4proto not (6..6 58..58)"),
        ("ether type 8021q", "ether type (33024..33024)"),
        ("vlan inner-id 7 vlan pcp 1", "vlan inner-id (7..7), vlan pcp (1..1)"),
        ("icmp type echo-request icmp code 0", "icmp type (8..8), icmp code (0..0)"),
        ("icmpv6 type nd-redirect", "icmpv6 type (137..137)"),
        ("@nh,96,32 0xc0000201", "Network+96:32 (3221225985..3221225985)"),
        ("@th,0,16 & 0xff00 != 0x1200", "Transport+0:16 &65280 not (4608..4608)"),
        ("tcp", "Tcp"),
        ("icmpv6", "Icmp6"),
    ] {
        assert_eq!(meaning(rule), expected, "{rule}");
    }
}

/// The values come from `nft --debug=netlink`.
#[test]
fn tcp_flags() {
    for (rule, expected) in [
        ("tcp flags syn", "tcp flags &2 not (0..0)"),
        ("tcp flags 2", "tcp flags &2 not (0..0)"),
        ("tcp flags syn,ack", "tcp flags &18 not (0..0)"),
        ("tcp flags syn | ack", "tcp flags &18 not (0..0)"),
        ("tcp flags $FLAGS", "tcp flags &18 not (0..0)"),
        ("tcp flags ! syn", "tcp flags &2 (0..0)"),
        ("tcp flags ! syn,ack", "tcp flags &18 (0..0)"),
        ("tcp flags == syn", "tcp flags (2..2)"),
        ("tcp flags == syn,ack", "tcp flags (18..18)"),
        ("tcp flags == $FLAGS", "tcp flags (18..18)"),
        ("tcp flags != syn", "tcp flags not (2..2)"),
        ("tcp flags != syn,ack", "tcp flags not (18..18)"),
        ("tcp flags { syn, ack }", "tcp flags (2..2 16..16)"),
        ("tcp flags { syn, syn | ack }", "tcp flags (2..2 18..18)"),
        ("tcp flags != { syn }", "tcp flags not (2..2)"),
        ("tcp flags syn / syn,ack", "tcp flags &18 (2..2)"),
        ("tcp flags syn,ack / syn,ack,fin", "tcp flags &19 (18..18)"),
        ("tcp flags != syn / syn,ack", "tcp flags &18 not (2..2)"),
        ("tcp flags & (syn|ack) == syn", "tcp flags &18 (2..2)"),
        ("tcp flags & (syn|ack) syn", "tcp flags &18 (2..2)"),
        ("tcp flags & (syn|ack) != 0", "tcp flags &18 not (0..0)"),
        ("tcp flags & (fin | syn | rst | ack) { syn, ack }", "tcp flags &23 (2..2 16..16)"),
        ("tcp flags & $FLAGS == $FLAGS", "tcp flags &18 (18..18)"),
        ("tcp flags > 3", "tcp flags (4..255)"),
    ] {
        assert_eq!(meaning(rule), expected, "{rule}");
    }
}

#[test]
fn tables_and_statements() {
    assert_eq!(meaning("ip saddr @bad"), "ip saddr table 0");
    assert_eq!(meaning("ip daddr != @bad"), "ip daddr not table 0");
    assert_eq!(meaning("ip saddr @geo { AT, HR }"), "ip saddr table 1 labels [1, 3]");
    assert_eq!(meaning("ip saddr != @geo { SI }"), "ip saddr not table 1 labels [2]");

    let checked = policy(&format!(
        "{TABLES}upstream {{ tcp counter track sample 1/7 ip saddr limit @slow divert; accept }}
         defaults {{ fragment drop; no-match divert }}
         posture storm {{ upstream {{ drop }} }}"
    ));
    let effects = &checked.postures[0].upstream.as_ref().expect("upstream is written")[0].effects;
    assert!(matches!(
        effects[..],
        [Effect::Counter, Effect::Track, Effect::Sample { one_in: 7 }, Effect::Limit { .. }, Effect::Verdict(_)]
    ));
    let expected = Defaults {
        fragment: Fallback::Decide(weir_abi::Action::Drop),
        no_match: weir_abi::Action::Divert,
        ..Defaults::default()
    };
    assert_eq!(checked.defaults, expected);
    assert_eq!(checked.name, "edge");
    assert_eq!(checked.postures[1].name.as_deref(), Some("storm"));
    assert!(checked.postures[1].downstream.is_none());
}

#[test]
fn what_the_caller_loads() {
    let text = "define NET = { 192.0.2.0/24, 198.51.100.1 }
        table a { type ipv4 : label; elements = { $NET : HR, 10.0.0.1-10.0.0.5 : SI }; file \"l/geo.mmdb\" field \"x.y\" lenient }
        table b { type ipv6; dynamic; file \"/abs.txt\" }
        limits slow { file \"slow.csv\" }";
    let (sources, parsed) = parse(Source::new("etc/edge.weir", text), &NoIncludes);
    let tables = parsed.tables(&sources);
    let member = |m: &Members| (m.first, m.prefix_length(tables[0].family), m.label.clone().unwrap_or_default());
    let members: Vec<_> = tables[0].members.iter().map(member).collect();
    let (net, host, range) = (0xc000_0200, 0xc633_6401, 0x0a00_0001);
    let label = |text: &str| text.to_owned();
    assert_eq!(members, [(net, Some(24), label("HR")), (host, Some(32), label("HR")), (range, None, label("SI"))]);
    let file = &tables[0].files[0];
    assert_eq!((file.path.as_str(), file.field.as_deref(), file.lenient), ("etc/l/geo.mmdb", Some("x.y"), true));
    assert_eq!((tables[1].files[0].path.as_str(), tables[1].dynamic), ("/abs.txt", true));
    assert_eq!(parsed.limits(&sources)[0].files[0].path, "etc/slow.csv");
}

#[test]
fn bounds_are_errors() {
    let codes = |text: &str| -> Vec<&str> {
        let (_, _, checked) = front("bounds.weir", text, &NoIncludes);
        checked.map_or_else(|errors| errors.iter().map(|error| error.code).collect(), |_| Vec::new())
    };
    let rules = |n: usize| format!("upstream {{\n{}}}\ndownstream {{ accept }}", "counter\n".repeat(n));
    assert_eq!(codes(&rules(65_502)), [""; 0]);
    assert_eq!(codes(&rules(65_503)), ["E0314"]);
    let tables = |n: usize| -> String {
        (0..n)
            .map(|i| format!("table t{i} {{ type ipv4; dynamic }}\n"))
            .chain(["upstream { accept }".to_owned()])
            .collect()
    };
    assert_eq!(codes(&tables(1024)), [""; 0]);
    assert_eq!(codes(&tables(1025)), ["E0314"]);
    let postures =
        |n: usize| -> String { (0..n).map(|i| format!("posture p{i} {{ upstream {{ drop }} }}\n")).collect() };
    assert_eq!(codes(&postures(64)), [""; 0]);
    assert_eq!(codes(&postures(65)), ["E0314"]);
    // With another rate in each posture the limiters differ.
    let limits = |n: usize| -> String {
        let rules = |i: usize| format!("limit rate {}pps\n", 100 + i).repeat(32);
        (0..n).map(|i| format!("posture p{i} {{ upstream {{\n{}}} }}\n", rules(i))).collect()
    };
    assert_eq!(codes(&limits(32)), [""; 0]);
    assert_eq!(codes(&limits(33)), ["E0314"]);
    let rules = "upstream { accept }\n";
    let long = rules.to_owned() + &"#".repeat(weir_policy::syntax::TEXT_BYTES_MAX - rules.len());
    assert_eq!(codes(&long), [""; 0]);
    assert_eq!(codes(&(long + "#")), ["E0112"]);
}

#[test]
fn the_link_blocks_in_the_end_unless_told_to_forward() {
    let said = |text: &str| policy(&format!("{text}\nupstream {{ drop }}\ndownstream {{ accept }}\n")).on_exit;
    assert_eq!(said(""), OnExit::Block);
    assert_eq!(said("on-exit block"), OnExit::Block);
    assert_eq!(said("on-exit forward"), OnExit::Forward);
}
