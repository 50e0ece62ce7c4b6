//! The rulesets: one for each kind of metadata (the paper's Table 3), two mixtures, and the rules of its use case.
//!
//! `{end}` stands for the end of a rule: nothing in the group without terminating rules, `accept` in the other one, so
//! that packets which match leave the chain early. The chain's last rule accepts what is left in both groups.

/// A ruleset, and what a card sends for it.
pub struct Ruleset {
    pub name: &'static str,
    /// The paper's notation for its rules, without and with terminating rules.
    pub categories: [&'static str; 2],
    rules: &'static [&'static str],
    /// Whether `{end}` occurs.
    pub has_ends: bool,
}

const PORTS: [&str; 8] = [
    "tcp dport 22 counter {end}",
    "tcp dport { 80, 443 } counter {end}",
    "tcp dport { 25, 465, 587 } counter {end}",
    "tcp dport 3389 counter {end}",
    "udp dport 53 counter {end}",
    "udp dport 123 counter {end}",
    "udp dport 5060-5061 counter {end}",
    "udp sport { 19, 53, 123, 161, 389, 1900 } counter {end}",
];
const LISTS: [&str; 3] = [
    "ip saddr @country { HR, SI, AT } counter {end}",
    "ip saddr @allow counter {end}",
    "ip saddr @block counter {end}",
];

/// All of them, in the order of the paper's Table 3.
const RULESETS: [Ruleset; 6] = [
    Ruleset { name: "ports", categories: ["ONc", "OAc"], rules: &PORTS, has_ends: true },
    Ruleset {
        name: "ports-and-ttl",
        categories: ["P0Nc", "P0Ac"],
        rules: &[
            "tcp dport 22 ip ttl < 32 counter {end}",
            "tcp dport { 80, 443 } ip ttl < 32 counter {end}",
            "tcp dport { 25, 465, 587 } ip ttl < 32 counter {end}",
            "tcp dport 3389 ip ttl < 32 counter {end}",
            "udp dport 53 ip ttl < 32 counter {end}",
            "udp dport 123 ip ttl < 32 counter {end}",
            "udp dport 5060-5061 ip ttl < 32 counter {end}",
            "udp sport { 19, 53, 123, 161, 389, 1900 } ip ttl < 32 counter {end}",
        ],
        has_ends: true,
    },
    Ruleset { name: "lists", categories: ["P1Nc", "P1Ac"], rules: &LISTS, has_ends: true },
    Ruleset {
        name: "lists-and-ports",
        categories: ["P2Nc", "P2Ac"],
        rules: &[
            "tcp dport { 80, 443 } ip saddr @country { HR, SI, AT } counter {end}",
            "tcp dport 22 ip saddr @allow counter {end}",
            "udp sport { 19, 53, 123, 161, 389, 1900 } ip saddr @block counter {end}",
        ],
        has_ends: true,
    },
    Ruleset {
        name: "lists-then-ports",
        categories: ["P1Nc, ONc", "P1Ac, OAc"],
        rules: &[
            LISTS[0], LISTS[1], LISTS[2], PORTS[0], PORTS[1], PORTS[2], PORTS[3], PORTS[4], PORTS[5], PORTS[6],
            PORTS[7],
        ],
        has_ends: true,
    },
    // Fig. 4 of the paper.
    Ruleset {
        name: "use-case",
        categories: ["P1, P2", "P1, P2"],
        rules: &[
            "ip saddr @admin tcp dport { 22, 443 } accept",
            "ip daddr != @public drop",
            "ip saddr @block drop",
            "ip saddr @suspicious counter",
            "ip saddr @allow accept",
            "ip saddr @country { HR, SI, AT } accept",
            "counter accept",
        ],
        has_ends: false,
    },
];

const TABLES: &str = r#"table allow      { type ipv4; file "allow.txt" }
table block      { type ipv4; file "block.txt" }
table country    { type ipv4 : label; file "COUNTRY" }
table admin      { type ipv4; elements = { 198.51.100.0/28, 192.0.2.77 } }
table public     { type ipv4; elements = { 203.0.113.0/24, 198.18.0.0/15 } }
table suspicious { type ipv4; elements = { 5.0.0.0/12, 45.128.0.0/11, 91.192.0.0/10, 185.0.0.0/9 } }
"#;

/// The ruleset with a name.
///
/// # Panics
/// If there is none.
pub fn named(name: &str) -> &'static Ruleset {
    RULESETS.iter().find(|ruleset| ruleset.name == name).expect("compiler bug: the scenario names a ruleset")
}

impl Ruleset {
    /// The policy. `country` is the path of the list of countries.
    pub fn policy(&self, is_terminating: bool, country: &str) -> String {
        let rules: Vec<String> = self.rules.iter().map(|rule| format!("  {rule}\n")).collect();
        let rules = rules.concat().replace(" {end}", if is_terminating { " accept" } else { "" });
        let tables: String = TABLES.replace("COUNTRY", country);
        let used = |line: &&str| line.split_whitespace().nth(1).is_some_and(|name| rules.contains(&format!("@{name}")));
        let tables: Vec<&str> = tables.lines().filter(used).collect();
        format!("{}\nupstream {{\n{rules}  accept\n}}\ndownstream {{ accept }}\n", tables.join("\n"))
    }

    /// The groups that the ruleset has: without terminating rules, with them.
    pub fn groups(&self) -> &'static [bool] {
        if self.has_ends { &[false, true] } else { &[true] }
    }
}
