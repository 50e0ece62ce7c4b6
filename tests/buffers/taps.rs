//! Taps get packets as they were received or sent, with verdicts, and find the rules of each policy.

use crate::engines;
use crate::every_policy::has_tcx;
use crate::samples::{index, namespace};
use std::sync::Arc;
use weir_abi::tap_where::TapWhere;
use weir_abi::{Action, Link, Reason};
use weir_engine::live::tap::{
    Copied, PolicyNames, Reasons, RuleName, TapCounts, TapFilter, TapReader, Taps, may_match,
};
use weir_engine::live::xdp::{KernelCode, Ports, Received, Sent};
use weir_engine::live::{Interfaces, Side};
use weir_policy::ir::Rule;
use weir_policy::ir::eval::packet::Frame;
use weir_policy::ir::eval::slots;
use weir_policy::slot_rule::SlotRule;
use weir_test_support as support;

const POLICY: &str = "upstream { tcp dport 443 drop; accept }\ndownstream { udp dport 53 drop; accept }\n";
/// The rules above, with another one in front of them.
const OTHER: &str = "upstream { icmp drop; tcp dport 443 drop; accept }\ndownstream { accept }\n";
/// Short and long, with and without a tag.
const PACKETS: &str = "
eth / ip saddr=10.9.0.1 / udp dport=53 / payload 20
eth / ip saddr=10.9.0.1 / tcp dport=443 flags=ack / payload 1200 fill=3
eth / vlan id=7 / ip / icmp type=8 / payload 500
eth / ip6 saddr=2001:db8::1 / udp dport=53 / payload 2000 fill=9
";

/// The programs of a policy, whose rules open taps know from now on.
struct Loaded {
    code: Arc<KernelCode>,
    names: Arc<PolicyNames>,
}

fn load(text: &str, ports: &Arc<Ports>) -> Loaded {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("taps.weir");
    std::fs::write(&path, text).expect("the folder can be written to");
    let policy = engines::load(&path).unwrap_or_else(|error| panic!("{error}"));
    let data = policy.bind(None).expect("there are no tables");
    let code = policy.kernel(&data, ports).unwrap_or_else(|failure| panic!("{failure}"));
    let name = |rule: &Rule| RuleName { at: rule.at.clone(), text: rule.text.clone() };
    let names = Arc::new(PolicyNames { rules: policy.program.rules.iter().map(name).collect() });
    code.announce(ports, &names);
    Loaded { code, names }
}

fn between(taps: &Arc<Taps>) -> Arc<Ports> {
    let names = Interfaces { lower: vec!["lower".to_owned()], upper: vec!["upper".to_owned()], divert: None };
    Arc::new(Ports::of(&names).expect("they are there").with_taps(taps.clone()))
}

fn taps() -> Arc<Taps> {
    namespace();
    Taps::of_kernel().expect("root may make maps")
}

fn receive(loaded: &Loaded, from: Side, packet: &support::Packet) {
    let interface = if from == Side::Lower { "lower" } else { "upper" };
    let (bytes, first) = (&packet.bytes[..], packet.bytes.len());
    let received = Received { bytes, first, index: index(interface) };
    loaded.code.receive(from as usize, &received).expect("the kernel runs it");
}

/// Checks the one copy of a packet.
fn check(reader: &mut TapReader, packet: &support::Packet, from: Side) -> Copied {
    let copy = reader.read().unwrap_or_else(|| panic!("no copy: {packet}"));
    assert_eq!((copy.from, copy.wire_len as usize), (from, packet.bytes.len()), "{packet}");
    assert_eq!(&copy.bytes[..], &packet.bytes[..], "{packet}");
    assert!(reader.read().is_none(), "one packet, one copy: {packet}");
    copy
}

#[test]
fn between_interfaces_packets_are_copied_whole_with_their_verdicts() {
    let taps = taps();
    let loaded = load(POLICY, &between(&taps));
    let packets = support::packets(PACKETS).expect("they are packets");
    receive(&loaded, Side::Lower, &packets[0]);
    let mut reader = taps.open(TapFilter::default()).expect("none is open");
    let mut short = taps.open(TapFilter { snap: 33, ..TapFilter::default() }).expect("one is open");
    let verdicts = [Side::Lower, Side::Upper].map(|from| {
        let of_packet = |packet| {
            receive(&loaded, from, packet);
            let copy = check(&mut reader, packet, from);
            assert_eq!(&short.read().expect("a copy").bytes[..], &packet.bytes[..33]);
            let rule = copy.names.rule(copy.verdict.reason()).expect("a rule decides");
            (copy.verdict.action().expect("an action"), rule.text.clone())
        };
        packets.iter().map(of_packet).collect::<Vec<_>>()
    });
    let [drop, accept] = [(Action::Drop, "tcp dport 443 drop"), (Action::Accept, "accept")];
    let named = |(action, text): (Action, &str)| (action, text.to_owned());
    assert_eq!(verdicts[0], [accept, drop, accept, accept].map(named));
    let udp = (Action::Drop, "udp dport 53 drop");
    assert_eq!(verdicts[1], [udp, accept, accept, udp].map(named));
    let counts = TapCounts { matched: 8, copied: 8, ..TapCounts::default() };
    assert_eq!((reader.counts(), short.counts()), (counts, counts));
}

#[test]
fn a_tap_of_a_rule_follows_it_to_other_programs_and_stays_in_its_budget() {
    let taps = taps();
    let ports = between(&taps);
    let packets = support::packets(PACKETS).expect("they are packets");
    let first = load(POLICY, &ports);
    let rule = Reasons::Rules(first.names.meant("tcp dport 443 drop"));
    let mut reader =
        taps.open(TapFilter { reasons: rule, budget_pps: 3, ..TapFilter::default() }).expect("none is open");
    let other = load(OTHER, &ports);
    for loaded in [&first, &other] {
        packets.iter().for_each(|packet| receive(loaded, Side::Lower, packet));
        let copy = check(&mut reader, &packets[1], Side::Lower);
        assert_eq!(copy.verdict.reason(), Reason::rule(if std::ptr::eq(loaded, &first) { 0 } else { 1 }));
        assert_eq!(copy.names.rule(copy.verdict.reason()).expect("it has a name").text, "tcp dport 443 drop");
    }
    // The reader renews the budget, and does not read here.
    let before = reader.counts();
    (0..20).for_each(|_| receive(&other, Side::Lower, &packets[1]));
    let after = reader.counts();
    assert_eq!(after.matched - before.matched, 20);
    assert!((17..20).contains(&(after.over - before.over)), "{after:?}");
    drop(reader);
    let mut next =
        taps.open(TapFilter { actions: vec![Action::Accept], ..TapFilter::default() }).expect("it is closed");
    assert!(next.read().is_none(), "what waited was not for this one");
    packets.iter().for_each(|packet| receive(&other, Side::Lower, packet));
    assert_eq!(std::iter::from_fn(|| next.read()).count(), 2);
    assert_eq!(next.counts(), TapCounts { matched: 2, copied: 2, ..TapCounts::default() });
}

/// The CPU counts down to the next copy. The mean of what it skips is one in 8.
#[test]
fn one_packet_in_n_is_copied() {
    weir_engine::cpu::pin().expect("a thread may stay where it runs");
    let taps = taps();
    let loaded = load(POLICY, &between(&taps));
    let packets = support::packets(PACKETS).expect("they are packets");
    let filter = TapFilter { one_in: 8, budget_pps: 1_000_000, ..TapFilter::default() };
    let mut eighths = taps.open(filter.clone()).expect("none is open");
    let (sent, mut none) = (2000, None);
    let mut copies = Vec::new();
    for number in 0..sent {
        // One tap that lets a packet go by costs less than two, and both ways count the same.
        if number == sent / 2 {
            none = taps.open(TapFilter { one_in: u32::MAX, ..filter.clone() }).ok();
        }
        receive(&loaded, Side::Lower, &packets[0]);
        copies.extend(eighths.read().map(|_| number));
    }
    // 250 are expected. A deviation of 60 is six standard deviations.
    assert!((190..310).contains(&copies.len()), "{}", copies.len());
    assert!(copies.windows(2).all(|pair| (1..=15).contains(&(pair[1] - pair[0]))), "at most 14 are skipped");
    let places: std::collections::BTreeSet<u64> = copies.iter().map(|number| number % 8).collect();
    assert_eq!(places.len(), 8, "no place is safe");
    let counts = TapCounts { matched: sent, copied: copies.len() as u64, ..TapCounts::default() };
    assert_eq!(eighths.counts(), counts);
    let mut none = none.expect("one was open");
    assert!(none.read().is_none());
    assert_eq!(none.counts(), TapCounts { matched: sent / 2, ..TapCounts::default() });
    // What an earlier tap left to skip is no concern of the next one.
    drop(none);
    let mut next = taps.open(TapFilter::default()).expect("it is closed");
    receive(&loaded, Side::Lower, &packets[0]);
    assert!(next.read().is_some());
}

#[test]
fn a_full_ring_costs_copies_with_a_count() {
    let taps = taps();
    let loaded = load(POLICY, &between(&taps));
    let packets = support::packets(PACKETS).expect("they are packets");
    let mut reader = taps.open(TapFilter { budget_pps: 1_000_000, ..TapFilter::default() }).expect("none is open");
    let sent = 1500;
    (0..sent).for_each(|_| receive(&loaded, Side::Lower, &packets[3]));
    let lost = reader.counts().lost;
    assert!((1..sent).contains(&lost), "{lost} of {sent}");
    let read = std::iter::from_fn(|| reader.read()).count() as u64;
    assert_eq!(reader.counts().lost, lost);
    assert_eq!((read + lost, reader.counts().matched), (sent, sent));
    receive(&loaded, Side::Lower, &packets[3]);
    check(&mut reader, &packets[3], Side::Lower);
}

/// Matches, some of them with fields that the datapath does not test before it copies.
const MATCHES: &[&str] = &[
    "ip saddr 10.9.0.0/16",
    "ip daddr 10.0.0.0-223.255.255.255 udp sport 1-50000",
    "udp dport 53",
    "tcp dport 443 tcp flags & (syn) == syn",
    "tcp",
    "th dport 1-1023",
    "icmp type 8",
    "icmpv6",
    "ip6 saddr 2001:db8::/32",
    "ip6 daddr 2001:db8::2 udp",
    "meta l4proto 1-17",
    "meta length 100-1500",
];

/// Everywhere the datapath excludes the same packets, and none that matches.
#[test]
fn headers_exclude_only_packets_that_do_not_match() {
    let taps = taps();
    let loaded = load("defaults { malformed accept }\nupstream { accept }\ndownstream { accept }\n", &between(&taps));
    let packets = support::cases::packets_of_features();
    let fits = |packet: &&support::Packet| {
        packet.link == support::Link::Ethernet
            && packet.bytes.len() as u32 == packet.wire
            && (14..3000).contains(&packet.bytes.len())
    };
    let packets: Vec<&support::Packet> = packets.iter().filter(fits).collect();
    for text in MATCHES {
        let rule = SlotRule::parse(&format!("{text} counter")).expect("it is a rule");
        let headers = TapWhere::of(&rule.record);
        let mut reader =
            taps.open(TapFilter { headers, budget_pps: 1_000_000, ..TapFilter::default() }).expect("none is open");
        let (mut matched, mut excluded) = (0, 0);
        for packet in &packets {
            receive(&loaded, Side::Lower, packet);
            let (wire_len, link) = (packet.wire, Link::Ethernet);
            let frame = Frame { bytes: &packet.bytes, wire_len, link, time_ns: 0 };
            let is_match = slots::matches(&rule, frame);
            let may_match = may_match(&headers, link, &packet.bytes);
            assert!(may_match || !is_match, "{text}: {packet}");
            assert_eq!(reader.read().is_some(), may_match, "{text}: {packet}");
            (matched, excluded) = (matched + u64::from(is_match), excluded + u64::from(!may_match));
        }
        assert_eq!(reader.counts().excluded, excluded, "{text}");
        let tests_headers = headers != TapWhere::ANY;
        assert!(matched > 0 && (excluded > 0) == tests_headers, "{text}: {matched} match, {excluded} are excluded");
    }
}

#[test]
fn on_a_host_packets_are_copied_as_they_are_on_the_wire() {
    if !has_tcx() {
        return;
    }
    let taps = taps();
    let ports = Ports::of_host(&["lower".to_owned()]).expect("it is there").with_taps(taps.clone());
    let loaded = load(POLICY, &Arc::new(ports));
    let mut reader = taps.open(TapFilter::default()).expect("none is open");
    for packet in support::packets(PACKETS).expect("they are packets") {
        receive(&loaded, Side::Lower, &packet);
        check(&mut reader, &packet, Side::Lower);
        let sent = Sent { bytes: &packet.bytes[..], index: index("lower"), segments: [0, 0] };
        loaded.code.send(1, &sent).expect("the kernel runs it");
        check(&mut reader, &packet, Side::Upper);
    }
}
