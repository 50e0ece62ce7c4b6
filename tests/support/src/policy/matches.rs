//! Random matches: every field, every operator, values that occur in packets and their neighbours.

use super::LABELS;
use crate::strategy::Pool;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Numeric fields: name, maximum, values that occur in packets.
const NUMBERS: &[(&str, u64, &[u64])] = &[
    ("meta length", u32::MAX as u64, &[28, 40, 46, 60, 512, 1500]),
    ("vlan id", 4095, &[0, 1, 100, 4095]),
    ("vlan pcp", 7, &[0, 5, 7]),
    ("vlan inner-id", 4095, &[0, 1, 100, 4095]),
    ("ip ttl", 255, &[0, 1, 64, 255]),
    ("ip length", 65535, &[20, 28, 40, 48, 60]),
    ("ip id", 65535, &[0, 1, 0x1234, 0x8000, 0xffff]),
    ("ip frag-off", 65535, &[0, 0x2000, 0x4000, 1, 0xb9]),
    ("ip hdrlength", 15, &[5, 6, 10]),
    ("ip protocol", 255, &[1, 6, 17, 50, 132, 253]),
    ("ip dscp", 63, &[0, 8, 46, 48]),
    ("ip ecn", 3, &[0, 1, 2, 3]),
    ("ip6 hoplimit", 255, &[0, 1, 64, 255]),
    ("ip6 length", 65535, &[8, 20, 28, 40]),
    ("ip6 dscp", 63, &[0, 8, 46, 48]),
    ("ip6 ecn", 3, &[0, 1, 2, 3]),
    ("ip6 nexthdr", 255, &[0, 6, 17, 43, 44, 58, 60]),
    ("meta l4proto", 255, &[1, 6, 17, 50, 58, 59, 132, 136, 253]),
    ("ether type", 65535, &[0x0800, 0x86dd, 0x0806, 0x8100, 0x88b5]),
    ("tcp window", 65535, &[0, 512, 1024, 65535]),
    ("tcp sequence", u32::MAX as u64, &[0, 1, 0x8000_0000]),
    ("tcp ackseq", u32::MAX as u64, &[0, 1, 0x8000_0000]),
    ("tcp doff", 15, &[5, 6, 7]),
    ("udp length", 65535, &[8, 20, 40, 512]),
    ("icmp type", 255, &[0, 3, 8, 11]),
    ("icmp code", 255, &[0, 1, 2, 3]),
    ("icmpv6 type", 255, &[128, 129, 135]),
    ("icmpv6 code", 255, &[0, 1, 2, 3]),
];
/// Matches with few forms.
const WORDS: &[&str] = &[
    "meta nfproto ipv4",
    "meta nfproto != ipv4",
    "meta nfproto ipv6",
    "meta fragment none",
    "meta fragment first",
    "meta fragment later",
    "meta fragment != none",
    "meta fragment { none, first }",
    "meta l4proto { tcp, udp }",
    "meta l4proto != tcp",
    "ip protocol { icmp, esp, gre }",
    "ether type ip6",
    "ether type != { ip, arp }",
    "ip options exists",
    "ip options missing",
    "ip options != exists",
    "exthdr hbh exists",
    "exthdr rt missing",
    "exthdr frag exists",
    "exthdr dst exists",
    "exthdr dst missing",
    "exthdr ah exists",
    "exthdr mh missing",
    "ip dscp { ef, cs1, af11 }",
    "ip6 ecn { ect0, ce }",
    "icmp type { echo-request, echo-reply }",
    "icmpv6 type != nd-neighbor-solicit",
    "meta exceeded exists",
    "meta exceeded missing",
    "tcp flags syn",
    "tcp flags syn,ack",
    "tcp flags ! syn,rst",
    "tcp flags == syn",
    "tcp flags == 0",
    "tcp flags != ack",
    "tcp flags { syn, syn | ack, fin | psh | urg }",
    "tcp flags != { syn, psh | ack }",
    "tcp flags syn / fin,syn,rst,ack",
    "tcp flags != syn / syn,ack",
    "tcp flags & (syn | ack) == syn",
    "tcp flags & (fin | psh | urg) != 0",
];

/// Raw bits of every width that columns have, and of the neighbouring widths.
const SHARED_RAW: &[(&str, u16, u8)] = &[
    ("nh", 96, 32),
    ("nh", 64, 8),
    ("nh", 71, 9),
    ("th", 0, 16),
    ("th", 15, 17),
    ("th", 3, 33),
    ("ll", 96, 16),
    ("ll", 1, 64),
    ("nh", 5, 65),
    ("nh", 64, 128),
];

/// Any match.
pub fn one(pool: &Pool) -> BoxedStrategy<String> {
    prop_oneof![
        5 => number(),
        5 => ports(pool),
        4 => addresses("ip", element4(pool)),
        2 => addresses("ip6", element6(pool)),
        3 => table("ip", &["hosts", "hosts-b", "hosts-c", "hosts-d", "hosts-e", "nets", "fed", "fed"], "sites"),
        2 => table("ip6", &["hosts6", "whole6", "whole6-b", "nets6", "fed6"], "sites6"),
        5 => select(WORDS.to_vec()).prop_map(str::to_owned),
        3 => raw(),
    ]
    .boxed()
}

/// An address of the pool or next to one, in a form that lists may have.
pub fn host4(pool: &Pool) -> BoxedStrategy<String> {
    let address = (select(pool.v4.clone()), select(vec![0, 0, 0, -1, 1]), any::<bool>());
    let written = |address: Ipv4Addr, long| if long { format!("{address}/32") } else { address.to_string() };
    address.prop_map(move |(a, by, long)| written(Ipv4Addr::from(near(u32::from(a), by)), long)).boxed()
}

/// A network of 64 bits or an address of the pool.
pub fn whole6(pool: &Pool) -> BoxedStrategy<String> {
    let address = (select(pool.v6.clone()), any::<bool>());
    let net = |address: Ipv6Addr| Ipv6Addr::from(u128::from(address) >> 64 << 64);
    let written = move |(a, whole)| if whole { format!("{}/64", net(a)) } else { a.to_string() };
    address.prop_map(written).boxed()
}

/// An address, prefix or range of the pool.
pub fn element4(pool: &Pool) -> BoxedStrategy<String> {
    let address = (select(pool.v4.clone()), -1i32..=1).prop_map(|(a, by)| Ipv4Addr::from(near(u32::from(a), by)));
    let length = select(vec![1u32, 8, 9, 16, 17, 20, 24, 25, 28, 31, 32]);
    prop_oneof![
        3 => address.clone().prop_map(|address| address.to_string()),
        3 => (select(pool.v4.clone()), length).prop_map(|(address, length)| {
            let network = u32::from(address) & (u32::MAX << (32 - length));
            format!("{}/{length}", Ipv4Addr::from(network))
        }),
        2 => (address.clone(), address).prop_map(|(a, b)| format!("{}-{}", a.min(b), a.max(b))),
    ]
    .boxed()
}

/// An IPv6 address, prefix or range of the pool.
pub fn element6(pool: &Pool) -> BoxedStrategy<String> {
    let address = (select(pool.v6.clone()), -1i32..=1).prop_map(|(address, by)| {
        let number = u128::from(address);
        Ipv6Addr::from(number.checked_add_signed(by.into()).unwrap_or(number))
    });
    let length = select(vec![1u32, 16, 31, 32, 33, 48, 63, 64, 65, 96, 127, 128]);
    prop_oneof![
        3 => address.clone().prop_map(|address| address.to_string()),
        3 => (select(pool.v6.clone()), length).prop_map(|(address, length)| {
            let network = u128::from(address) & (u128::MAX << (128 - length));
            format!("{}/{length}", Ipv6Addr::from(network))
        }),
        2 => (address.clone(), address).prop_map(|(a, b)| format!("{}-{}", a.min(b), a.max(b))),
    ]
    .boxed()
}

fn near(number: u32, by: i32) -> u32 {
    number.checked_add_signed(by).unwrap_or(number)
}

fn addresses(layer: &'static str, element: BoxedStrategy<String>) -> BoxedStrategy<String> {
    let field = select(vec!["saddr", "daddr"]);
    let values = prop_oneof![
        2 => element.clone(),
        1 => vec(element, 1..10).prop_map(|elements| format!("{{ {} }}", elements.join(", "))),
    ];
    (field, not(), values).prop_map(move |(field, not, values)| format!("{layer} {field} {not}{values}")).boxed()
}

fn table(layer: &'static str, sets: &[&'static str], map: &'static str) -> BoxedStrategy<String> {
    let field = select(vec!["saddr", "daddr"]);
    let labels =
        subsequence(LABELS.to_vec(), 1..=3).prop_map(move |labels| format!("{map} {{ {} }}", labels.join(", ")));
    let name = prop_oneof![select(sets.to_vec()).prop_map(str::to_owned), Just(map.to_owned()), labels,];
    (field, not(), name).prop_map(move |(field, not, name)| format!("{layer} {field} {not}@{name}")).boxed()
}

fn not() -> impl Strategy<Value = &'static str> + Clone {
    select(vec!["", "", "", "== ", "!= "])
}

fn ports(pool: &Pool) -> BoxedStrategy<String> {
    let field = select(vec!["tcp sport", "tcp dport", "udp sport", "udp dport", "th sport", "th dport"]);
    let known: Vec<u64> = pool.ports.iter().map(|&port| port.into()).collect();
    field.prop_flat_map(move |field| comparison(field.to_owned(), 65535, known.clone())).boxed()
}

fn number() -> BoxedStrategy<String> {
    select(NUMBERS.to_vec())
        .prop_flat_map(|(field, max, known)| comparison(field.to_owned(), max, known.to_vec()))
        .boxed()
}

/// A field compared with values up to `max`, most of them `known` ones or their neighbours.
fn comparison(field: String, max: u64, known: Vec<u64>) -> BoxedStrategy<String> {
    let value = prop_oneof![
        4 => select(known.clone()),
        2 => (select(known), -1i64..=1).prop_map(move |(value, by)| {
            value.checked_add_signed(by).filter(|value| *value <= max).unwrap_or(value)
        }),
        1 => 0..=max,
        1 => Just(max),
    ]
    .boxed();
    let range = (value.clone(), value.clone()).prop_map(|(a, b)| format!("{}-{}", a.min(b), a.max(b)));
    let element = prop_oneof![3 => value.clone().prop_map(|value| value.to_string()), 1 => range.clone()];
    let set = vec(element, 1..12).prop_map(|elements| format!("{{ {} }}", elements.join(", ")));
    let mask = (1..=max, value.clone(), 0..16u8).prop_map(|(mask, value, odd)| {
        // Sometimes has bits outside of the mask, which no field has.
        (mask, if odd == 0 { value } else { value & mask })
    });
    let operator = select(vec!["", "== ", "!= ", "< ", "<= ", "> ", ">= ", "ne ", "lt ", "ge "]);
    // Comparisons with less than 0 or more than the maximum are errors.
    let open = (operator, value).prop_map(move |(operator, value)| match operator {
        "< " | "lt " => format!("{operator}{}", value.max(1)),
        "> " => format!("{operator}{}", value.min(max - 1)),
        _ => format!("{operator}{value}"),
    });
    let masked =
        (mask, select(vec!["==", "!="])).prop_map(|((mask, value), is)| format!("& {mask:#x} {is} {value:#x}"));
    let negatable = prop_oneof![range, set];
    prop_oneof![
        4 => open,
        3 => (not(), negatable).prop_map(|(not, values)| format!("{not}{values}")),
        2 => masked,
    ]
    .prop_map(move |test| format!("{field} {test}"))
    .boxed()
}

/// Raw bits, byte-aligned or not, near the start or far after the end.
fn raw() -> BoxedStrategy<String> {
    let base = select(vec!["ll", "nh", "th"]);
    let aligned = (0..40u16, select(vec![8u8, 16, 32, 64, 128])).prop_map(|(byte, bits)| (byte * 8, bits));
    let offset = prop_oneof![3 => 0..200u16, 1 => 0..=2040u16];
    let odd = (offset, 1..=128u8);
    // Bits that several rules read are loaded once per packet.
    let shared = select(SHARED_RAW.to_vec());
    let place = (base, prop_oneof![aligned, odd]).prop_map(|(base, (offset, bits))| (base, offset, bits));
    prop_oneof![1 => shared, 1 => place]
        .prop_flat_map(|(base, offset, bits)| {
            let max = u128::MAX >> (128 - bits);
            let value = prop_oneof![
                Just(0u128),
                (0..256u128).prop_map(move |value| value & max),
                any::<u128>().prop_map(move |value| value & max),
            ];
            let operator = select(vec!["==", "!=", "<=", ">="]);
            let many = prop_oneof![4 => vec(value.clone(), 1..9), 1 => vec(value.clone(), 9..90)].prop_map(|values| {
                let values: Vec<String> = values.iter().map(|value| format!("{value:#x}")).collect();
                format!("{{ {} }}", values.join(", "))
            });
            let mask = any::<u128>().prop_map(move |mask| (mask & max).max(1));
            let test = prop_oneof![
                3 => (operator, value.clone()).prop_map(|(operator, value)| format!("{operator} {value:#x}")),
                1 => (not(), many).prop_map(|(not, many)| format!("{not}{many}")),
                1 => (mask, value).prop_map(|(mask, value)| format!("& {mask:#x} != {:#x}", value & mask)),
            ];
            test.prop_map(move |test| format!("@{base},{offset},{bits} {test}"))
        })
        .boxed()
}
