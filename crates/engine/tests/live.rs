//! Changes of policy under workers: no packet is lost, and none is decided by two policies. Needs clang.

#![allow(clippy::unwrap_used)] // helpers of tests are tests
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use weir_abi::{Counter, Link, Reason, Verdict};
use weir_engine::clang::Clang;
use weir_engine::cpu::Cpu;
use weir_engine::frame_set::FrameSet;
use weir_engine::live::memory_lane::{MemoryLane, Witness};
use weir_engine::live::{Counts, Datapath, Lane, Loaded, PortReading, Side, Workers};
use weir_engine::{Bound, NativeCode, ProgramShape};

/// Number of policies. Policy `k` decides every packet by rule `k`, drops if `k` is odd, and waits a little in the
/// middle of each burst.
const POLICIES: usize = 4;

fn policy(rule: usize) -> Arc<NativeCode> {
    let action = if rule % 2 == 1 { "ACTION_DROP" } else { "ACTION_ACCEPT" };
    let chain = |name: &str| {
        format!(
            "void weir_{name}(const struct weir_burst *burst)\n{{\n
	const struct env env = {{.counters = burst->counters, .tables = burst->tables}};
	for (uint32_t i = 0; i < burst->count; i++) {{
		for (volatile int wait = 0; i == 7 && wait < 300; wait++)
			;
		count(&env, REASON_RULE + {rule}, burst->frames[i].len);
		burst->verdicts[i] = rule_verdict({action}, {rule}, 0);
	}}\n}}\n"
        )
    };
    let c = format!(
        "#include \"core/env.h\"\n#include \"core/verdict.h\"\nconst uint32_t weir_abi_version = WEIR_ABI_VERSION;\n{}{}",
        chain("upstream"),
        chain("downstream")
    );
    let object = Clang::find().unwrap().native("hand", &c, Cpu::Native).unwrap().object;
    let program = ProgramShape {
        chains: vec!["upstream".into(), "downstream".into()],
        rules: POLICIES,
        ..ProgramShape::default()
    };
    NativeCode::load("hand", &object, &program, Bound::default()).unwrap()
}

fn loaded(code: &Arc<NativeCode>) -> Loaded<NativeCode> {
    Loaded::plain(code.clone(), [0, 1])
}

/// Counts packets by the rule that decided them, and bursts that more than one rule decided.
#[derive(Clone, Default)]
struct Ledger {
    by_rule: Arc<[AtomicU64; POLICIES]>,
    mixed: Arc<AtomicU64>,
    bursts: Arc<AtomicU64>,
}

impl Witness for Ledger {
    fn decided(&mut self, _: Side, verdicts: &[Verdict]) {
        self.bursts.fetch_add(1, Ordering::Relaxed);
        if verdicts.windows(2).any(|pair| pair[0] != pair[1]) {
            self.mixed.fetch_add(1, Ordering::Relaxed);
        }
        for verdict in verdicts {
            let rule = verdict.reason().rule_index().unwrap();
            self.by_rule[usize::from(rule)].fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn frames(count: usize) -> Arc<FrameSet> {
    Arc::new(FrameSet::new(Link::Ethernet, (0..count).map(|_| (&[0u8; 60][..], 64))))
}

fn sum<'a>(counted: impl Iterator<Item = &'a Vec<Counter>>) -> Counter {
    counted.flatten().fold(Counter::default(), |sum, counter| Counter {
        packets: sum.packets + counter.packets,
        bytes: sum.bytes + counter.bytes,
    })
}

fn ports(workers: &Workers, side: Side) -> PortReading {
    let ports = workers.ports().into_iter().filter(|port| port.role == side.into());
    ports.fold(PortReading::default(), |sum, port| sum.plus(port.reading))
}

#[test]
fn a_thousand_changes_lose_no_packet_and_mix_no_burst() {
    const CHANGES: usize = 1000;
    const LANES: usize = 2;
    let codes: Vec<_> = (0..POLICIES).map(policy).collect();
    let ledger = Ledger::default();
    let (lower, upper) = (frames(1000), frames(63));
    let lane = || -> Box<dyn Lane> {
        Box::new(MemoryLane::new([lower.clone(), upper.clone()], [u64::MAX; 2], ledger.clone()))
    };
    let workers = Workers::start((0..LANES).map(|_| lane()).collect(), &loaded(&codes[0])).unwrap();
    let mut counted: Vec<Counts> = Vec::new();
    for change in 1..=CHANGES {
        let before = ledger.bursts.load(Ordering::Relaxed);
        workers.activate(&loaded(&codes[change % POLICIES])).unwrap();
        let ended = workers.take_final();
        assert_eq!(ended.len(), 1, "the one before");
        counted.extend(ended.into_iter().map(|reading| reading.counts));
        // Sometimes the next change waits until the new policy has decided something.
        while change % 10 == 0 && ledger.bursts.load(Ordering::Relaxed) < before + 4 {
            std::thread::sleep(Duration::from_micros(20));
        }
    }
    workers.stop().unwrap();
    counted.push(workers.counts());

    assert_eq!(ledger.mixed.load(Ordering::Relaxed), 0);
    let [lower, upper] = Side::BOTH.map(|side| ports(&workers, side));
    let (received, sent) = (lower.rx_packets + upper.rx_packets, lower.tx_packets + upper.tx_packets);
    let by_rule = ledger.by_rule.each_ref().map(|packets| packets.load(Ordering::Relaxed));
    assert!(by_rule.iter().all(|&packets| packets > 0), "each policy was active: {by_rule:?}");
    assert_eq!(by_rule.iter().sum::<u64>(), received);
    assert_eq!(sent, by_rule[0] + by_rule[2]);
    let all = sum(counted.iter().flatten().flatten());
    assert_eq!((all.packets, all.bytes), (received, 64 * received));
    // Each activation counted only the decisions of its own policy.
    for (activation, counts) in counted.iter().enumerate() {
        let others = counts.iter().flatten().flat_map(|counters| counters.iter().enumerate());
        let own = usize::from(Reason::rule((activation % POLICIES) as u16).0);
        assert!(others.filter(|&(at, _)| at != own).all(|(_, counter)| counter.packets == 0));
    }
    // Directions have separate counters: only packets of the lower side are upstream.
    let upstream = sum(counted.iter().flatten().map(|[upstream, _]| upstream));
    assert_eq!(upstream.packets, lower.rx_packets);
}

/// Blocks in a burst while it is shut.
#[derive(Clone, Default)]
struct Gate(Arc<[AtomicBool; 2]>);

impl Gate {
    fn shut(&self) {
        self.0[0].store(true, Ordering::Relaxed);
        while !self.0[1].load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    fn open(&self) {
        self.0[0].store(false, Ordering::Relaxed);
    }
}

impl Witness for Gate {
    fn decided(&mut self, _: Side, _: &[Verdict]) {
        while self.0[0].load(Ordering::Relaxed) {
            self.0[1].store(true, Ordering::Relaxed);
            std::thread::sleep(Duration::from_micros(100));
        }
        self.0[1].store(false, Ordering::Relaxed);
    }
}

/// Two workers with policy 0. The second one blocks while its gate is shut.
fn workers_with_a_gate(gate: &Gate, timeout: Duration) -> (Workers, Vec<Arc<NativeCode>>) {
    let codes: Vec<_> = (0..2).map(|rule| policy(2 * rule)).collect();
    let lanes: [Box<dyn Lane>; 2] = [
        Box::new(MemoryLane::new([frames(64), frames(64)], [u64::MAX; 2], ())),
        Box::new(MemoryLane::new([frames(64), frames(64)], [u64::MAX; 2], gate.clone())),
    ];
    let workers = Workers::start(Vec::from(lanes), &loaded(&codes[0])).unwrap();
    (workers.with_timeouts(timeout, timeout), codes)
}

#[test]
fn a_worker_that_hangs_keeps_nobody_else_waiting_and_the_old_policy_comes_back() {
    let gate = Gate::default();
    let (workers, codes) = workers_with_a_gate(&gate, Duration::from_millis(500));
    let by_rule = |workers: &Workers, rule: usize| {
        let all = workers.readings();
        let readings = [all.active].into_iter().chain(all.others);
        let counter = usize::from(Reason::rule(rule as u16).0);
        readings.flat_map(|reading| reading.counts).map(|[up, down]| up[counter].packets + down[counter].packets).sum()
    };
    gate.shut();
    std::thread::scope(|scope| {
        let change = scope.spawn(|| workers.activate(&loaded(&codes[1])));
        // All counters can be read meanwhile. The first worker has changed, and both policies count.
        let mut both: u64 = 0;
        while both == 0 {
            both = by_rule(&workers, 2);
            assert_eq!((workers.workers(), workers.has_failed(), workers.ports().len()), (2, false, 4));
        }
        let strays: Vec<String> = workers.strays().into_iter().map(|stray| stray.part).collect();
        assert!(strays.is_empty() || strays == ["worker 0"], "{strays:?}");
        let error = change.join().unwrap().expect_err("it hangs");
        assert_eq!(error.to_string(), "worker 1 does not answer");
    });
    // The first worker has changed back. The other one never changed.
    assert!(workers.strays().is_empty());
    assert!(Arc::ptr_eq(&workers.readings().active.code, &codes[0]));
    let (new, old): (u64, u64) = (by_rule(&workers, 2), by_rule(&workers, 0));
    while by_rule(&workers, 0) <= old {
        std::thread::sleep(Duration::from_micros(100));
    }
    assert_eq!(by_rule(&workers, 2), new);
    // After it continues, the worker uses the same policy as all others, and can change again.
    gate.open();
    workers.activate(&loaded(&codes[1])).unwrap();
    workers.activate(&loaded(&codes[0])).unwrap();
    workers.stop().unwrap();
    let received: u64 = workers.ports().iter().map(|port| port.reading.rx_packets).sum();
    let ended = workers.take_final();
    assert_eq!(ended.len(), 4, "two of them failed, and were restored");
    let all = ended.into_iter().chain([workers.readings().active]).map(|reading| reading.counts);
    let all: Vec<Counts> = all.collect();
    assert_eq!(sum(all.iter().flatten().flatten()).packets, received);
}

#[test]
fn the_end_waits_neither_for_a_worker_that_hangs_nor_for_a_change() {
    let gate = Gate::default();
    let (workers, codes) = workers_with_a_gate(&gate, Duration::from_secs(1000));
    let workers = workers.with_timeouts(Duration::from_secs(1000), Duration::from_millis(100));
    gate.shut();
    std::thread::scope(|scope| {
        let change = scope.spawn(|| workers.activate(&loaded(&codes[1])));
        let given = || !workers.readings().others.is_empty();
        while !given() {
            std::thread::sleep(Duration::from_micros(100));
        }
        assert_eq!(workers.stop().expect_err("it hangs").to_string(), "worker 1 does not answer");
        assert_eq!(change.join().unwrap().expect_err("it ends").to_string(), "weir is stopping");
    });
    gate.open();
}

#[test]
fn counters_are_read_while_workers_count() {
    let lane = MemoryLane::new([frames(64), frames(1)], [100_000, 0], ());
    let workers = Workers::start(vec![Box::new(lane)], &loaded(&policy(2))).unwrap();
    let read = |workers: &Workers| workers.counts()[0][0][usize::from(Reason::rule(2).0)].packets;
    let mut last = 0;
    while last < 100_000 {
        let now = read(&workers);
        assert!(now >= last, "{now} after {last}");
        last = now;
    }
    assert!(!workers.has_failed());
    assert_eq!(ports(&workers, Side::Upper).tx_packets, 100_000);
    workers.stop().unwrap();
    assert_eq!(read(&workers), 100_000);
}

#[test]
fn a_full_sink_drops_by_name_and_in_full() {
    const ROOM: u64 = 1234;
    const DOWN: u64 = 50_000;
    let room = Arc::new(AtomicU64::new(ROOM));
    let lane = MemoryLane::new([frames(64), frames(7)], [u64::MAX, DOWN], ()).with_room(Side::Upper, room.clone());
    let workers = Workers::start(vec![Box::new(lane)], &loaded(&policy(2))).unwrap();
    let wait_for = |workers: &Workers, sent: u64| {
        let done = |port: PortReading| port.tx_packets == sent && port.tx_full > 0 && port.rx_packets == DOWN;
        while !done(ports(workers, Side::Upper)) {
            assert!(!workers.has_failed());
            std::thread::sleep(Duration::from_micros(100));
        }
    };
    wait_for(&workers, ROOM);
    // As soon as there is room, packets are sent again.
    room.store(10, Ordering::Relaxed);
    wait_for(&workers, ROOM + 10);
    workers.stop().unwrap();
    let [lower, upper] = Side::BOTH.map(|side| ports(&workers, side));
    assert_eq!((lower.tx_packets, lower.tx_full), (DOWN, 0));
    assert_eq!((upper.tx_packets, upper.tx_full), (ROOM + 10, lower.rx_packets - ROOM - 10));
    assert_eq!(sum(workers.counts().iter().flatten()).packets, lower.rx_packets + DOWN);
}
