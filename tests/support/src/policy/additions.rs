//! Random statements that add to tables, and the tables `fed` and `fed6` that they add to.

use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

/// Settings of the tables: small ones fill up, and short timeouts end between packets.
pub const TABLES: [&str; 8] = [
    "dynamic; ",
    "dynamic; counters; ",
    "dynamic; size 12; timeout 30ms; counters; ",
    "dynamic; size 4; ",
    "dynamic; size 12; timeout 15ms; ",
    "dynamic; timeout 10ms; ",
    "dynamic; timeout 5s; ",
    "dynamic; size 20; timeout 2h; ",
];

/// Timeouts of entries.
const TIMEOUTS: [&str; 5] = ["1ms", "25ms", "300ms", "10s", "1h30m"];

/// One statement, or two.
pub fn statement() -> BoxedStrategy<String> {
    prop_oneof![4 => one(), 1 => (one(), one()).prop_map(|(a, b)| format!("{a} {b}"))].boxed()
}

fn one() -> BoxedStrategy<String> {
    let keys = vec!["ip saddr", "ip saddr", "ip daddr", "ip saddr/24", "ip daddr/1", "ip saddr/31"];
    let keys6 = vec!["ip6 saddr", "ip6 daddr/64", "ip6 saddr/33", "ip6 saddr/127"];
    let v4 = select(keys).prop_map(|key| ("fed", key));
    let v6 = select(keys6).prop_map(|key| ("fed6", key));
    (select(vec!["add", "update"]), prop_oneof![3 => v4, 1 => v6], timeout())
        .prop_map(|(kind, (table, key), timeout)| format!("{kind} @{table} {{ {key}{timeout} }}"))
        .boxed()
}

/// What a limit of an address of this family does with packets that exceed it.
pub fn on_exceed(is_ipv6: bool) -> BoxedStrategy<String> {
    let table = if is_ipv6 { "fed6" } else { "fed" };
    let actions = vec!["", " drop", " divert", " mark"];
    (timeout(), select(actions))
        .prop_map(move |(timeout, action)| format!(" exceed add @{table}{timeout}{action}"))
        .boxed()
}

fn timeout() -> impl Strategy<Value = String> + Clone {
    let timeout = option::of(select(TIMEOUTS.to_vec()));
    timeout.prop_map(|timeout| timeout.map(|timeout| format!(" timeout {timeout}")).unwrap_or_default())
}
