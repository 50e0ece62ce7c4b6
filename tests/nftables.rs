//! Compares Weir with the kernel's nftables, for every rule that both support.
//!
//! Weir and nftables get the same text: Weir as a policy whose rules only count, nftables as a chain at a device's
//! ingress hook. Each packet is sent over a veth pair, and both must count the same for every rule. Intended
//! differences are excluded; docs/reference/language.md describes them in "Where nftables differs".

mod engines;
#[path = "nftables/namespace.rs"]
mod namespace;
#[path = "random/packets.rs"]
mod packets;
#[path = "nftables/rules.rs"]
mod rules;

use engines::{frame_sets, load};
use namespace::{FRAME_BYTES_MAX, Wire, with_wire};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use std::fmt::Write;
use weir_abi::Reason;
use weir_abi::packet::{Fragment, ext};
use weir_loading::Policy;
use weir_loading::eval::EvalFilter;
use weir_policy::ir::eval::packet::{self, Frame};
use weir_test_support::{self as support, Link, Packet};

/// Number of random packets besides the packets of the features.
const RANDOM_PACKETS: usize = 1500;
/// Protocol numbers of IPv6 extension headers.
const EXTENSIONS: [u8; 4] = [0, 43, 44, 60];
/// Maximum number of packets that are shown for each different rule.
const NAMED: usize = 3;

fn frame(packet: &Packet) -> Frame<'_> {
    Frame { bytes: &packet.bytes, wire_len: packet.wire, link: weir_abi::Link::Ethernet, time_ns: 0 }
}

/// Whether a packet can be sent and is well formed. The kernel's handling of malformed packets is not specified.
fn sendable(packet: &Packet) -> bool {
    let frame = frame(packet);
    let whole = packet.link == Link::Ethernet && packet.bytes.len() == packet.wire as usize;
    if !whole || !(20..=FRAME_BYTES_MAX).contains(&packet.bytes.len()) {
        return false;
    }
    let (parsed, malformed) = packet::parse(frame);
    // nftables treats these two as protocols, Weir as extension headers.
    let walked = parsed.ext & (ext::MH | ext::AH) != 0;
    malformed.is_none() && parsed.vlan.len() < 2 && !walked && !is_length(&packet.bytes)
}

/// IEEE 802.3 frames have a length in place of an EtherType. The kernel does not pass them to nftables.
fn is_length(bytes: &[u8]) -> bool {
    u16::from_be_bytes([bytes[12], bytes[13]]) < 0x600
}

/// The packet with an Ethernet header, whatever its link layer was.
fn on_ethernet(packet: Packet) -> Packet {
    if packet.link != Link::RawIp || packet.bytes.is_empty() {
        return packet;
    }
    let ether_type: [u8; 2] = if packet.bytes[0] >> 4 == 4 { [0x08, 0] } else { [0x86, 0xdd] };
    let mut bytes = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    bytes.extend(ether_type);
    bytes.extend(&packet.bytes);
    Packet { link: Link::Ethernet, wire: packet.wire + 14, bytes, ..packet }
}

/// The packets of all features and random ones.
fn sent() -> Vec<Packet> {
    let mut packets = support::cases::packets_of_features();
    let mut runner = TestRunner::deterministic();
    let kinds = [packets::well_formed(), packets::broken(), packets::well_formed(), packets::real()];
    for kind in kinds.iter().cycle().take(RANDOM_PACKETS) {
        packets.push(kind.new_tree(&mut runner).expect("no strategy rejects everything").current());
    }
    packets.into_iter().map(on_ethernet).filter(sendable).collect()
}

/// A policy that contains the rules for all packets.
fn policy(rules: &[String]) -> Policy {
    let mut text = rules::TABLES.to_owned();
    text += "defaults { arp rules; not-ip rules; fragment rules; ip-options rules }\nupstream {\n";
    for rule in rules {
        let _ = writeln!(text, "  {rule} counter");
    }
    text += "}\ndownstream { accept }\n";
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("oracle.weir");
    std::fs::write(&path, &text).expect("it can be written");
    load(&path).unwrap_or_else(|problem| panic!("{problem}"))
}

/// Number of packets that matched each rule in the interpreter.
fn weir(policy: &Policy, packets: &[Packet]) -> Vec<u64> {
    let mut filter = EvalFilter::new(&policy.program, policy.answers());
    let decided = engines::decide(&mut filter, &policy.program, &mut frame_sets(packets)).expect("it does not fail");
    // The last rule belongs to downstream.
    let rules = &decided.counters[usize::from(Reason::RULE_BASE)..];
    rules[..rules.len() - 1].iter().map(|counter| counter.packets).collect()
}

fn nftables(wire: &mut Wire, rules: &[String], packets: &[Packet]) -> Vec<u64> {
    wire.load_rules(rules::SETS, rules);
    packets.iter().for_each(|packet| wire.send(&packet.bytes));
    wire.counters()
}

/// Rules with different counts, with the first packets that only one of both counted.
fn differences(wire: &mut Wire, rules: &[String], packets: &[Packet]) -> Vec<String> {
    let (ours, theirs) = (weir(&policy(rules), packets), nftables(wire, rules, packets));
    assert_eq!(ours.len(), theirs.len());
    let wrong: Vec<usize> = (0..rules.len()).filter(|&index| ours[index] != theirs[index]).collect();
    let disputed: Vec<String> = wrong.iter().map(|&index| rules[index].clone()).collect();
    let mut messages: Vec<String> = wrong
        .iter()
        .map(|&index| format!("{}: weir {}, nftables {}", rules[index], ours[index], theirs[index]))
        .collect();
    if !wrong.is_empty() {
        name_packets(wire, &disputed, packets, &mut messages);
    }
    messages
}

/// Sends the packets one by one. Adds those that only one of both counts to the messages of their rules.
fn name_packets(wire: &mut Wire, rules: &[String], packets: &[Packet], messages: &mut [String]) {
    let policy = policy(rules);
    wire.load_rules(rules::SETS, rules);
    let mut before = vec![0; rules.len()];
    let mut named = vec![0; rules.len()];
    for packet in packets {
        wire.send(&packet.bytes);
        let counted = wire.counters();
        for (index, ours) in weir(&policy, std::slice::from_ref(packet)).into_iter().enumerate() {
            let theirs = counted[index] - before[index];
            if ours != theirs && named[index] < NAMED {
                named[index] += 1;
                let _ = write!(messages[index], "\n  weir {ours}, nftables {theirs}: {packet}");
            }
        }
        before = counted;
    }
}

/// Rules without a matching packet would test nothing.
fn assert_all_hit(rules: &[String], packets: &[Packet]) {
    let counts = weir(&policy(rules), packets);
    let idle: Vec<&String> =
        rules.iter().zip(&counts).filter(|(_, count)| **count == 0).map(|(rule, _)| rule).collect();
    assert!(idle.is_empty(), "no packet matches {idle:#?}");
}

/// Packets, grouped by the rules that apply to them.
struct Sorted {
    plain: Vec<Packet>,
    tagged: Vec<Packet>,
    later_fragments: Vec<Packet>,
}

fn sort(packets: Vec<Packet>) -> Sorted {
    let mut sorted = Sorted { plain: vec![], tagged: vec![], later_fragments: vec![] };
    for packet in packets {
        let (parsed, _) = packet::parse(frame(&packet));
        let tag = [packet.bytes[12], packet.bytes[13]];
        // The protocol after the header of a later fragment is unknown, and nftables then has no protocol.
        let hidden = parsed.fragment == Fragment::Later && EXTENSIONS.contains(&parsed.proto);
        match (parsed.vlan.is_empty(), parsed.fragment) {
            _ if hidden => {}
            (true, Fragment::Later) => sorted.later_fragments.push(packet),
            (true, _) => sorted.plain.push(packet),
            (false, Fragment::None | Fragment::First) if tag == [0x81, 0] => sorted.tagged.push(packet),
            (false, _) => {}
        }
    }
    sorted
}

#[test]
fn the_kernel_counts_as_weir_does() {
    with_wire(|mut wire| {
        let Sorted { plain, tagged, later_fragments } = sort(sent());
        let counts = (plain.len(), tagged.len(), later_fragments.len());
        assert!(counts.0 > 1000 && counts.1 > 50 && counts.2 > 50, "too few packets: {counts:?}");
        let owned = |rules: &[&[&str]]| -> Vec<String> { rules.concat().iter().map(|&rule| rule.to_owned()).collect() };
        let all = owned(&[rules::NETWORK, rules::TRANSPORT, rules::LINK]);
        assert_all_hit(&all, &[plain.as_slice(), &later_fragments].concat());
        assert_all_hit(&owned(&[rules::TAGGED]), &tagged);
        let mut wrong = differences(&mut wire, &all, &plain);
        wrong.extend(differences(&mut wire, &owned(&[rules::NETWORK, rules::TRANSPORT, rules::TAGGED]), &tagged));
        wrong.extend(differences(&mut wire, &owned(&[rules::NETWORK, rules::LINK]), &later_fragments));
        assert!(wrong.is_empty(), "{} rules differ:\n{}", wrong.len(), wrong.join("\n"));
    });
}
