//! Random rules of slots, with values that occur in packets and their neighbours.

use super::matches::{element4, element6};
use crate::strategy::Pool;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

/// The slots of every policy.
pub const NAMES: [&str; 2] = ["one", "two"];
/// The size of each slot.
pub const SIZE: usize = 12;

/// Matches of each kind of packet. A rule has some of one kind, so that they do not contradict each other.
const TCP: &[&str] =
    &["tcp sport 1-1024", "tcp dport 80", "th dport >= 53", "tcp doff 5", "tcp window 0-1024", "meta l4proto tcp"];
const FLAGS: &[&str] = &["tcp flags == syn", "tcp flags & (syn | ack) == syn", "tcp flags ack"];
const UDP: &[&str] =
    &["udp sport 53", "udp dport 0-52", "th sport 0-1023", "meta l4proto udp", "@th,64,32 0-0x61616161"];
const PORTS: &[&str] = &["th sport 53", "th dport 1-443", "meta l4proto 6-132", "@th,64,32 0x1-0xffffffff"];
const ICMP: &[&str] = &["icmp type 8", "icmp code 0-1", "icmp type 0-3"];
const ICMP6: &[&str] = &["icmpv6 type 128-129", "icmpv6 code 0"];
const ANY: &[&str] =
    &["meta fragment none", "meta fragment first", "meta fragment later", "meta length 40-60", "meta length > 100"];
const OF4: &[&str] = &["ip ttl 64", "ip ttl 1-63"];
const OF6: &[&str] = &["ip6 hoplimit 64", "ip6 hoplimit < 64"];

/// The rules of each slot.
pub fn rules(pool: &Pool) -> BoxedStrategy<Vec<Vec<String>>> {
    let some = |words: &'static [&'static str], most: usize| subsequence(words.to_vec(), 0..=most.min(words.len()));
    let addresses = |family: &'static str, element: BoxedStrategy<String>| {
        let side = select(vec!["saddr", "daddr"]);
        (side, element).prop_map(move |(side, element)| vec![format!("{family} {side} {element}")])
    };
    let of4 = prop_oneof![
        2 => addresses("ip", element4(pool)),
        1 => some(OF4, 1).prop_map(|words| words.into_iter().map(str::to_owned).collect()),
    ];
    let of6 = prop_oneof![
        2 => addresses("ip6", element6(pool)),
        1 => some(OF6, 1).prop_map(|words| words.into_iter().map(str::to_owned).collect()),
    ];
    let neither = Just(Vec::<String>::new());
    let tcp = || (some(TCP, 2), some(FLAGS, 1)).prop_map(|(fields, flags)| [fields, flags].concat());
    let ports = move || prop_oneof![tcp(), some(UDP, 2), some(PORTS, 2), Just(vec![])];
    let kind = prop_oneof![
        4 => (of4.clone(), prop_oneof![4 => ports(), 1 => some(ICMP, 1)]),
        3 => (of6, prop_oneof![4 => ports(), 1 => some(ICMP6, 2)]),
        2 => (neither, ports()),
    ];
    let act = select(vec![
        "drop",
        "drop",
        "counter",
        "counter drop",
        "limit rate 2/second burst 2",
        "limit rate 50kbit burst 3000 bytes",
        "limit rate 0",
        "counter limit rate 1kpps",
    ]);
    let rule = (kind, some(ANY, 1), act).prop_map(|((addresses, words), any, act)| {
        let words = addresses.into_iter().chain(words.into_iter().chain(any).map(str::to_owned));
        words.chain([act.to_owned()]).collect::<Vec<_>>().join(" ")
    });
    vec(vec(rule, 0..=SIZE), NAMES.len()).boxed()
}

/// The rules of a direction with one statement for each slot.
pub fn once(rules: Vec<String>) -> Vec<String> {
    let mut seen = Vec::new();
    let mut once = |rule: String| {
        let asked = NAMES.into_iter().find(|name| rule.contains(&format!("slot {name}")));
        match asked {
            Some(name) if seen.contains(&name) => rule.replace(&format!(" slot {name}"), ""),
            Some(name) => {
                seen.push(name);
                rule
            }
            None => rule,
        }
    };
    rules.into_iter().map(&mut once).collect()
}
