use super::*;
use crate::frame_set::FrameSet;
use crate::live::lane::Side;
use std::sync::Arc;
use weir_abi::verdict::Sampled;
use weir_abi::{Action, BURST_MAX, Link, Reason, Verdict};

const UNCUT: [u8; BURST_MAX] = [0; BURST_MAX];
const REASONS: usize = Reason::RULE_BASE as usize + 8;

fn names(rules: &[&str]) -> Arc<PolicyNames> {
    let rules =
        rules.iter().zip(2..).map(|(text, line)| RuleName { at: format!("e.weir:{line}"), text: (*text).into() });
    Arc::new(PolicyNames { rules: rules.collect() })
}

/// A worker with a burst of as many packets as it gets verdicts. Packet `n` has `60 + n` bytes of value `n`.
struct Bench {
    taps: Arc<Taps>,
    worker: WorkerTaps,
    frames: FrameSet,
}

impl Bench {
    fn new() -> Self {
        let taps = Taps::of_workers();
        let packets: Vec<Vec<u8>> = (0..BURST_MAX).map(|n| vec![n as u8; 60 + n]).collect();
        let frames = packets.iter().map(|bytes| (&bytes[..], bytes.len() as u32));
        Bench { worker: WorkerTaps::new(taps.clone()), frames: FrameSet::new(Link::Ethernet, frames), taps }
    }

    fn activate(&mut self, rules: &[&str]) {
        let bits = self.taps.policy(REASONS, &names(rules));
        self.worker.follow(&bits);
    }

    fn decide(&mut self, from: Side, verdicts: &[(Action, Reason)]) {
        let verdicts: Vec<Verdict> =
            verdicts.iter().map(|&(action, reason)| Verdict::new(action, reason, Sampled::No)).collect();
        self.worker.take(from, &self.frames.burst(0).first(verdicts.len()), &verdicts, &UNCUT);
    }
}

/// The first byte of each copy, which is the number of its packet.
fn numbers(reader: &mut TapReader) -> Vec<u8> {
    std::iter::from_fn(|| reader.read()).map(|copy| copy.bytes[0]).collect()
}

fn drop_by(rule: u16) -> (Action, Reason) {
    (Action::Drop, Reason::rule(rule))
}

#[test]
fn a_tap_gets_what_it_wants_with_the_names_of_its_policy() {
    let mut bench = Bench::new();
    bench.activate(&["tcp drop", "udp drop", "accept"]);
    let burst = [drop_by(0), drop_by(1), (Action::Accept, Reason::rule(2)), (Action::Drop, Reason::LIMIT)];
    bench.decide(Side::Lower, &burst);
    let all = TapFilter::default();
    let mut every = bench.taps.open(all.clone()).expect("none is open");
    let mut drops = bench.taps.open(TapFilter { actions: vec![Action::Drop], ..all.clone() }).expect("one is open");
    let limit = Reasons::BuiltIn(Reason::LIMIT);
    let mut limits = bench.taps.open(TapFilter { reasons: limit, snap: 10, ..all.clone() }).expect("two are open");
    let udp = Reasons::Rules(names(&["tcp drop", "udp drop"]).meant("e.weir:3"));
    let mut udp = bench.taps.open(TapFilter { reasons: udp, sides: vec![Side::Upper], ..all.clone() }).expect("three");
    assert_eq!(bench.taps.open(all.clone()).err(), Some(TapsInUse));
    bench.decide(Side::Lower, &burst);
    assert_eq!(numbers(&mut every), [0, 1, 2, 3], "and nothing from before it was opened");
    assert_eq!(numbers(&mut drops), [0, 1, 3]);
    let copy = limits.read().expect("one is over its limit");
    assert_eq!((&copy.bytes[..], copy.wire_len, copy.from), (&[3; 10][..], 63, Side::Lower));
    assert_eq!((copy.verdict.reason(), copy.link), (Reason::LIMIT, Link::Ethernet));
    assert_eq!(numbers(&mut udp), [0; 0], "the other side");
    bench.decide(Side::Upper, &burst);
    let copy = udp.read().expect("one");
    assert_eq!(
        (&copy.bytes[..], copy.names.rule(copy.verdict.reason())),
        (&[1; 61][..], Some(&names(&["", "udp drop"]).rules[1]))
    );
    drop(drops);
    assert!(bench.taps.open(all).is_ok(), "it has made room");
    assert_eq!(udp.counts(), TapCounts { matched: 1, copied: 1, ..TapCounts::default() });
}

#[test]
fn a_rule_is_followed_from_policy_to_policy() {
    let mut bench = Bench::new();
    bench.activate(&["tcp drop", "udp drop"]);
    let rule = Reasons::Rules(names(&["tcp drop", "udp drop"]).meant("udp drop"));
    let mut reader = bench.taps.open(TapFilter { reasons: rule, ..TapFilter::default() }).expect("none is open");
    let burst = [drop_by(0), drop_by(1), drop_by(2)];
    bench.decide(Side::Lower, &burst);
    assert_eq!(numbers(&mut reader), [1]);
    bench.activate(&["icmp drop", "tcp drop", "udp drop"]);
    bench.decide(Side::Lower, &burst);
    assert_eq!(numbers(&mut reader), [2]);
    bench.activate(&["udp accept"]);
    bench.decide(Side::Lower, &burst[..1]);
    assert_eq!(numbers(&mut reader), [0; 0]);
    assert_eq!(reader.counts(), TapCounts { matched: 2, copied: 2, ..TapCounts::default() });
}

#[test]
fn a_reader_that_stalls_loses_copies_with_a_count() {
    let mut bench = Bench::new();
    bench.activate(&["udp drop"]);
    let filter = TapFilter { budget_pps: 1_000_000, ..TapFilter::default() };
    let mut stalled = bench.taps.open(filter.clone()).expect("none is open");
    let mut quick = bench.taps.open(filter).expect("one is open");
    let bursts = 200;
    for _ in 0..bursts {
        bench.decide(Side::Lower, &[drop_by(0); BURST_MAX]);
        assert_eq!(numbers(&mut quick).len(), BURST_MAX);
    }
    let all = (bursts * BURST_MAX) as u64;
    let counts = stalled.counts();
    assert_eq!((counts.matched, counts.copied + counts.lost, counts.over), (all, all, 0));
    assert_eq!(numbers(&mut stalled).len() as u64, counts.copied);
    assert!(counts.lost > 0);
    drop(stalled);
    let all_taps = TapCounts { matched: 2 * all, copied: counts.copied + all, lost: counts.lost, ..counts };
    assert_eq!(bench.taps.totals(), (1, all_taps), "a closed tap's are kept");
    assert_eq!(quick.counts(), TapCounts { matched: all, copied: all, ..TapCounts::default() });
}

#[test]
fn a_tap_gets_no_more_than_its_budget() {
    let mut bench = Bench::new();
    bench.activate(&["udp drop"]);
    let reader = bench.taps.open(TapFilter { budget_pps: 100, ..TapFilter::default() }).expect("none is open");
    for _ in 0..10 {
        bench.decide(Side::Lower, &[drop_by(0); BURST_MAX]);
    }
    // Only its reader renews the budget, and does not here.
    let expected = TapCounts { matched: 640, copied: 100, over: 540, ..TapCounts::default() };
    assert_eq!(reader.counts(), expected);
}

/// A UDP packet of IPv4 between these ends.
fn udp(from: [u8; 4], sport: u16) -> Vec<u8> {
    let mut frame = vec![0; 60];
    (frame[12], frame[14], frame[23]) = (8, 0x45, 17);
    frame[26..30].copy_from_slice(&from);
    frame[34..36].copy_from_slice(&sport.to_be_bytes());
    frame
}

#[test]
fn headers_exclude_packets_before_they_take_of_the_budget() {
    use weir_abi::slot::AddressRange;
    use weir_abi::tap_where::TapWhere;
    let mut bench = Bench::new();
    let mut packets = vec![udp([192, 0, 2, 1], 9); BURST_MAX];
    (packets[7], packets[9]) = (udp([192, 0, 2, 2], 53), udp([192, 0, 2, 2], 54));
    // What is no IP packet is left to the reader.
    packets[11][12] = 9;
    bench.frames = FrameSet::new(Link::Ethernet, packets.iter().map(|bytes| (&bytes[..], 60)));
    bench.activate(&["udp drop"]);
    let address = AddressRange::new(0xc000_0202, 0xc000_0202);
    let mut headers = TapWhere::ANY;
    (headers.saddr, headers.sport, headers.family) = (address, [53; 2], 4);
    let mut reader =
        bench.taps.open(TapFilter { headers, budget_pps: 2, ..TapFilter::default() }).expect("none is open");
    bench.decide(Side::Lower, &[drop_by(0); BURST_MAX]);
    let copies: Vec<_> = std::iter::from_fn(|| reader.read()).map(|copy| copy.bytes.to_vec()).collect();
    assert_eq!(copies, [packets[7].clone(), packets[11].clone()]);
    assert_eq!(reader.counts(), TapCounts { matched: 64, copied: 2, excluded: 62, ..TapCounts::default() });
}

#[test]
fn a_budget_is_renewed_up_to_a_second() {
    use std::sync::atomic::{AtomicI64, Ordering};
    let left = AtomicI64::new(-3);
    for (more, expected) in [(10, 10), (50, 60), (90, 100), (1, 100)] {
        open_tap::renew(&left, more, 100);
        assert_eq!(left.load(Ordering::Relaxed), expected);
    }
}

/// Each part of a second gives what is due, and small budgets are not rounded up.
#[test]
fn a_small_budget_is_exact_over_seconds() {
    for (budget_pps, step_ns) in [(1, 10_000_000), (5, 13_000_000), (7, 700_000_000), (333, 11_000_001)] {
        let mut renewal = reader::Renewal::default();
        let (mut now_ns, mut due) = (0u64, 0);
        while now_ns < 20_000_000_000 {
            now_ns += step_ns;
            due += renewal.due(now_ns, budget_pps).expect("no step is too short");
        }
        assert_eq!(due as u64, now_ns * u64::from(budget_pps) / 1_000_000_000, "{budget_pps} {step_ns}");
        assert_eq!(renewal.due(now_ns + 9_999_999, budget_pps), None, "too early");
        assert_eq!(renewal.due(now_ns + 3_600_000_000_000, budget_pps), Some(budget_pps.into()), "a second's at most");
    }
}

#[test]
fn a_tap_with_a_small_budget_gets_that_many_each_second() {
    let mut bench = Bench::new();
    bench.activate(&["udp drop"]);
    let mut reader = bench.taps.open(TapFilter { budget_pps: 5, ..TapFilter::default() }).expect("none is open");
    bench.decide(Side::Lower, &[drop_by(0); 10]);
    assert_eq!(reader.counts().copied, 5, "the first second's");
    for step in 1..=1000 {
        reader.renew(step * 10_000_000);
        bench.decide(Side::Lower, &[drop_by(0); 10]);
    }
    assert_eq!(reader.counts().copied, 5 + 10 * 5);
}

#[test]
fn a_worker_that_starts_later_has_room_for_its_copies() {
    let mut bench = Bench::new();
    bench.activate(&["udp drop"]);
    let mut reader = bench.taps.open(TapFilter::default()).expect("none is open");
    bench.decide(Side::Lower, &[drop_by(0)]);
    bench.worker = WorkerTaps::new(bench.taps.clone());
    bench.activate(&["udp drop"]);
    bench.decide(Side::Upper, &[drop_by(0)]);
    assert_eq!(
        [reader.read(), reader.read()].map(|copy| copy.map(|copy| copy.from)),
        [Some(Side::Lower), Some(Side::Upper)]
    );
    assert_eq!(reader.counts(), TapCounts { matched: 2, copied: 2, ..TapCounts::default() });
}

#[test]
fn one_in_n_is_chosen_by_chance() {
    let mut bench = Bench::new();
    bench.activate(&["udp drop"]);
    let filter = TapFilter { one_in: 8, budget_pps: 1_000_000, ..TapFilter::default() };
    let mut reader = bench.taps.open(filter).expect("none is open");
    let mut chosen = Vec::new();
    for _ in 0..200 {
        bench.decide(Side::Lower, &[drop_by(0); BURST_MAX]);
        chosen.extend(numbers(&mut reader));
    }
    // 1,600 are expected. A deviation of 400 is eleven standard deviations.
    assert!((1200..2000).contains(&chosen.len()), "{}", chosen.len());
    let places: std::collections::BTreeSet<u8> = chosen.into_iter().collect();
    assert_eq!(places.len(), BURST_MAX, "no place in a burst is safe");
    assert_eq!(reader.counts().matched, 200 * BURST_MAX as u64);
}
