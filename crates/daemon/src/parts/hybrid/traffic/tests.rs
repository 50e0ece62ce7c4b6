//! Traffic from counters equals the traffic of the same packets, one by one.

use super::{Reading, Window};
use weir_abi::{Counter, Link, Reason};
use weir_card::eval::{Card, Configuration};
use weir_card::receive::{Configured, Port, Received};
use weir_loading::{Policy, PolicyFile};
use weir_planning::card::{CardImages, profile, split_of};
use weir_planning::survey::Survey;
use weir_policy::ir::eval::Evaluator;
use weir_policy::ir::eval::packet::Frame;
use weir_policy::pass::choose_layouts::CostModel;
use weir_test_support::{Packet, notation};

const PACKETS: &str = "
eth / ip saddr=203.0.113.1 ttl=64 / udp sport=53 / payload 40
eth / ip saddr=192.0.2.3 ttl=64 / udp sport=53 / payload 4
eth / ip saddr=203.0.113.1 ttl=64 / tcp dport=22 / payload 10
eth / ip saddr=192.0.2.3 ttl=64 / tcp dport=80
eth / ip saddr=203.0.113.1 ttl=3 / tcp dport=80 / payload 100
eth / ip saddr=203.0.113.9 ttl=64 mf id=7 / udp sport=9 / payload 64
eth / ip saddr=203.0.113.9 / icmp
eth / ip saddr=203.0.113.9 / icmp
eth / ip saddr=203.0.113.9 / icmp
eth / ip saddr=203.0.113.9 / udp dport=9
eth / arp
";

fn policy(rules: &str) -> Policy {
    policy_with("", rules)
}

fn policy_with(before: &str, rules: &str) -> Policy {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("p.weir");
    let text = format!(
        "{before}\ntable bad {{ type ipv4; elements = {{ 192.0.2.0/28 }} }}\nupstream {{ {rules} }}\ndownstream {{ accept }}\n"
    );
    std::fs::write(&path, text).expect("the policy can be written");
    PolicyFile::open(&path).and_then(|file| file.check(&CostModel::default())).expect("it is right")
}

fn frame(packet: &Packet) -> Frame<'_> {
    Frame { bytes: &packet.bytes, wire_len: packet.wire, link: Link::Ethernet, time_ns: packet.time_ns }
}

/// The window of packets by counters, as engines count, and the same by a survey.
fn windows(policy: &Policy, packets: &[Packet], rounds: u64) -> [Window; 2] {
    let card = profile("open-nic").expect("it is shipped");
    let base = super::super::splitter::base(&policy.program);
    let split = split_of(policy, base, &card, &|_| true);
    let images = CardImages::new(policy, &split);
    let mut survey = Survey::new(policy, &card, &split, &images);
    let mut device = Card::new(&card);
    device.commit(Configuration { program: &split.card, lookups: &images, token: 0, epoch: 0 });
    let own = Configured { epoch: 0, body: split.card.body.bytes() as u8 };
    let port = Port { token: 0, own, others: vec![] };
    let mut eval = Evaluator::new(&policy.program, policy.answers());
    let mut kinds = [Counter::default(); 2];
    for packet in (0..rounds).flat_map(|_| packets) {
        survey.see(frame(packet));
        let Some(passed) = device.handle(frame(packet)) else { continue };
        let kind = &mut kinds[usize::from(!matches!(port.receive(&passed), Received::Answered { .. }))];
        (kind.packets, kind.bytes) = (kind.packets + 1, kind.bytes + u64::from(packet.wire));
        eval.decide(base, frame(packet), &mut ());
    }
    let reading = |counters: Vec<Counter>, dropped: &[Counter]| Reading {
        counters,
        dropped: split.card.dropped.iter().copied().zip(dropped.iter().copied()).collect(),
    };
    let mut counters = eval.counters().to_vec();
    counters[usize::from(Reason::COUNTER_ANSWERED.0)] = kinds[0];
    counters[usize::from(Reason::COUNTER_ALONE.0)] = kinds[1];
    // What is no packet of the card.
    counters[usize::from(Reason::UNSEALED.0)] = Counter { packets: 99, bytes: 9900 };
    counters[usize::from(Reason::CARD_CONTROL.0)] = Counter { packets: 77, bytes: 7700 };
    let before = reading(vec![Counter::default(); counters.len()], &vec![Counter::default(); device.dropped().len()]);
    let now = reading(counters, device.dropped());
    let text = policy.text().expect("a text");
    let window = now.since(&before, &policy.program, &text.lowered.program.chains[base].tree.nodes, 2.0);
    let mut surveyed = survey.traffic();
    surveyed.pps = survey.packets as f64 / 2.0;
    [window, Window { packets: survey.packets, traffic: surveyed }]
}

#[test]
fn a_window_of_counters_is_a_survey_of_its_packets() {
    let policy = policy(
        "udp sport 53 drop; ip saddr @bad counter; icmp limit rate 2/second burst 2 counter accept; ip ttl < 5 counter; \
         tcp dport { 80, 443 } accept; udp dport 9 counter; tcp dport 22 drop",
    );
    let packets = notation::packets(PACKETS).expect("they read");
    let [window, surveyed] = windows(&policy, &packets, 3);
    assert_eq!(window, surveyed);
    let Window { packets, traffic } = window;
    assert_eq!(packets, 33);
    let per_round = |share: f64| (share * 11.0).round();
    // All but ARP reach the first rule, which two packets match. A fragment has no ports.
    let reached: Vec<f64> = traffic.reached.iter().copied().map(per_round).collect();
    assert_eq!(reached[..7], [10.0, 8.0, 8.0, 5.0, 5.0, 3.0, 3.0], "{traffic:?}");
    assert!((traffic.answered - 9.0 / 11.0).abs() < 1e-9, "{traffic:?}");
}

/// Packets that the tracker refuses have reached the rules in front of it, and none behind.
#[test]
fn what_the_tracker_refuses_reaches_no_later_rule() {
    let policy = policy_with(
        "tracking { size 64; pickup off }",
        "ip ttl < 5 counter; tcp dport 23 drop; tcp track; tcp dport 80 accept; accept",
    );
    // A segment that no card drops, one without a flow, one that opens a flow, and a datagram.
    let packets = "
eth / ip saddr=203.0.113.1 / tcp dport=23 flags=ack
eth / ip saddr=203.0.113.1 / tcp dport=80 flags=ack
eth / ip saddr=203.0.113.1 / tcp dport=80 flags=syn
eth / ip saddr=203.0.113.1 / udp dport=80
";
    let [window, _] = windows(&policy, &notation::packets(packets).expect("they read"), 1);
    let reached: Vec<f64> = window.traffic.reached.iter().map(|share| share * 4.0).collect();
    let [first, second, track, third, last] = reached[..5] else { panic!("{window:?}") };
    assert_eq!([first, second, third, last], [4.0, 4.0, 2.0, 1.0], "{window:?}");
    assert!((2.0..=3.0).contains(&track), "the rule is where the tracker is: {window:?}");
}

#[test]
fn a_window_without_packets_divides_by_nothing() {
    let policy = policy("udp sport 53 drop; accept");
    let [window, _] = windows(&policy, &[], 1);
    assert_eq!(window.packets, 0);
    assert!(window.traffic.reached.iter().chain(&window.traffic.matched).all(|share| *share == 0.0));
    assert_eq!((window.traffic.pps, window.traffic.frame_bytes, window.traffic.answered), (0.0, 0.0, 0.0));
}
