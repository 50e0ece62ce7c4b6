//! Policies that change under workers: no packet lost, none decided by two. Needs clang.

#![allow(clippy::unwrap_used)] // helpers of tests are tests
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use weir_abi::{Counter, Link, Reason, Verdict};
use weir_engine::clang::Clang;
use weir_engine::cpu::Cpu;
use weir_engine::live::memory::{MemoryLane, Witness};
use weir_engine::live::{Activation, Lane, Loaded, PortReading, Side, Workers};
use weir_engine::memory::FrameSet;
use weir_engine::{NativeCode, Program};

/// Rules of the policies here: policy `k` decides every packet by rule `k`, drops if `k` is odd, and waits a little in the middle of each burst.
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
        "#include \"env.h\"\n#include \"verdict.h\"\nconst uint32_t weir_abi_version = WEIR_ABI_VERSION;\n{}{}",
        chain("upstream"),
        chain("downstream")
    );
    let object = Clang::find().unwrap().native("hand", &c, Cpu::Native).unwrap().object;
    let program = Program { chains: vec!["upstream".into(), "downstream".into()], rules: POLICIES, tables: vec![] };
    NativeCode::load("hand", &object, &program, vec![]).unwrap()
}

fn loaded(code: &Arc<NativeCode>) -> Loaded {
    Loaded { code: code.clone(), chains: [0, 1] }
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

fn sum(activations: &[Activation]) -> Counter {
    let blocks = activations.iter().flat_map(|activation| activation.counters.iter().flatten());
    blocks.flat_map(|block| block.read()).fold(Counter::default(), |sum, counter| Counter {
        packets: sum.packets + counter.packets,
        bytes: sum.bytes + counter.bytes,
    })
}

fn ports(workers: &Workers, side: Side) -> PortReading {
    let ports = workers.ports().iter().flatten().filter(|port| port.role == side.into());
    ports.fold(PortReading::default(), |sum, port| sum.plus(port.read()))
}

#[test]
fn a_thousand_changes_lose_no_packet_and_mix_no_burst() {
    const CHANGES: usize = 1000;
    const LANES: usize = 2;
    let codes: Vec<_> = (0..POLICIES).map(policy).collect();
    let ledger = Ledger::default();
    let endless = || [Arc::new(AtomicU64::new(u64::MAX)), Arc::new(AtomicU64::new(u64::MAX))];
    let (lower, upper) = (frames(1000), frames(63));
    let lane =
        || -> Box<dyn Lane> { Box::new(MemoryLane::new([lower.clone(), upper.clone()], endless(), ledger.clone())) };
    let (mut workers, first) = Workers::start((0..LANES).map(|_| lane()).collect(), &loaded(&codes[0])).unwrap();
    let mut activations = vec![first];
    for change in 1..=CHANGES {
        let before = ledger.bursts.load(Ordering::Relaxed);
        activations.push(workers.switch(&loaded(&codes[change % POLICIES])).unwrap());
        // What was switched to decides something before the next comes, now and then.
        while change % 10 == 0 && ledger.bursts.load(Ordering::Relaxed) < before + 4 {
            std::thread::sleep(Duration::from_micros(20));
        }
    }
    let numbers: Vec<u64> = activations.iter().map(|activation| activation.number).collect();
    assert_eq!(numbers, (1..=1 + CHANGES as u64).collect::<Vec<_>>());
    let shared = workers.ports().to_vec();
    workers.stop().unwrap();

    assert_eq!(ledger.mixed.load(Ordering::Relaxed), 0);
    let [lower, upper] = Side::BOTH.map(|side| {
        let ports = shared.iter().flatten().filter(|port| port.role == side.into());
        ports.fold(PortReading::default(), |sum, port| sum.plus(port.read()))
    });
    let (received, sent) = (lower.rx_packets + upper.rx_packets, lower.tx_packets + upper.tx_packets);
    let by_rule = ledger.by_rule.each_ref().map(|packets| packets.load(Ordering::Relaxed));
    assert!(by_rule.iter().all(|&packets| packets > 0), "each policy was in office: {by_rule:?}");
    assert_eq!(by_rule.iter().sum::<u64>(), received);
    assert_eq!(sent, by_rule[0] + by_rule[2]);
    let counted = sum(&activations);
    assert_eq!((counted.packets, counted.bytes), (received, 64 * received));
    // Directions are counted apart: only the lower side's packets are upstream.
    let upstream: u64 = activations
        .iter()
        .flat_map(|activation| &activation.counters)
        .flat_map(|[upstream, _]| upstream.read())
        .map(|counter| counter.packets)
        .sum();
    assert_eq!(upstream, lower.rx_packets);
}

#[test]
fn counters_are_read_while_workers_count() {
    let left = [Arc::new(AtomicU64::new(100_000)), Arc::new(AtomicU64::new(0))];
    let lane = MemoryLane::new([frames(64), frames(1)], left.clone(), ());
    let (mut workers, activation) = Workers::start(vec![Box::new(lane)], &loaded(&policy(2))).unwrap();
    let read = || activation.counters[0][0].read()[usize::from(Reason::rule(2).0)].packets;
    let mut last = 0;
    while last < 100_000 {
        let now = read();
        assert!(now >= last, "{now} after {last}");
        last = now;
    }
    assert!(!workers.has_failed());
    assert_eq!(ports(&workers, Side::Upper).tx_packets, 100_000);
    workers.stop().unwrap();
    assert_eq!(read(), 100_000);
}

#[test]
fn a_full_sink_drops_by_name_and_in_full() {
    const SENT: u64 = 100_000;
    const ROOM: u64 = 1234;
    let left = [SENT, SENT / 2].map(|left| Arc::new(AtomicU64::new(left)));
    let room = Arc::new(AtomicU64::new(ROOM));
    let lane = MemoryLane::new([frames(64), frames(7)], left.clone(), ()).with_room(Side::Upper, room.clone());
    let (mut workers, activation) = Workers::start(vec![Box::new(lane)], &loaded(&policy(2))).unwrap();
    let wait_for = |sent: u64| {
        while ports(&workers, Side::Upper).tx_packets < sent || left.iter().any(|left| left.load(Ordering::Relaxed) > 0)
        {
            assert!(!workers.has_failed());
            std::thread::sleep(Duration::from_micros(100));
        }
    };
    wait_for(ROOM);
    // As soon as there is room again, packets go out again.
    room.store(10, Ordering::Relaxed);
    left[0].store(100, Ordering::Relaxed);
    wait_for(ROOM + 10);
    let shared = workers.ports().to_vec();
    workers.stop().unwrap();
    let read = |side: Side| shared[0].iter().find(|port| port.role == side.into()).unwrap().read();
    let (lower, upper) = (read(Side::Lower), read(Side::Upper));
    assert_eq!((lower.rx_packets, lower.tx_packets, lower.tx_full), (SENT + 100, SENT / 2, 0));
    assert_eq!((upper.rx_packets, upper.tx_packets, upper.tx_full), (SENT / 2, ROOM + 10, SENT + 100 - ROOM - 10));
    assert_eq!(sum(&[activation]).packets, SENT + 100 + SENT / 2);
}
