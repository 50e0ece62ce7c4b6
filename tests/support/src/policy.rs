//! Random policies: text that checks without errors, with rules that match the packets of [`crate::strategy`].
//!
//! A policy is kept as lines until it is printed, so that proptest shrinks it rule by rule.

mod additions;
mod limits;
mod matches;
mod slots;
mod tracking;

use crate::strategy::Pool;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use std::fmt::{self, Debug, Display, Formatter};

/// Labels of every map.
const LABELS: [&str; 4] = ["HR", "SI", "AT", "other"];
/// Names of the IPv4 and IPv6 sets and maps in every policy.
const TABLES: [(&str, &str, bool); 14] = [
    ("hosts", "ipv4", false),
    ("hosts-b", "ipv4", false),
    ("hosts-c", "ipv4", false),
    ("hosts-d", "ipv4", false),
    ("hosts-e", "ipv4", false),
    ("nets", "ipv4", false),
    ("fed", "ipv4", false),
    ("sites", "ipv4", true),
    ("hosts6", "ipv6", false),
    ("whole6", "ipv6", false),
    ("whole6-b", "ipv6", false),
    ("nets6", "ipv6", false),
    ("fed6", "ipv6", false),
    ("sites6", "ipv6", true),
];

/// The size of a policy.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Maximum number of named postures.
    pub postures: usize,
    /// Minimum and maximum number of rules per direction.
    pub rules: [usize; 2],
}

/// Share of the policies that track. The verifier takes long to check them.
const TRACKING_SHARE: f64 = 0.15;

/// The place of a limit of connections in a rule.
const CONNECTIONS: &str = "CONNECTIONS";

/// Share of the policies that observe, and what. Few addresses have room.
const OBSERVE_SHARE: f64 = 0.3;
const OBSERVED: [&str; 8] = [
    "",
    "size 64",
    "size 64; each ip/30; each ip6/64",
    "each ip/0; each ip6/0",
    "inside 10.0.0.0/8",
    "inside 10.0.0.0/16",
    "inside { 10.0.0.0/20, 192.0.2.0-192.0.2.9, 2001:db8::/56, 2001:db8:ffff::1 }; each ip/30; each ip6/64",
    "size 128; inside { 10.0.0.0/9, 192.0.2.0-192.0.2.9, 2001:db8::/33, 2001:db8:ffff::1 }; each ip6/127",
];

/// Share of the policies that say what is inside, and how.
const INSIDE_SHARE: f64 = 0.3;
const INSIDE: [&str; 5] = [
    "inside { 10.0.0.0/30 }",
    "inside { 10.0.0.0/8, 192.0.2.0-192.0.2.9, 2001:db8::/33 }",
    "inside { @nets, @hosts6, 2001:db8:ffff::1 }; defaults { spoofed divert }",
    "inside { @sites, 10.0.0.1 }; inside { @sites6, fe80::/9 }; defaults { spoofed accept }",
    "inside { @hosts-b }; defaults { spoofed rules }",
];

/// A policy. `Debug` prints its text.
#[derive(Clone, PartialEq, Eq)]
pub struct Policy {
    tables: Vec<String>,
    limits: Vec<String>,
    defaults: Vec<String>,
    /// The rules of each slot.
    slots: Vec<Vec<String>>,
    /// The settings, if the policy tracks.
    tracking: Option<Vec<String>>,
    /// What is observed, if anything is.
    observe: Option<&'static str>,
    /// What is inside, if the policy says so.
    inside: Option<&'static str>,
    /// Upstream and downstream of the base policy, then of each posture. A posture may lack one.
    directions: Vec<Option<Vec<String>>>,
}

impl Display for Policy {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.tables.iter().chain(&self.limits).try_for_each(|table| writeln!(f, "{table}"))?;
        writeln!(f, "defaults {{ {} }}", self.defaults.join("; "))?;
        slots::NAMES.iter().try_for_each(|name| writeln!(f, "slot {name} {{ size {} }}", slots::SIZE))?;
        self.tracking.iter().try_for_each(|settings| writeln!(f, "tracking {{ {} }}", settings.join("; ")))?;
        self.observe.iter().try_for_each(|settings| writeln!(f, "observe {{ {settings} }}"))?;
        self.inside.iter().try_for_each(|inside| writeln!(f, "{inside}"))?;
        for (at, pair) in self.directions.chunks(2).enumerate() {
            if at > 0 {
                writeln!(f, "posture p-{at} {{")?;
            }
            for (way, rules) in ["upstream", "downstream"].iter().zip(pair) {
                let Some(rules) = rules else { continue };
                writeln!(f, "{way} {{")?;
                rules.iter().try_for_each(|rule| writeln!(f, "  {rule}"))?;
                writeln!(f, "}}")?;
            }
            if at > 0 {
                writeln!(f, "}}")?;
            }
        }
        Ok(())
    }
}

impl Policy {
    /// The rules of its slots: lines such as `one udp sport 53 drop`.
    pub fn slot_rules(&self) -> String {
        let lines = slots::NAMES.iter().zip(&self.slots);
        lines.flat_map(|(name, rules)| rules.iter().map(move |rule| format!("{name} {rule}\n"))).collect()
    }
}

/// Prints the text, so that a failing case can be pasted into a file.
impl Debug for Policy {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "\n{self}{}", self.slot_rules())
    }
}

/// Random policies.
pub fn policies(pool: &Pool, size: Size) -> BoxedStrategy<Policy> {
    let tables: Vec<_> = TABLES.iter().map(|&(name, family, labelled)| table(pool, name, family, labelled)).collect();
    let base = [some(rules(pool, size)), some(rules(pool, size))];
    let postures = vec([option::weighted(0.8, rules(pool, size)).boxed(), some(rules(pool, size))], 0..=size.postures);
    let tracking = option::weighted(TRACKING_SHARE, tracking::settings());
    let observe = option::weighted(OBSERVE_SHARE, select(OBSERVED.to_vec()));
    let inside = option::weighted(INSIDE_SHARE, select(INSIDE.to_vec()));
    (tables, limits::lists(pool), defaults(), slots::rules(pool), tracking, (observe, inside), base, postures)
        .prop_map(|(tables, limits, defaults, slots, tracking, (observe, inside), base, postures)| {
            let directions = base.into_iter().chain(postures.into_iter().flatten());
            let written =
                |rules: Vec<Rule>| rules.into_iter().filter_map(|rule| rule.text(tracking.as_deref())).collect();
            let directions = directions.map(|rules| rules.map(written).map(slots::once)).collect();
            Policy { tables, limits, defaults, slots, tracking, observe, inside, directions }
        })
        .boxed()
}

/// A rule as it is in a policy that tracks, in one with a SYN proxy, and in the others.
#[derive(Clone, Debug)]
struct Rule {
    plain: Option<String>,
    tracking: Option<String>,
    proxying: Option<String>,
    /// The match on the state, and what a policy may add that tracks both directions.
    counting: (String, String),
}

impl Rule {
    fn text(self, settings: Option<&[String]>) -> Option<String> {
        let Some(settings) = settings else { return self.plain };
        let proxies = settings.iter().any(|line| line.starts_with("synproxy mss"));
        let text = if proxies { self.proxying } else { self.tracking };
        let (test, connections) = self.counting;
        let counts = tracking::may_limit_connections(settings, &test);
        text.map(|text| text.replace(CONNECTIONS, if counts { &connections } else { "counter" }))
    }
}

fn some(rules: BoxedStrategy<Vec<Rule>>) -> BoxedStrategy<Option<Vec<Rule>>> {
    rules.prop_map(Some).boxed()
}

fn rules(pool: &Pool, size: Size) -> BoxedStrategy<Vec<Rule>> {
    let [least, most] = size.rules;
    let last = tracking::last_rule().prop_map(|last| Rule {
        plain: None,
        tracking: last.clone(),
        proxying: last,
        counting: Default::default(),
    });
    (vec(rule(pool), least..=most), last).prop_map(|(rules, last)| rules.into_iter().chain([last]).collect()).boxed()
}

/// `table nets { type ipv4; elements = { ... } }`
fn table(pool: &Pool, name: &'static str, family: &'static str, labelled: bool) -> BoxedStrategy<String> {
    let element = match (family, name) {
        ("ipv4", hosts) if hosts.starts_with("hosts") => matches::host4(pool),
        ("ipv4", _) => matches::element4(pool),
        ("ipv6", "whole6" | "whole6-b") => matches::whole6(pool),
        _ => matches::element6(pool),
    };
    // Sets of addresses are fused unless something prevents it.
    let layout = match name {
        "hosts" => vec!["", "", "layout d16x4r; ", "layout rank-leaf; ", "counters; "],
        "hosts-b" => vec!["", "", "layout exact-set; ", "dynamic; ", "dynamic; counters; "],
        "hosts-c" | "hosts-d" => vec!["", "", "", "layout exact-sets; "],
        "nets" => vec!["", "layout d16x4r; ", "layout counted-leaf; ", "counters; "],
        "nets6" => vec!["", "layout rank-leaf6; ", "layout range6; ", "counters; "],
        "whole6" => vec!["", "", "layout rank-leaf6; ", "dynamic; "],
        "whole6-b" => vec!["", "", "layout exact-set6; ", "layout exact-sets6; "],
        "fed" | "fed6" => additions::TABLES.to_vec(),
        _ => vec![""],
    };
    if !labelled {
        return (select(layout), vec(element, 1..12))
            .prop_map(move |(layout, elements)| {
                format!("table {name} {{ type {family}; {layout}elements = {{ {} }} }}", elements.join(", "))
            })
            .boxed();
    }
    // Each label occurs at least once, so that rules may name it. The start of an element determines its label
    // otherwise, so that no range has two labels.
    let label_of = |element: &str| {
        let start = element.split(['/', '-']).next().unwrap_or("");
        LABELS[start.bytes().map(usize::from).sum::<usize>() % LABELS.len()]
    };
    (select(vec!["", "", "counters; "]), vec(element, 0..12))
        .prop_map(move |(counters, elements)| {
            let fixed = LABELS.iter().enumerate().map(|(at, label)| match family {
                "ipv4" => format!("240.{at}.7.9 : {label}"),
                _ => format!("fd00::7:{at} : {label}"),
            });
            let others = elements.iter().map(|element| format!("{element} : {}", label_of(element)));
            let elements: Vec<String> = fixed.chain(others).collect();
            format!("table {name} {{ type {family} : label; {counters}elements = {{ {} }} }}", elements.join(", "))
        })
        .boxed()
}

fn defaults() -> impl Strategy<Value = Vec<String>> {
    let kinds: Vec<String> = ["malformed", "arp", "not-ip", "fragment", "ip-options", "no-match"]
        .into_iter()
        .flat_map(|kind| {
            let asks = !matches!(kind, "malformed" | "no-match");
            // Rules are used more often than a default, because defaults exercise nothing.
            let asked = if asks { vec!["rules", "rules", "rules"] } else { vec![] };
            asked.into_iter().chain(["accept", "drop", "divert"]).map(move |what| format!("{kind} {what}"))
        })
        .collect();
    let one_each = |chosen: Vec<String>| {
        let mut seen: Vec<String> = Vec::new();
        for entry in chosen {
            let kind = entry.split(' ').next().unwrap_or("").to_owned();
            if !seen.iter().any(|known| known.starts_with(&kind)) {
                seen.push(entry);
            }
        }
        seen
    };
    let count = kinds.len();
    subsequence(kinds, 0..=count / 2).prop_shuffle().prop_map(one_each)
}

/// Matches, statements, and an optional verdict.
fn rule(pool: &Pool) -> BoxedStrategy<Rule> {
    let matches = prop_oneof![
        1 => Just(Vec::new()),
        12 => vec(matches::one(pool), 1..3),
        3 => vec(matches::one(pool), 3..5),
    ];
    let limit = prop_oneof![3 => Just(String::new()), 1 => limits::statement()];
    let add = prop_oneof![4 => Just(String::new()), 1 => additions::statement()];
    let slot = select(vec!["", "", "", "", "slot one", "slot two"]);
    let sample = select(vec!["", "", "", "", "sample 1/1", "sample 1/2", "sample 1/7", "sample 1/4294967295"]);
    let verdict = select(vec!["", "", "", "accept", "drop", "divert"]);
    let guard = select(vec!["", "", "", "", "tcp", "udp", "icmp", "icmpv6"]);
    let connections = prop_oneof![3 => Just(String::new()), 1 => tracking::connections()];
    let asks = (add, slot, connections);
    (matches, guard, limit, asks, select(vec!["", "counter"]), sample, verdict, tracking::of_rule())
        .prop_map(|(mut words, guard, limit, (add, slot, connections), counter, sample, verdict, of_state)| {
            // A final `accept` without matches would leave nothing to the rules after it.
            if words.is_empty() && guard.is_empty() {
                words.push("meta length > 60".to_owned());
            }
            // A rule must have an effect.
            let does_nothing = limit.is_empty() && add.is_empty() && sample.is_empty() && verdict.is_empty();
            let counter = if does_nothing { "counter" } else { counter };
            let statements = [limit.as_str(), add.as_str(), counter, slot, sample, verdict];
            let counts = if connections.is_empty() { "" } else { CONNECTIONS };
            let line = |state: &str, guard: &str, counts: &str| {
                let words = [state].into_iter().chain(words.iter().map(String::as_str)).chain([guard]);
                let words: Vec<&str> =
                    words.chain([counts]).chain(statements).filter(|word| !word.is_empty()).collect();
                Some(words.join(" "))
            };
            let tracking =
                |statement: &str| line(&of_state.test, if statement.is_empty() { guard } else { statement }, counts);
            let (proxying, statement) =
                (tracking(of_state.statement), of_state.statement.replace(tracking::SYNPROXY, "tcp track"));
            let plain = line("", guard, "");
            Rule { plain, tracking: tracking(&statement), proxying, counting: (of_state.test, connections) }
        })
        .boxed()
}
