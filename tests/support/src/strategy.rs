//! Random well-formed packets. Addresses and ports come from small pools, so that rules match.
//!
//! Packets are generated as lines of the notation, so that a failing case shrinks and prints as a readable packet.

use crate::{Packet, packet};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use std::fmt::Display;
use std::net::{Ipv4Addr, Ipv6Addr};

/// The values that random packets and policies choose from.
#[derive(Clone, Debug)]
pub struct Pool {
    /// IPv4 addresses, source and destination.
    pub v4: Vec<Ipv4Addr>,
    /// IPv6 addresses, source and destination.
    pub v6: Vec<Ipv6Addr>,
    /// Ports.
    pub ports: Vec<u16>,
    /// VLAN ids.
    pub vlans: Vec<u16>,
}

impl Default for Pool {
    /// A few documentation addresses with neighbours inside and outside the same /28, the first and last addresses, and
    /// ports that policies name.
    fn default() -> Self {
        let v4 = [
            "198.51.100.7",
            "198.51.100.8",
            "192.0.2.1",
            "192.0.2.15",
            "192.0.2.16",
            "203.0.113.1",
            "203.0.113.255",
            "0.0.0.0",
            "255.254.0.1",
            "255.255.255.255",
        ];
        let v6 = [
            "2001:db8::1",
            "2001:db8::2",
            "2001:db8:0:1::1",
            "2001:db8:ffff::",
            "2001:db8:0:1:0:ffff:c633:6407",
            "::ffff:198.51.100.7",
            "::",
            "ff02::1",
            "ffff:ffff:ffff:fffe::1",
            "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
        ];
        Pool {
            v4: v4.map(|text| text.parse().expect("an IPv4 address")).to_vec(),
            v6: v6.map(|text| text.parse().expect("an IPv6 address")).to_vec(),
            ports: vec![0, 19, 22, 53, 80, 123, 443, 1900, 11211, 40000, 65535],
            vlans: vec![0, 1, 100, 4095],
        }
    }
}

/// Well-formed packets.
pub fn packets(pool: &Pool) -> impl Strategy<Value = Packet> + use<> {
    lines(pool).prop_map(|line| packet(&line).expect("test bug: a strategy writes notation that does not read"))
}

/// Well-formed packets as lines of the notation.
pub fn lines(pool: &Pool) -> impl Strategy<Value = String> + use<> {
    let network = prop_oneof![5 => ipv4(pool), 3 => ipv6(pool), 1 => other(pool)];
    (link(pool), network).prop_map(|(link, network)| match network.starts_with("ip") {
        true => join([link, network]),
        // Only IP packets can lack a link header.
        false if link.is_empty() => join(["eth".into(), network]),
        false => join([link, network]),
    })
}

fn join<const N: usize>(layers: [String; N]) -> String {
    let layers: Vec<String> = layers.into_iter().filter(|layer| !layer.is_empty()).collect();
    layers.join(" / ")
}

/// ` key=value`, or nothing for the notation's default.
fn field<T: Display + std::fmt::Debug>(
    key: &'static str,
    value: impl Strategy<Value = T>,
) -> impl Strategy<Value = String> {
    option::of(value).prop_map(move |value| value.map_or(String::new(), |value| format!(" {key}={value}")))
}

fn flag(name: &'static str) -> impl Strategy<Value = String> {
    select(vec!["", name]).prop_map(|name| if name.is_empty() { String::new() } else { format!(" {name}") })
}

fn link(pool: &Pool) -> impl Strategy<Value = String> + use<> {
    let vlan = |pool: &Pool| {
        let fields = (field("id", select(pool.vlans.clone())), field("pcp", 0..8u8));
        let tpid = select(vec!["", " tpid=0x88a8"]);
        (fields, tpid).prop_map(|((id, pcp), tpid)| format!("vlan{id}{pcp}{tpid}"))
    };
    prop_oneof![
        6 => Just("eth".to_owned()),
        2 => vlan(pool).prop_map(|tag| format!("eth / {tag}")),
        1 => (vlan(pool), vlan(pool)).prop_map(|(outer, inner)| format!("eth / {outer} / {inner}")),
        1 => Just(String::new()),
        1 => Just("sll".to_owned()),
        1 => Just("sll2".to_owned()),
    ]
}

fn ipv4(pool: &Pool) -> BoxedStrategy<String> {
    let addresses = (field("saddr", select(pool.v4.clone())), field("daddr", select(pool.v4.clone())));
    let ttl = field("ttl", prop_oneof![Just(0u8), Just(1), Just(64), Just(255), any::<u8>()]);
    let class = (field("dscp", 0..64u8), field("ecn", 0..4u8));
    let options =
        field("options", select(vec!["01", "94040000", "8307040a000001", "0101010101010101010101010101010101"]));
    let header = (addresses, ttl, class, options, field("id", any::<u16>()), flag("df")).prop_map(
        |((saddr, daddr), ttl, (dscp, ecn), options, id, df)| {
            format!("ip{saddr}{daddr}{ttl}{dscp}{ecn}{options}{id}{df}")
        },
    );
    let fragment = prop_oneof![
        8 => Just(String::new()),
        1 => Just(" mf".to_owned()),
        1 => (1..8000u16, flag("mf"), select(vec!["tcp", "udp", "icmp", "253"]))
            .prop_map(|(unit, mf, proto)| format!(" off={}{mf} proto={proto}", unit * 8)),
    ];
    (header, fragment, transport(pool, "icmp"), payload())
        .prop_map(|(header, fragment, transport, payload)| match fragment.contains("off=") {
            true => join([header + &fragment, payload]),
            false => join([header + &fragment, transport, payload]),
        })
        .boxed()
}

fn ipv6(pool: &Pool) -> BoxedStrategy<String> {
    let addresses = (field("saddr", select(pool.v6.clone())), field("daddr", select(pool.v6.clone())));
    let class = (field("dscp", 0..64u8), field("ecn", 0..4u8), field("flow", 0..1u32 << 20));
    let header = (addresses, field("hlim", any::<u8>()), class)
        .prop_map(|((saddr, daddr), hlim, (dscp, ecn, flow))| format!("ip6{saddr}{daddr}{hlim}{dscp}{ecn}{flow}"));
    let later = (1..8000u16, flag("mf"), select(vec!["tcp", "udp", "icmp6", "253"]))
        .prop_map(|(unit, mf, nh)| format!("frag off={}{mf} nh={nh}", unit * 8));
    let extension = prop_oneof![
        10 => Just(String::new()),
        2 => Just("hbh".to_owned()),
        1 => Just("hbh / dst / rt".to_owned()),
        1 => Just("dst".to_owned()),
        1 => Just("rt segs=1".to_owned()),
        1 => Just("ah".to_owned()),
        1 => Just("mh".to_owned()),
        1 => Just("frag mf".to_owned()),
        1 => later,
    ];
    (header, extension, transport(pool, "icmp6"), payload())
        .prop_map(|(header, extension, transport, payload)| match extension.contains("off=") {
            true => join([header, extension, payload]),
            false => join([header, extension, transport, payload]),
        })
        .boxed()
}

fn transport(pool: &Pool, icmp: &'static str) -> impl Strategy<Value = String> + use<> {
    let ports = |pool: &Pool| {
        (field("sport", select(pool.ports.clone())), field("dport", select(pool.ports.clone())))
            .prop_map(|(sport, dport)| sport + &dport)
    };
    let flags = select(vec!["none", "syn", "syn,ack", "ack", "psh,ack", "rst", "fin,ack", "fin,psh,urg", "0xff"]);
    let options = field("options", select(vec!["020405b4", "0204058001030307", "01"]));
    let tcp = (ports(pool), field("flags", flags), field("window", select(vec![0u16, 512, 1024, 65535])), options);
    prop_oneof![
        6 => tcp.prop_map(|(ports, flags, window, options)| format!("tcp{ports}{flags}{window}{options}")),
        6 => ports(pool).prop_map(|ports| format!("udp{ports}")),
        2 => (field("type", select(vec![0u8, 3, 8, 11, 128, 129, 135])), field("code", 0..4u8))
            .prop_map(move |(kind, code)| format!("{icmp}{kind}{code}")),
        1 => (select(vec!["sctp", "dccp", "udplite"]), ports(pool)).prop_map(|(name, ports)| format!("{name}{ports}")),
        1 => Just("esp".to_owned()),
        1 => Just(String::new()),
    ]
}

fn payload() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => Just(String::new()),
        4 => (0..64usize).prop_map(|bytes| format!("payload {bytes}")),
        2 => select(vec![470usize, 484, 500, 1400, 1472]).prop_map(|bytes| format!("payload {bytes}")),
        1 => (2..4000usize).prop_map(|bytes| format!("payload {bytes}")),
    ]
}

fn other(pool: &Pool) -> impl Strategy<Value = String> + use<> {
    let arp = (field("op", 1..3u16), field("saddr", select(pool.v4.clone())), field("daddr", select(pool.v4.clone())))
        .prop_map(|(op, saddr, daddr)| format!("arp{op}{saddr}{daddr}"));
    prop_oneof![arp, (0..60usize).prop_map(|bytes| format!("payload {bytes}"))]
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest! {
        #[test]
        fn every_line_reads(line in lines(&Pool::default())) {
            let packet = packet(&line);
            prop_assert!(packet.is_ok(), "{line}: {packet:?}");
        }
    }
}
