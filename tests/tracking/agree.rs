//! All engines agree on generated flows: many at once, in small tables, with pauses in which flows expire.

use crate::conntrack_flows::{Dice, SYN, Segment, flow};
use crate::engines::{self, load};
use crate::proxied_flows::connection;
use std::collections::BTreeMap;
use weir_abi::flow::{Arrival, Flow, FlowKey};
use weir_abi::packet::L3;
use weir_abi::{Action, Verdict};
use weir_engine::Filter;
use weir_loading::Policy;
use weir_loading::eval::EvalFilter;
use weir_policy::ir::eval::packet::{Frame, parse};
use weir_test_support::{Link, Packet};

/// Flows that pass at the same time.
const AT_ONCE: usize = 40;
/// Number of flows of a run.
const FLOWS: u32 = 1500;
/// The policies: settings, and the rules before the rules for each state.
const POLICIES: [(&str, &str); 13] = [
    ("size 16384", ""),
    ("size 64; embryonic 50%", ""),
    ("size 96; invalid drop", "tcp dport 80-20000 tcp window > 30000 accept"),
    ("size 1024; one-way", "tcp flags rst tcp sport > 30000 accept"),
    ("size 64; pickup off; embryonic 100%", "tcp track"),
    ("size 512; vlan ignore", "tcp track"),
    ("size 320; timeout syn-sent 1s; timeout established 1s; timeout unacknowledged 1s; timeout time-wait 1s", ""),
    ("size 16384; synproxy mss 1460 wscale 7 sack-perm timestamp", "tcp synproxy"),
    (
        "size 4096; invalid accept; synproxy mss 1300 sack-perm timestamp; synproxy on 200/second off 100/second for 1s",
        "tcp dport < 2000 tcp synproxy",
    ),
    ("size 1024; pickup off; synproxy mss 9000", "sample 1/3\n  tcp synproxy\n  tcp synproxy"),
    (
        "size 96; timeout established 1s; timeout fin-wait 1s",
        "limit each ip saddr/24 connections 2 size 1024\n  limit each ip6 saddr/64 connections 3 size 1024",
    ),
    (
        "size 16384; invalid drop",
        "tcp limit each ip saddr/1 connections 40 size 1024 exceed mark\n  meta exceeded exists counter\n  \
         limit each ip6 daddr connections 1",
    ),
    (
        "size 1024; synproxy mss 1460 wscale 7 sack-perm timestamp",
        "limit each ip saddr connections 1 log exceeded\n  tcp synproxy\n  limit each ip daddr/8 connections 30",
    ),
];

fn policy(settings: &str, before: &str) -> Policy {
    // What opens a flow is not always accepted, and a limit decides packets in their order.
    let (port, rate) = if settings.contains("synproxy") { ("sport < 1040", 5000) } else { ("sport 0-1150", 500) };
    let rules = format!(
        "ct state established accept\n  ct state related accept\n  ct state new tcp {port} drop\n  \
         ct state new limit rate {rate}pps accept\n  ct state invalid counter\n  tcp track\n  drop"
    );
    written(&format!(
        "tracking {{ {settings} }}\nupstream {{\n  {before}\n  {rules}\n}}\ndownstream {{\n  {rules}\n}}\n"
    ))
}

/// The policy of a text.
pub fn written(text: &str) -> Policy {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("agree.weir");
    std::fs::write(&path, text).expect("it can be written");
    load(&path).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Makes the segments of a connection with a number that begins at a time, ns.
pub type Begin<'a> = &'a dyn Fn(&mut Dice, u32, u64) -> Vec<Vec<u8>>;

/// Packets of many flows, in turn. Now and then nothing passes for a while. `begin` makes the packets of a flow with a
/// number that begins at a time.
pub fn packets(dice: &mut Dice, begin: Begin<'_>) -> Vec<Packet> {
    let mut waiting: Vec<Vec<Vec<u8>>> = Vec::new();
    let (mut packets, mut begun, mut time_ns) = (Vec::new(), 0, 1_000_000_000);
    while begun < FLOWS || !waiting.is_empty() {
        if begun < FLOWS && waiting.len() < AT_ONCE {
            // Few numbers of flows: a later one may have the key of an earlier one.
            let number = dice.below(u64::from(FLOWS) / 2) as u32;
            let mut segments = begin(dice, number, time_ns);
            segments.reverse();
            waiting.push(segments);
            begun += 1;
            continue;
        }
        let at = dice.below(waiting.len() as u64) as usize;
        // Several segments of a flow follow one another, so that a burst has them.
        for _ in 0..=dice.below(4) {
            let Some(bytes) = waiting[at].pop() else { break };
            time_ns += dice.below(400_000);
            // A burst has one kind of link.
            let is_framed = begun > FLOWS / 2;
            let (link, bytes) = if is_framed { (Link::Ethernet, framed(&bytes)) } else { (Link::RawIp, bytes) };
            let wire = bytes.len() as u32;
            packets.push(Packet { bytes, wire, link, time_ns });
        }
        if waiting[at].is_empty() {
            waiting.swap_remove(at);
        }
        if dice.one_in(2000) {
            time_ns += dice.below(300) * 1_000_000_000;
        }
    }
    in_turns(&mut packets);
    packets
}

/// Packets that pass one after another from one side, where they would change in turn.
const TURN: usize = 64;

/// Lets packets of the same link from one side follow one another, so that bursts have several.
fn in_turns(packets: &mut [Packet]) {
    for turn in packets.chunks_mut(TURN) {
        let times: Vec<u64> = turn.iter().map(|packet| packet.time_ns).collect();
        turn.sort_by_key(|packet| (packet.link == Link::Ethernet, chain(packet)));
        turn.iter_mut().zip(times).for_each(|(packet, time_ns)| packet.time_ns = time_ns);
    }
}

/// The chain that decides a packet: upstream comes first.
fn chain(packet: &Packet) -> usize {
    let ip = if packet.link == Link::Ethernet { &packet.bytes[14..] } else { &packet.bytes };
    engines::arrival(ip).side()
}

/// An IP packet with an Ethernet header.
fn framed(packet: &[u8]) -> Vec<u8> {
    let kind = if packet[0] >> 4 == 6 { [0x86, 0xdd] } else { [8, 0] };
    [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1], &kind[..], packet].concat()
}

/// A generated connection of any kind.
pub fn any(dice: &mut Dice, number: u32, _: u64) -> Vec<Vec<u8>> {
    flow(dice).iter().map(|segment| segment.packet(number)).collect()
}

/// A connection through the SYN proxy, or of any kind.
fn proxied(dice: &mut Dice, number: u32, time_ns: u64) -> Vec<Vec<u8>> {
    if dice.one_in(4) {
        return any(dice, number, time_ns);
    }
    let syn = Segment { from: 0, flags: SYN, seq: 0, ack: 0, window: 0, options: vec![], payload: 0 };
    let bytes = syn.packet(number);
    let (packet, _) =
        parse(Frame { bytes: &bytes, wire_len: bytes.len() as u32, link: weir_abi::Link::RawIp, time_ns });
    let ends = [(packet.saddr, packet.sport), (packet.daddr, packet.dport)];
    let key = FlowKey::of(Arrival::Outside, ends[0], ends[1], packet.proto, [0; 2], packet.l3 == L3::Ipv6);
    connection(dice, &key, Arrival::Outside.side(), time_ns).iter().map(|segment| segment.packet(number)).collect()
}

/// What engines say of packets.
pub struct Outcome {
    pub verdicts: Vec<Verdict>,
    /// What leaves in place of packets, by index: bytes, and length on the wire.
    leaves: BTreeMap<usize, (Vec<u8>, u32)>,
    counters: Vec<weir_abi::Counter>,
    pub flows: Vec<(FlowKey, Flow)>,
}

/// Decides all packets, each by the chain of the side from which it comes.
pub fn run(filter: &mut dyn Filter, packets: &[Packet]) -> Outcome {
    let (mut decided, mut leaves) = (Vec::new(), BTreeMap::new());
    for packets in packets.chunk_by(|one, next| chain(one) == chain(next)) {
        let chain = chain(&packets[0]);
        for set in &mut engines::frame_sets(packets) {
            for burst in set.bursts() {
                let mut verdicts = [Verdict(u32::MAX); weir_abi::BURST_MAX];
                filter.decide(chain, &burst, &mut verdicts).expect("the engine decides");
                let first = decided.len();
                filter.rewritten(&burst, &verdicts[..burst.len()], &mut |index, bytes, wire_len| {
                    leaves.insert(first + index, (bytes.to_vec(), wire_len));
                });
                decided.extend_from_slice(&verdicts[..burst.len()]);
            }
        }
    }
    let mut flows = Vec::new();
    filter.flows(&mut |key, flow| flows.push((*key, *flow)));
    Outcome { verdicts: decided, leaves, counters: filter.counters(), flows }
}

pub fn compare(policy: &Policy, packets: &[Packet], name: &str, eval: &Outcome, other: &Outcome) {
    let differs = eval.verdicts.iter().zip(&other.verdicts).position(|(one, other)| one != other);
    if let Some(at) = differs {
        let shown = |verdict: Verdict| engines::verdict(&policy.program, verdict);
        panic!(
            "packet {at}: eval {}, {name} {}\n  {}",
            shown(eval.verdicts[at]),
            shown(other.verdicts[at]),
            packets[at]
        );
    }
    for (at, packet) in packets.iter().enumerate() {
        let [one, other] = [eval, other].map(|outcome| outcome.leaves.get(&at));
        assert_eq!(one, other, "packet {at}, {packet}: what leaves by eval and {name}");
    }
    assert_eq!(eval.counters, other.counters, "counters of eval and {name}");
    let differs = eval.flows.iter().zip(&other.flows).find(|(one, other)| one != other);
    assert!(differs.is_none() && eval.flows.len() == other.flows.len(), "flows of eval and {name}: {differs:#?}");
}

fn agree(nth: usize, settings: &str, before: &str) {
    let policy = policy(settings, before);
    let proxies = settings.contains("synproxy");
    let packets = packets(&mut Dice::new(nth as u64 + 1), if proxies { &proxied } else { &any });
    let eval = run(&mut EvalFilter::new(&policy.program, policy.answers()), &packets);
    let mut native = policy.native().unwrap_or_else(|error| panic!("{settings}: {error}"));
    let mut xdp = policy.xdp().unwrap_or_else(|error| panic!("{settings}: {error}"));
    let by_native = run(&mut native, &packets);
    compare(&policy, &packets, "native", &eval, &by_native);
    let by_xdp = run(&mut xdp, &packets);
    compare(&policy, &packets, "xdp", &eval, &by_xdp);
    for table in [native.flow_table(), xdp.flow_table()] {
        table.expect("it tracks").verify().expect("the invariants of the table hold");
    }
    assert!(eval.flows.len() > 10, "{settings}: only {} flows", eval.flows.len());
    let replies = eval.verdicts.iter().filter(|verdict| verdict.action() == Some(Action::Reply)).count();
    let translated = eval.leaves.len() - replies;
    assert_eq!(proxies, replies > 100 && translated > 500, "{settings}: {replies} replies, {translated} changed");
}

#[test]
fn engines_agree_on_generated_flows() {
    std::thread::scope(|scope| {
        let cases = POLICIES.iter().enumerate();
        let threads: Vec<_> =
            cases.map(|(nth, (settings, before))| scope.spawn(move || agree(nth, settings, before))).collect();
        threads.into_iter().for_each(|thread| thread.join().expect("the engines agree"));
    });
}

/// Rules before the tracking point need more than those after it. In the kernel each rule is a program.
#[test]
fn rules_in_parts_know_the_state() {
    let rules = "limit rate 5000pps exceed mark
  limit each ip saddr/1 connections 9 size 1024 exceed mark
  limit each ip6 daddr connections 3 size 1024
  tcp dport 80 ct state new,established accept
  ct state established accept
  tcp track
  ct state != { new, untracked } counter
  ct state new accept";
    let policy = written(&format!("tracking {{ size 64 }}\nupstream {{\n  {rules}\n}}\ndownstream {{ accept }}\n"));
    let mut packets = packets(&mut Dice::new(9), &any);
    packets.truncate(3000);
    let eval = run(&mut EvalFilter::new(&policy.program, policy.answers()), &packets);
    let mut native = policy.native().unwrap_or_else(|error| panic!("native: {error}"));
    let by_native = run(&mut native, &packets);
    compare(&policy, &packets, "native", &eval, &by_native);
    let data = policy.bind_kernel_replay().expect("there is memory");
    let parts = policy.compile_bpf_in_parts(&data, 1).and_then(|compiled| compiled.filter());
    let by_parts = run(&mut parts.unwrap_or_else(|error| panic!("in parts: {error}")), &packets);
    compare(&policy, &packets, "xdp in parts", &eval, &by_parts);
}
