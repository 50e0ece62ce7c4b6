//! Random settings of tracking, and what rules do with the state of a packet.

use proptest::option;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

/// Timeouts by name.
const TIMEOUTS: [&str; 13] = [
    "syn-sent",
    "syn-recv",
    "established",
    "unacknowledged",
    "fin-wait",
    "close-wait",
    "last-ack",
    "time-wait",
    "closed",
    "udp",
    "udp-replied",
    "icmp",
    "other",
];
/// The states of packets.
const STATES: [&str; 5] = ["new", "established", "related", "invalid", "untracked"];

/// The lines of `tracking { ... }`. Tables are small, so that they fill up.
pub fn settings() -> BoxedStrategy<Vec<String>> {
    let size = select(vec!["size 64", "size 64", "size 96", "size 1024", "size 4096"]);
    let embryonic = select(vec!["", "embryonic 1%", "embryonic 10%", "embryonic 50%", "embryonic 100%"]);
    let pickup = select(vec!["", "pickup on", "pickup off"]);
    let one_way = select(vec!["", "", "", "one-way"]);
    let vlan = select(vec!["", "", "", "vlan match", "vlan ignore"]);
    let invalid = select(vec!["", "", "invalid rules", "invalid drop", "invalid accept", "invalid divert"]);
    let offer = select(vec![
        "",
        "synproxy mss 1460",
        "synproxy mss 1460 wscale 7 sack-perm timestamp",
        "synproxy mss 9000 sack-perm timestamp",
    ]);
    let threshold =
        select(vec!["", "", "synproxy on 5/second off 2/second for 1s", "synproxy on 3/second off 3/second for 3s"]);
    let synproxy =
        (offer, threshold).prop_map(|(offer, threshold)| if offer.is_empty() { [""; 2] } else { [offer, threshold] });
    let named = subsequence(TIMEOUTS.to_vec(), 0..=5);
    let times = prop::collection::vec(select(vec!["1s", "1s", "3s", "45s", "2m", "10d"]), TIMEOUTS.len());
    let timeouts = (named, times).prop_map(|(names, times)| {
        names.iter().zip(times).map(|(name, time)| format!("timeout {name} {time}")).collect::<Vec<_>>()
    });
    ([size, embryonic, pickup, one_way, vlan, invalid], synproxy, timeouts)
        .prop_map(|(lines, synproxy, timeouts)| {
            // One-way flows cannot be proxied, nor flows whose tags are ignored.
            let unproxied = lines.contains(&"one-way") || lines.contains(&"vlan ignore");
            let synproxy = if unproxied { [""; 2] } else { synproxy };
            let lines = lines.into_iter().chain(synproxy).filter(|line| !line.is_empty());
            lines.map(str::to_owned).chain(timeouts).collect()
        })
        .boxed()
}

/// Only policies whose settings say how SYNs are answered have it.
pub const SYNPROXY: &str = "tcp synproxy";

/// What a rule does with the state of a packet.
#[derive(Clone, Debug)]
pub struct OfRule {
    /// A match, or nothing.
    pub test: String,
    /// `tcp track` or nothing. In policies with a SYN proxy it may be `tcp synproxy`.
    pub statement: &'static str,
}

/// Most rules ask for no state.
pub fn of_rule() -> impl Strategy<Value = OfRule> + Clone {
    let states = (subsequence(STATES.to_vec(), 1..=3), select(vec!["", "", "!= "]))
        .prop_map(|(states, not)| format!("ct state {not}{{ {} }}", states.join(", ")));
    let test = prop_oneof![2 => Just(String::new()), 1 => states];
    let statement = select(vec!["", "", "", "", "", "tcp track", SYNPROXY]);
    (test, statement).prop_map(|(test, statement)| OfRule { test, statement })
}

/// A statement that limits connections. Only policies that track both directions have it.
pub fn connections() -> impl Strategy<Value = String> + Clone {
    let keys = vec!["ip saddr", "ip saddr/1", "ip daddr/24", "ip6 saddr", "ip6 saddr/64", "ip6 daddr/1"];
    let ending = select(vec!["", "", " exceed drop", " exceed divert", " exceed mark", " log exceeded exceed mark"]);
    (select(keys), select(vec![1, 1, 2, 3, 20]), ending)
        .prop_map(|(key, number, ending)| format!("limit each {key} connections {number} size 1024{ending}"))
}

/// Whether a policy with these settings may limit connections, in a rule with this match.
pub fn may_limit_connections(settings: &[String], test: &str) -> bool {
    let sees_open = test.is_empty() || test.contains("established") != test.contains("!=");
    sees_open && !settings.iter().any(|line| line == "one-way")
}

/// The last rule of a direction: most of them accept what begins or continues a flow, so that there are flows.
pub fn last_rule() -> impl Strategy<Value = Option<String>> + Clone {
    let rules = vec!["accept", "ct state new,established accept", "ct state != invalid accept", "tcp track accept"];
    option::weighted(0.8, select(rules).prop_map(str::to_owned))
}
