//! The 25 categories of the paper's Table 2, each with its metadata (Table 3), on a card that can do a bit of
//! everything.

use crate::engines::load;
use weir_card::Profile;
use weir_card::profile::SHIPPED;
use weir_planning::card::{CardReport, report, split_of};

/// Compares destination ports, looks up addresses, and does not parse the TTL.
const CARD: &str = "
name a bit of everything
vlan 1
options no
ip6 no
match dport
carry sport
patterns 64
ranges 4
rules 64
counters 4
lookups 6
blocks 65536
metadata 448
reconfigure 1ms
";

/// Category, offload and metadata of a rule of the policy.
const TABLE: [(&str, &str, &str, &[u8]); 27] = [
    // At the head of the chain the card drops.
    ("tcp dport 1 drop", "ODn", "hardware", &[]),
    ("udp dport 2 drop", "ODn", "hardware", &[]),
    ("tcp dport 3 accept", "OAn", "hardware", &[4]),
    ("tcp dport 4 counter accept", "OAc", "hardware", &[4]),
    ("tcp dport 5 drop", "ODn", "hardware", &[4]),
    ("tcp dport 6 counter drop", "ODc", "hardware", &[4]),
    ("tcp dport 7 counter", "ONc", "hardware", &[3]),
    ("tcp dport 11 ip ttl 1 accept", "P0An", "hybrid", &[2]),
    ("tcp dport 12 ip ttl 1 counter accept", "P0Ac", "hybrid", &[2]),
    ("tcp dport 13 ip ttl 1 drop", "P0Dn", "hybrid", &[2]),
    ("tcp dport 14 ip ttl 1 counter drop", "P0Dc", "hybrid", &[2]),
    ("tcp dport 15 ip ttl 1 counter", "P0Nc", "hybrid", &[2]),
    ("ip saddr @a accept", "P1An", "hybrid", &[1]),
    ("ip saddr @b counter accept", "P1Ac", "hybrid", &[1]),
    ("ip saddr @c ip ttl 1 drop", "P1Dn", "hybrid", &[1]),
    ("tcp sport 21 counter drop", "P1Dc", "hybrid", &[1]),
    ("ip daddr @a ip ttl 2 counter", "P1Nc", "hybrid", &[1]),
    ("ip saddr @a tcp dport 31 accept", "P2An", "hybrid", &[1, 2]),
    ("ip saddr @a tcp dport 32 ip ttl 1 counter accept", "P2Ac", "hybrid", &[1, 2]),
    ("ip saddr @a tcp dport 33 drop", "P2Dn", "hybrid", &[1, 2]),
    ("udp sport 34 udp dport 34 counter drop", "P2Dc", "hybrid", &[1, 2]),
    ("ip saddr @a tcp dport 35 counter", "P2Nc", "hybrid", &[1, 2]),
    ("ip ttl 41 accept", "NAn", "software", &[]),
    ("ip ttl 42 counter accept", "NAc", "software", &[]),
    ("ip ttl 43 drop", "NDn", "software", &[]),
    ("ip ttl 44 counter drop", "NDc", "software", &[]),
    ("ip ttl 45 counter", "NNc", "software", &[]),
];

fn reported(rules: &str, profile: &str) -> CardReport {
    let tables = ["a", "b", "c"].map(|name| format!("table {name} {{ type ipv4; elements = {{ 192.0.2.0/25 }} }}\n"));
    let more = "table fed { type ipv4; dynamic }\ntable six { type ipv6; elements = { 2001:db8::/32 } }\n\
                slot s { size 4 }\ntracking { size 1024 }\n";
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("p.weir");
    let text = format!("{}{more}upstream {{\n{rules}\n}}\ndownstream {{ accept }}\n", tables.concat());
    std::fs::write(&path, text).expect("the policy can be written");
    let policy = load(&path).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    let profile = Profile::parse(profile).expect("the profile reads");
    let split = split_of(&policy, 0, &profile, &|_| true);
    report(&policy.program, &profile, &split)
}

#[test]
fn all_25_categories() {
    let rules: Vec<&str> = TABLE.iter().map(|(rule, ..)| *rule).collect();
    let report = reported(&rules.join("\n"), CARD);
    for ((rule, category, offload, metadata), found) in TABLE.iter().zip(&report.rules) {
        assert_eq!(
            (found.category.as_str(), found.offload, found.metadata.as_slice()),
            (*category, *offload, *metadata),
            "{rule}: {}",
            found.why
        );
    }
    let mut categories: Vec<&str> = report.rules.iter().map(|rule| rule.category.as_str()).collect();
    categories.sort_unstable();
    categories.dedup();
    assert_eq!((report.rules.len(), categories.len()), (TABLE.len(), 25));
    assert_eq!((report.dropping, report.lookups), (2, [4, 6]));
}

/// State that the card cannot keep is the software's, and so are tests of it.
#[test]
fn state_is_never_the_cards() {
    let rules = [
        ("ip saddr @fed drop", "NDn", "@fed changes while packets pass"),
        ("limit rate 5pps exceed mark", "ONc", "it matches every packet"),
        ("meta exceeded exists drop", "NDn", "limits are the software's"),
        ("ct state new drop", "NDn", "a flow's state is the software's"),
        ("tcp track", "ONc", "the card's parser knows `tcp`"),
        ("slot s", "ONc", "it matches every packet"),
        ("ip6 saddr @six drop", "NDn", "the card looks up IPv4 addresses only, not `ip6 saddr`"),
        ("@th,0,8 3 drop", "NDn", "the card does not parse `@th,0,8`"),
        // Not at the head, although everything before it is not the card's to decide.
        ("tcp dport 1 drop", "ODn", "the card compares `tcp dport`"),
        // What a rule does besides its verdict is the software's, so the card must not drop for it.
        (
            "tcp dport 2 add @fed { ip saddr } drop",
            "ODc",
            "the card compares `tcp dport`; the card's parser knows `ip4`",
        ),
        ("tcp dport 3 limit rate 1pps accept", "OAc", "the card compares `tcp dport`"),
        ("tcp dport 4 sample 1/2 drop", "ODc", "the card compares `tcp dport`"),
    ];
    let text: Vec<&str> = rules.iter().map(|(rule, ..)| *rule).collect();
    let report = reported(&text.join("\n"), CARD);
    for ((rule, category, why), found) in rules.iter().zip(&report.rules) {
        assert_eq!((found.category.as_str(), found.why.as_str()), (*category, *why), "{rule}");
    }
    assert_eq!(report.dropping, 0);
}

/// A rule that acts is not dropped on the card at the head, and neither is one behind the tracker.
#[test]
fn a_card_drops_only_at_the_head() {
    let drops = |rules: &str| reported(rules, CARD).dropping;
    assert_eq!(drops("tcp dport 1 drop\ntcp dport 2 drop"), 2);
    assert_eq!(drops("tcp dport 1 counter drop\ntcp dport 2 drop"), 0);
    assert_eq!(drops("tcp dport 1 sample 1/2 drop\ntcp dport 2 drop"), 0);
    assert_eq!(drops("ip ttl 1 counter\ntcp dport 2 drop"), 0);
    assert_eq!(drops("tcp dport 1 drop\nct state new counter drop\ntcp dport 2 drop"), 1);
    let five: Vec<String> = (1..6).map(|port| format!("tcp dport {port} drop")).collect();
    let report = reported(&five.join("\n"), CARD);
    assert_eq!(report.dropping, 4);
    let last = &report.rules[4];
    assert_eq!(last.metadata, [4]);
    assert!(last.why.ends_with("the card has no counter left for what it drops"), "{}", last.why);
}

/// A card that is too small takes the first rules, and says why it does not take the others.
#[test]
fn rooms_end() {
    let with = |setting: &str, value: &str| {
        let lines = CARD.lines().map(|line| match line.starts_with(setting) {
            true => format!("{setting} {value}\n"),
            false => format!("{line}\n"),
        });
        lines.collect::<String>()
    };
    let rules = "tcp dport 1 accept\nip saddr @a drop\ntcp dport 2 counter\nip daddr @b drop\ntcp dport { 3, 5, 7 } ip ttl 1 drop";
    let software = |profile: &str| {
        let report = reported(rules, profile);
        let left = report.rules.into_iter().enumerate().filter(|(_, rule)| rule.offload == "software");
        left.map(|(index, rule)| (index, rule.why.rsplit("; ").next().unwrap_or_default().to_owned()))
            .collect::<Vec<_>>()
    };
    let only = |index: usize, why: &str| vec![(index, why.to_owned())];
    assert_eq!(software(CARD), []);
    assert_eq!(software(&with("rules", "1")), only(2, "the card has 1 rules, this would take 2"));
    assert_eq!(software(&with("lookups", "1")), only(3, "the card has 1 lookups, this would take 2"));
    assert_eq!(software(&with("patterns", "2")), only(4, "the card has 2 patterns, this would take 3"));
    assert_eq!(software(&with("metadata", "64")), only(3, "the card has 8 bytes of metadata, this would take 13"));
    let too_many = "a pattern has 2 ranges, `tcp dport` needs 3";
    assert_eq!(software(&with("ranges", "2"))[0].1, "the card does not compare `ip ttl`");
    assert!(reported(rules, &with("ranges", "2")).rules[4].why.starts_with(too_many));
    // Two /16 and the rest: three blocks of the image.
    assert_eq!(software(&with("blocks", "1")).len(), 2);
}

/// The paper's own policy (Fig. 4) on both shipped cards.
#[test]
fn the_papers_policy_on_the_shipped_cards() {
    let rules = "ip saddr @a tcp dport { 22, 443 } accept\nip daddr != @b drop\nip saddr @c drop\nip saddr @a counter\n\
                 ip saddr @b accept\ncounter drop";
    let of = |name: &str| {
        let text = SHIPPED.iter().find(|(known, _)| *known == name).expect("it is shipped").1;
        let report = reported(rules, text);
        let rules: Vec<String> =
            report.rules.iter().map(|rule| format!("{} {}", rule.category, rule.offload)).collect();
        (rules.join(", "), report.lookups[0], report.trailer_bytes)
    };
    let rules = "P2An hybrid, P1Dn hybrid, P1Dn hybrid, P1Nc hybrid, P1An hybrid, ODc software";
    // One bit of a pattern, and four lookups: a, b and c by source, b by destination.
    let expected = (rules.to_owned(), 4, 1 + 4 * 6 + 8);
    assert_eq!(of("netfpga-sume"), expected);
    assert_eq!(of("open-nic"), expected);
}
