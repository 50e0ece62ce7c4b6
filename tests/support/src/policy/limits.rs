//! Random lists of limits, and statements that limit.

use super::{LABELS, additions};
use crate::strategy::Pool;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Rates: a few packets in a row exceed some of them and rarely the others.
const LIMITS: [&str; 12] = [
    "0",
    "2pps burst 1",
    "3/second burst 2",
    "5/minute burst 4",
    "1/hour burst 2",
    "8kbit burst 1514",
    "50kbit burst 3000 bytes",
    "1mbit",
    "100gbit burst 1514",
    "1kpps burst 3",
    "1mpps burst 1",
    "250mpps",
];

/// The lists of every policy: two of prefixes, and one for the labels of each map.
pub fn lists(pool: &Pool) -> BoxedStrategy<Vec<String>> {
    let prefixes = |name: &'static str, settings: &'static str| {
        (vec(prefix(pool), 1..12), ending()).prop_map(move |(prefixes, ending)| {
            let elements: Vec<String> =
                prefixes.iter().map(|prefix| format!("{prefix} : {}", limit_of(prefix))).collect();
            format!("limits {name} {{ {settings}elements = {{ {} }}{ending} }}", elements.join(", "))
        })
    };
    let labels = |name: &'static str, table: &'static str| {
        (0..LIMITS.len(), ending()).prop_map(move |(first, ending)| {
            // The last label gets the default, or no limit.
            let limited = LABELS[1..].iter().zip(LIMITS.iter().cycle().skip(first));
            let elements: Vec<String> = limited.map(|(label, limit)| format!("{label} : {limit}")).collect();
            format!("limits {name} {{ table {table}; elements = {{ {} }}{ending} }}", elements.join(", "))
        })
    };
    (prefixes("flat", ""), prefixes("nested", "nested; "), labels("by-site", "sites"), labels("by-site6", "sites6"))
        .prop_map(|(flat, nested, site, site6)| vec![flat, nested, site, site6])
        .boxed()
}

/// A statement that limits.
pub fn statement() -> BoxedStrategy<String> {
    let by_list =
        (select(vec!["ip saddr", "ip daddr", "ip6 saddr", "ip6 daddr"]), select(vec!["flat", "nested", "by-site"]))
            .prop_map(|(key, list)| {
                let of_family = if list == "by-site" && key.starts_with("ip6") { "6" } else { "" };
                format!("{key} limit @{list}{of_family}")
            });
    let of_all = limit().prop_map(|limit| format!("limit rate {limit}"));
    let keys =
        vec!["ip saddr", "ip saddr/24", "ip daddr/1", "ip daddr/32", "ip6 saddr", "ip6 saddr/64", "ip6 daddr/33"];
    let of_each = (select(keys), limit(), select(vec!["", " size 1024", " size 5000"]))
        .prop_map(|(key, limit, size)| format!("limit each {key} {limit}{size}"));
    let exceed = select(vec!["", "", " exceed drop", " exceed divert", " exceed mark", " exceed mark"]);
    let of_address = (prop_oneof![3 => by_list, 2 => of_each], any::<bool>(), exceed.clone()).prop_flat_map(
        |(limit, adds, exceed)| {
            let is_ipv6 = limit.contains("ip6 ");
            let exceed = if adds { additions::on_exceed(is_ipv6) } else { Just(exceed.to_owned()).boxed() };
            exceed.prop_map(move |exceed| format!("{limit}{exceed}"))
        },
    );
    let of_all = (of_all, exceed).prop_map(|(limit, exceed)| format!("{limit}{exceed}"));
    prop_oneof![5 => of_address, 1 => of_all].boxed()
}

fn limit() -> impl Strategy<Value = &'static str> + Clone {
    select(LIMITS.to_vec())
}

/// The limit of a prefix. It is a function of the prefix, because two limits for one prefix are an error.
fn limit_of(prefix: &str) -> &'static str {
    LIMITS[prefix.bytes().map(usize::from).sum::<usize>() % LIMITS.len()]
}

/// The text after a list's elements.
fn ending() -> impl Strategy<Value = String> {
    let default = prop_oneof![1 => Just(String::new()), 1 => limit().prop_map(|limit| format!("; default {limit}"))];
    let log = select(vec!["", "; log exceeded", "; log all"]);
    (default, log).prop_map(|(default, log)| format!("{default}{log}"))
}

/// A network of the pool. There are few lengths, so that at most eight networks enclose each other.
fn prefix(pool: &Pool) -> BoxedStrategy<String> {
    let v4 = (select(pool.v4.clone()), select(vec![1_u32, 8, 20, 24, 28, 31, 32])).prop_map(|(address, length)| {
        let network = u32::from(address) & (u32::MAX << (32 - length));
        format!("{}/{length}", Ipv4Addr::from(network))
    });
    let v6 = (select(pool.v6.clone()), select(vec![1_u32, 16, 48, 64, 65, 127, 128])).prop_map(|(address, length)| {
        let network = u128::from(address) & (u128::MAX << (128 - length));
        format!("{}/{length}", Ipv6Addr::from(network))
    });
    prop_oneof![v4, v6].boxed()
}
