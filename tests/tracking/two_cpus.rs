//! Two CPUs that process both sides of a flow at the same time agree with one of the two serial orders, which the
//! interpreter computes. `WEIR_TWO_CPUS_ROUNDS=n` sets the number of rounds.

#[path = "two_cpus_proxied.rs"]
mod proxied;

use crate::conntrack_flows::packets::ip;
use crate::conntrack_flows::{ACK, Dice, FIN, RST, SYN, Segment};
use crate::engines::{self, load};
use std::collections::HashMap;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use weir_abi::Verdict;
use weir_abi::flow::{Flow, FlowKey, TICK_SHIFT};
use weir_engine::Filter;
use weir_engine::cpu::{Cpu, pin_to};
use weir_engine::frame_set::FrameSet;
use weir_engine::native::Sharing;
use weir_loading::Policy;
use weir_loading::eval::EvalFilter;
use weir_test_support::{Link, Packet};

/// Number of flows of a round. Both CPUs go through them in the same order.
const FLOWS: usize = 32;
/// Number of rounds of each engine.
const ROUNDS: usize = 200;
/// Longest time that one CPU begins later than the other one.
const SKEW_NS: u64 = 400;
/// How long a CPU waits for the other one.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// The two packets are concurrent if the middles of their runs are less than this apart: a program needs longer.
const CONCURRENT_NS: i128 = 150;
const TIME_NS: u64 = 1 << 40;
/// Rounds in which the time advances, and packets of each CPU in one.
const ROUNDS_OF_TIMES: usize = 20;
const PACKETS_OF_TIMES: usize = 2000;

/// A policy, and what happens to its flows.
struct Scene {
    policy: &'static str,
    /// Number of kinds of meetings.
    kinds: usize,
    /// A meeting of a kind on a flow of its own.
    meeting: fn(usize, u32, &mut Dice) -> Meeting,
}

const TRACKED: Scene = Scene { policy: POLICY, kinds: KINDS, meeting };

const POLICY: &str = "tracking { size 1024; embryonic 100%; invalid drop }
upstream {
  ct state new accept
  ct state established accept
  drop
}
downstream {
  ct state new accept
  ct state established accept
  drop
}
";

/// Two packets that meet.
struct Meeting {
    name: &'static str,
    /// What happens before.
    before: Vec<Packet>,
    /// The packet of each CPU.
    meet: [Packet; 2],
    /// A packet of each side afterwards, which shows what lies beside the flow.
    after: Option<[Packet; 2]>,
}

/// A connection whose two sides send segments. `next` are their sequence numbers after the handshake.
struct Ends {
    flow: u32,
    next: [u32; 2],
}

impl Ends {
    fn segment(&self, from: usize, flags: u8, sent: u32, acked: u32, payload: u16) -> Packet {
        let (seq, ack) = (self.next[from].wrapping_add(sent), self.next[1 - from].wrapping_add(acked));
        let ack = if flags & ACK == 0 { 0 } else { ack };
        let options = if flags & SYN == 0 { vec![] } else { vec![2, 4, 5, 180, 1, 3, 3, 2] };
        let segment = Segment { from, flags, seq, ack, window: 8000, options, payload };
        raw(segment.packet(self.flow))
    }

    fn syn(&self, from: usize, seq_before: u32) -> Packet {
        self.segment(from, SYN, 0_u32.wrapping_sub(seq_before), 0, 0)
    }

    fn syn_ack(&self, from: usize) -> Packet {
        self.segment(from, SYN | ACK, u32::MAX, 0, 0)
    }

    fn ack(&self, from: usize, sent: u32, acked: u32) -> Packet {
        self.segment(from, ACK, sent, acked, 0)
    }

    fn data(&self, from: usize, sent: u32, acked: u32, payload: u16) -> Packet {
        self.segment(from, ACK, sent, acked, payload)
    }

    fn fin(&self, from: usize, sent: u32, acked: u32) -> Packet {
        self.segment(from, FIN | ACK, sent, acked, 0)
    }

    /// A datagram of UDP with the addresses and ports of the flow.
    fn datagram(&self, from: usize) -> Packet {
        let ports = [1024 + (self.flow & 0xff) as u16, 80];
        let ports = [ports[from], ports[1 - from]].map(u16::to_be_bytes).concat();
        raw(ip(self.flow, [from, 1 - from], 17, &[&ports[..], &[0, 8, 0, 0]].concat()))
    }
}

fn raw(bytes: Vec<u8>) -> Packet {
    let wire = bytes.len() as u32;
    Packet { bytes, wire, link: Link::RawIp, time_ns: TIME_NS }
}

/// Number of kinds of [`meeting`].
const KINDS: usize = 24;

/// A meeting on a flow of its own.
fn meeting(kind: usize, flow: u32, dice: &mut Dice) -> Meeting {
    // Some numbers wrap around.
    let mut number = || if dice.one_in(2) { 0_u32.wrapping_sub(dice.below(600) as u32) } else { dice.next() as u32 };
    let ends = Ends { flow, next: [number(), number()] };
    let e = &ends;
    let syn = || vec![e.syn(0, 1)];
    let answered = || vec![e.syn(0, 1), e.syn_ack(1)];
    let open = || vec![e.syn(0, 1), e.syn_ack(1), e.ack(0, 0, 0)];
    let with = |more: Vec<Packet>| [open(), more].concat();
    let (name, before, meet) = match kind {
        0 => ("data of both sides", open(), [e.data(0, 0, 0, 100), e.data(1, 0, 0, 300)]),
        1 => (
            "data and its acknowledgement",
            with(vec![e.data(0, 0, 0, 500)]),
            [e.data(0, 500, 0, 500), e.ack(1, 0, 500)],
        ),
        2 => (
            "acknowledgements of both sides",
            with(vec![e.data(0, 0, 0, 200), e.data(1, 0, 0, 700)]),
            [e.ack(0, 200, 700), e.ack(1, 700, 200)],
        ),
        3 => ("FINs of both sides", open(), [e.fin(0, 0, 0), e.fin(1, 0, 0)]),
        4 => ("a FIN and data", open(), [e.fin(0, 0, 0), e.data(1, 0, 0, 10)]),
        5 => ("a FIN and the ACK of data", with(vec![e.data(0, 0, 0, 9)]), [e.fin(0, 9, 0), e.ack(1, 0, 9)]),
        6 => ("the last ACKs", with(vec![e.fin(0, 0, 0), e.fin(1, 0, 0)]), [e.ack(0, 1, 1), e.ack(1, 1, 1)]),
        7 => ("a second FIN and the ACK of the first", with(vec![e.fin(0, 0, 0)]), [e.ack(0, 1, 0), e.fin(1, 0, 1)]),
        8 => ("a reset and data", open(), [e.segment(0, RST, 0, 0, 0), e.data(1, 0, 0, 40)]),
        9 => ("a reset in the window and data", open(), [e.segment(0, RST, 5, 0, 0), e.data(1, 0, 0, 40)]),
        10 => ("resets of both sides", open(), [e.segment(0, RST, 0, 0, 0), e.segment(1, RST | ACK, 0, 0, 0)]),
        11 => ("a SYN sent again and its answer", syn(), [e.syn(0, 1), e.syn_ack(1)]),
        12 => ("another SYN and the answer to the first", syn(), [e.syn(0, 77), e.syn_ack(1)]),
        13 => ("SYNs of both sides", syn(), [e.syn(0, 1), e.syn(1, 1)]),
        14 => ("an answer sent again and its ACK", answered(), [e.ack(0, 0, 0), e.syn_ack(1)]),
        15 => ("the end of the handshake and data", answered(), [e.ack(0, 0, 0), e.data(1, 0, 0, 20)]),
        16 => ("a refusal and a SYN sent again", syn(), [e.syn(0, 1), e.segment(1, RST | ACK, 0, 0, 0)]),
        17 => ("a SYN in a connection and data", open(), [e.syn(0, 5000), e.data(1, 0, 0, 20)]),
        18 => (
            "a new connection and an old ACK",
            with(vec![e.fin(0, 0, 0), e.fin(1, 0, 1), e.ack(0, 1, 1)]),
            [e.syn(0, 0_u32.wrapping_sub(9000)), e.ack(1, 1, 1)],
        ),
        19 => ("the same data twice", open(), [e.data(0, 0, 0, 100), e.data(0, 0, 0, 100)]),
        20 => ("both open", vec![], [e.syn(0, 1), e.syn(1, 1)]),
        21 => ("the same SYN twice", vec![], [e.syn(0, 1), e.syn(0, 1)]),
        22 => ("datagrams of both sides", vec![], [e.datagram(0), e.datagram(1)]),
        _ => ("a datagram and its answer", vec![e.datagram(0)], [e.datagram(0), e.datagram(1)]),
    };
    Meeting { name, before, meet, after: None }
}

/// A verdict, and what leaves in place of the packet.
type Decided = (Verdict, Option<Vec<u8>>);

/// What becomes of both packets, of those afterwards, and of the flow.
#[derive(PartialEq)]
struct Outcome {
    met: [Decided; 2],
    after: Vec<Decided>,
    flow: Option<Flow>,
}

/// Packets that a CPU gets at once: sets of one direction, with the number of its chain.
type Batch = Vec<(usize, FrameSet)>;

fn decide(filter: &mut dyn Filter, batches: &mut [Batch]) -> Vec<Decided> {
    let mut decided = Vec::new();
    let sets = batches.iter().flatten().flat_map(|(chain, set)| set.bursts().map(|burst| (*chain, burst)));
    for (chain, burst) in sets {
        let mut words = [Verdict(u32::MAX); weir_abi::BURST_MAX];
        let words = &mut words[..burst.len()];
        filter.decide(chain, &burst, words).expect("the engine decides");
        let first = decided.len();
        decided.extend(words.iter().map(|&verdict| (verdict, None)));
        filter.rewritten(&burst, words, &mut |index, bytes, _| decided[first + index].1 = Some(bytes.to_vec()));
    }
    decided
}

/// Decides what happens before meetings. Packets of one flow stay in order.
fn prepare(filter: &mut dyn Filter, meetings: &[Meeting]) {
    decide(filter, &mut batches(meetings.iter().flat_map(|meeting| &meeting.before).cloned(), FLOWS));
}

fn flows(filter: &dyn Filter) -> HashMap<FlowKey, Flow> {
    let mut flows = HashMap::new();
    filter.flows(&mut |key, flow| _ = flows.insert(*key, *flow));
    flows
}

/// The key of a packet's flow.
fn key(bytes: &[u8]) -> FlowKey {
    let is_ipv6 = bytes[0] >> 4 == 6;
    let (length, addresses, protocol) = if is_ipv6 { (16, 8, bytes[6]) } else { (4, 12, bytes[9]) };
    let end = |nth: usize| {
        let (address, port) = (addresses + nth * length, addresses + 2 * length + 2 * nth);
        let address = bytes[address..address + length].iter().fold(0, |number, &byte| number << 8 | u128::from(byte));
        (address, u16::from_be_bytes([bytes[port], bytes[port + 1]]))
    };
    FlowKey::of(engines::arrival(bytes), end(0), end(1), protocol, [0; 2], is_ipv6)
}

/// The packets of a CPU, `size` in each batch.
fn batches(packets: impl Iterator<Item = Packet>, size: usize) -> Vec<Batch> {
    let packets: Vec<Packet> = packets.collect();
    let chain = |packet: &Packet| engines::arrival(&packet.bytes).side();
    let batch = |packets: &[Packet]| {
        let runs = packets.chunk_by(|one, next| chain(one) == chain(next));
        runs.flat_map(|run| engines::frame_sets(run).into_iter().map(|set| (chain(&run[0]), set))).collect()
    };
    packets.chunks(size).map(batch).collect()
}

/// Decides what comes after meetings, and describes each of them.
fn outcomes(meetings: &[Meeting], met: [Vec<Decided>; 2], filter: &mut dyn Filter) -> Vec<Outcome> {
    let flows = flows(filter);
    let [one, other] = met;
    let outcome = |(meeting, met): (&Meeting, (Decided, Decided))| {
        let mut after = vec![];
        for packet in meeting.after.iter().flatten() {
            after.extend(decide(filter, &mut batches(std::iter::once(packet.clone()), 1)));
        }
        Outcome { met: met.into(), after, flow: flows.get(&key(&meeting.meet[0].bytes)).copied() }
    };
    meetings.iter().zip(one.into_iter().zip(other)).map(outcome).collect()
}

/// The outcomes if the CPU `first` has decided all its packets before the other one.
fn serial(policy: &Policy, meetings: &[Meeting], first: usize) -> Vec<Outcome> {
    let mut filter = EvalFilter::new(&policy.program, policy.answers());
    prepare(&mut filter, meetings);
    let mut met = [vec![], vec![]];
    for cpu in [first, 1 - first] {
        let packets = meetings.iter().map(|meeting| meeting.meet[cpu].clone());
        met[cpu] = decide(&mut filter, &mut batches(packets, FLOWS));
    }
    outcomes(meetings, met, &mut filter)
}

/// What many rounds have shown.
#[derive(Default, Debug)]
struct Seen {
    meetings: usize,
    /// Meetings whose runs overlapped, system calls included.
    overlapped: usize,
    /// Meetings whose packets were decided at the same time.
    concurrent: usize,
    /// Meetings whose outcomes show the order, and meetings in which the second CPU was first.
    ordered: usize,
    second_first: usize,
    /// By name, outcomes of no serial order.
    wrong: HashMap<&'static str, (usize, String)>,
}

/// What a CPU decided, and when it decided each burst.
type Ran = (Vec<Decided>, Vec<(Duration, Duration)>);

/// When two CPUs begin a burst: when both are ready, one of them a bit later.
struct Start {
    ready: AtomicUsize,
    late: usize,
    skew: Duration,
}

impl Start {
    fn random(dice: &mut Dice) -> Self {
        let (late, skew) = (dice.below(2) as usize, Duration::from_nanos(dice.below(SKEW_NS)));
        Start { ready: AtomicUsize::new(0), late, skew }
    }

    fn wait(&self, cpu: usize) {
        self.ready.fetch_add(1, Ordering::AcqRel);
        let start = Instant::now();
        while self.ready.load(Ordering::Acquire) < 2 {
            assert!(start.elapsed() < LONGEST_WAIT, "the other CPU has failed");
            std::hint::spin_loop();
        }
        let start = Instant::now();
        while cpu == self.late && start.elapsed() < self.skew {
            std::hint::spin_loop();
        }
    }
}

/// Runs the packets of one CPU.
fn run(filter: &mut dyn Filter, cpu: usize, batches: &mut [Batch], starts: &[Start], begin: Instant) -> Ran {
    pin_to(cpu).expect("there are two CPUs");
    let (mut verdicts, mut times) = (Vec::with_capacity(FLOWS), Vec::with_capacity(FLOWS));
    for (batch, start) in batches.iter_mut().zip(starts) {
        start.wait(cpu);
        let since = begin.elapsed();
        verdicts.extend(decide(filter, std::slice::from_mut(batch)));
        times.push((since, begin.elapsed()));
    }
    (verdicts, times)
}

/// Whether an outcome is possible in a serial order. Two packets that open a flow at the same time are both `new`.
fn agrees(policy: &Policy, meeting: &Meeting, found: &Outcome, serial: &Outcome) -> bool {
    let opens = meeting.before.is_empty();
    let same = |(found, serial): (&Decided, &Decided)| {
        found == serial || opens && found.0.action() == serial.0.action() && has_state(policy, found.0, "new")
    };
    let met = found.met.iter().zip(&serial.met).all(same);
    met && (&found.after, &found.flow) == (&serial.after, &serial.flow)
}

/// Whether a verdict comes from the rule for a state.
fn has_state(policy: &Policy, verdict: Verdict, state: &str) -> bool {
    let rule = verdict.reason().rule_index().map(|index| &policy.program.rules[usize::from(index)]);
    rule.is_some_and(|rule| rule.text.contains(state))
}

/// One round on two CPUs. `size` is the number of packets that a CPU gets at once.
fn round(
    (scene, policy): (&Scene, &Policy),
    filters: &mut [Box<dyn Filter + Send>; 2],
    dice: &mut Dice,
    size: usize,
    seen: &mut Seen,
) {
    let meeting = |nth| (scene.meeting)(dice.below(scene.kinds as u64) as usize, nth as u32, &mut *dice);
    let meetings: Vec<Meeting> = (0..FLOWS).map(meeting).collect();
    prepare(&mut *filters[0], &meetings);
    let packets = |cpu: usize| batches(meetings.iter().map(|meeting| meeting.meet[cpu].clone()), size);
    let (mut frames, begin) = ([packets(0), packets(1)], Instant::now());
    let starts: Vec<Start> = frames[0].iter().map(|_| Start::random(dice)).collect();
    let ([one, other], [frames_one, frames_other], starts) = (&mut *filters, &mut frames, &starts);
    let [(met_one, times_one), (met_other, times_other)]: [Ran; 2] = std::thread::scope(|scope| {
        let first = scope.spawn(move || run(&mut **one, 0, frames_one, starts, begin));
        let second = scope.spawn(move || run(&mut **other, 1, frames_other, starts, begin));
        [first, second].map(|thread| thread.join().expect("a CPU decides"))
    });
    let found = outcomes(&meetings, [met_one, met_other], &mut *filters[0]);
    let serial = [0, 1].map(|first| serial(policy, &meetings, first));
    for ([a, b], count) in times_one.iter().zip(&times_other).map(|(a, b)| ([*a, *b], size)) {
        seen.overlapped += if a.0 < b.1 && b.0 < a.1 { count } else { 0 };
        let middle = |(since, until): (Duration, Duration)| (since + until).as_nanos() as i128 / 2;
        seen.concurrent += if (middle(a) - middle(b)).abs() < CONCURRENT_NS { count } else { 0 };
    }
    for (at, meeting) in meetings.iter().enumerate() {
        let orders = [0, 1].map(|first| agrees(policy, meeting, &found[at], &serial[first][at]));
        seen.meetings += 1;
        if serial[0][at] != serial[1][at] {
            seen.ordered += 1;
            seen.second_first += usize::from(orders[1]);
        }
        if orders == [false; 2] {
            let shown = |Outcome { met, after, flow }: &Outcome| {
                let verdict = |(verdict, bytes): &Decided| {
                    format!("{} {bytes:02x?}", engines::verdict(&policy.program, *verdict))
                };
                let [met, after] = [&met[..], after].map(|decided| decided.iter().map(verdict).collect::<Vec<_>>());
                format!("{met:?}, then {after:?}, {flow:?}")
            };
            let [one, other] = [0, 1].map(|first| shown(&serial[first][at]));
            let text = format!("{}\n  first CPU first: {one}\n  second CPU first: {other}", shown(&found[at]));
            seen.wrong.entry(meeting.name).or_insert((0, text)).0 += 1;
        }
    }
}

fn policy(scene: &Scene) -> Policy {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("two-cpus.weir");
    std::fs::write(&path, scene.policy).expect("it can be written");
    load(&path).unwrap_or_else(|error| panic!("{error}"))
}

fn rounds() -> usize {
    let wanted = std::env::var("WEIR_TWO_CPUS_ROUNDS").ok();
    wanted.map_or(ROUNDS, |text| text.parse().expect("WEIR_TWO_CPUS_ROUNDS is a number"))
}

/// Runs all rounds. `sizes` are the numbers of packets that a CPU gets at once.
fn agree(
    (scene, policy): (&Scene, &Policy),
    mut filters: [Box<dyn Filter + Send>; 2],
    sizes: &[usize],
    table: &weir_state::flows::FlowTable,
) {
    let (mut dice, mut seen) = (Dice::new(1), Seen::default());
    for nth in 0..rounds() {
        table.clear();
        round((scene, policy), &mut filters, &mut dice, sizes[nth % sizes.len()], &mut seen);
        table.verify().expect("the invariants of the table hold");
    }
    println!("{}: {seen:#?}", filters[0].name());
    let wrong: Vec<String> =
        seen.wrong.iter().map(|(name, (count, text))| format!("{name}: {count} times {text}")).collect();
    assert!(wrong.is_empty(), "of {} meetings no serial order gives:\n{}", seen.meetings, wrong.join("\n"));
    assert!(seen.overlapped > seen.meetings / 10, "few meetings overlapped: {seen:?}");
}

/// Both CPUs have packets of one connection, each a tick later than the one before. So one CPU often has the time
/// before the other one has written a later time to the flow.
fn stay_established(
    (_, policy): (&Scene, &Policy),
    mut filters: [Box<dyn Filter + Send>; 2],
    sizes: &[usize],
    table: &weir_state::flows::FlowTable,
) {
    let ends = Ends { flow: 0, next: [1000, 5000] };
    let open = [ends.syn(0, 1), ends.syn_ack(1), ends.ack(0, 0, 0)];
    for nth in 0..ROUNDS_OF_TIMES {
        table.clear();
        decide(&mut *filters[0], &mut batches(open.iter().cloned(), FLOWS));
        let packets = |cpu: usize| {
            let at = |number: usize| TIME_NS + (((2 * number + cpu) as u64) << TICK_SHIFT);
            let packets = (0..PACKETS_OF_TIMES).map(|number| Packet { time_ns: at(number), ..ends.ack(cpu, 0, 0) });
            batches(packets, sizes[nth % sizes.len()])
        };
        let (mut frames, ready) = ([packets(0), packets(1)], Barrier::new(2));
        let ([one, other], [frames_one, frames_other], ready) = (&mut filters, &mut frames, &ready);
        let run = |filter: &mut dyn Filter, cpu: usize, batches: &mut [Batch]| {
            pin_to(cpu).expect("there are two CPUs");
            ready.wait();
            decide(filter, batches)
        };
        let verdicts = std::thread::scope(|scope| {
            let first = scope.spawn(|| run(&mut **one, 0, frames_one));
            let second = scope.spawn(|| run(&mut **other, 1, frames_other));
            [first, second].map(|thread| thread.join().expect("a CPU decides")).concat()
        });
        let lost = verdicts.iter().find(|(verdict, _)| !has_state(policy, *verdict, "established"));
        assert_eq!(lost, None, "round {nth}, {}", filters[0].name());
        table.verify().expect("the invariants of the table hold");
    }
}

/// What two CPUs run, and with how many packets at once.
type Run = fn((&Scene, &Policy), [Box<dyn Filter + Send>; 2], &[usize], &weir_state::flows::FlowTable);

fn in_kernel(scene: &Scene, run: Run) {
    let policy = policy(scene);
    let data = policy.bind_kernel_replay().expect("there is memory");
    let filter = || policy.in_kernel(&data, |compiled| compiled.filter()).expect("the kernel loads it");
    let filters: [Box<dyn Filter + Send>; 2] = [Box::new(filter()), Box::new(filter())];
    run((scene, &policy), filters, &[1], data.state.flows.table().expect("it tracks"));
}

fn with_workers(scene: &Scene, run: Run) {
    let policy = policy(scene);
    let data = policy.bind(None).expect("there is memory");
    let table = data.state.flows.table().expect("it tracks").clone();
    let code = policy.compile_native(Cpu::Native).and_then(|compiled| compiled.load(data)).expect("it compiles");
    let filters: [Box<dyn Filter + Send>; 2] =
        [0, 1].map(|worker| -> Box<dyn Filter + Send> { Box::new(code.filter(Sharing::Shared, worker)) });
    run((scene, &policy), filters, &[1, 1, 4, FLOWS], &table);
}

#[test]
fn two_cpus_in_the_kernel_agree_with_a_serial_order() {
    in_kernel(&TRACKED, agree);
}

#[test]
fn two_workers_agree_with_a_serial_order() {
    with_workers(&TRACKED, agree);
}

#[test]
fn two_cpus_in_the_kernel_lose_no_flow_that_the_other_one_has_seen_later() {
    in_kernel(&TRACKED, stay_established);
}

#[test]
fn two_workers_lose_no_flow_that_the_other_one_has_seen_later() {
    with_workers(&TRACKED, stay_established);
}
