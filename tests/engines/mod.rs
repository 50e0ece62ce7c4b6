//! Runs one policy in every engine on the same packets.
#![allow(dead_code, reason = "each test uses its part")]

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use weir_abi::entry::{age, hit_time};
use weir_abi::flow::{self, Arrival, Exchanges, Flow, FlowKey, FlowState, TICK_SHIFT};
use weir_abi::packet::L4;
use weir_abi::slot::SlotCounter;
use weir_abi::{AdditionCounts, BURST_MAX, Counter, EntryCounts, Link, Reason, Verdict};
use weir_engine::clang::Extras;
use weir_engine::cpu::Cpu;
use weir_engine::frame_set::FrameSet;
use weir_engine::{Bound, Controller, Filter, NativeCode, NativeFilter, XdpFilter};
use weir_loading::eval::EvalFilter;
use weir_loading::{LoadError, Policy, PolicyFile};
use weir_policy::capability::{Engine, unsupported};
use weir_policy::diag::render::{Style, render};
use weir_policy::ir::Program;
use weir_policy::ir::eval::packet::{Frame, parse};
use weir_policy::pass::choose_layouts::CostModel;
use weir_state::features::DirectionSnapshot;
use weir_state::flows::FlowTable;
use weir_state::limits::LimitCount;
use weir_test_support as support;

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The file beside a policy with the rules of its slots: lines such as `attacks udp sport 53 drop`.
pub const SLOT_RULES: &str = "slots.txt";

/// Loads a policy, with the rules of its slots if there is a file of them. Errors have the form that its author would
/// see.
pub fn load(path: &Path) -> Result<Policy, String> {
    let rejected = match PolicyFile::open(path).and_then(|file| file.check(&CostModel::default())) {
        Ok(mut policy) => {
            let rules = std::fs::read_to_string(path.with_file_name(SLOT_RULES)).unwrap_or_default();
            for line in rules.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
                let (slot, rule) = line.split_once(' ').ok_or("a line of slots.txt is a slot and a rule")?;
                policy.add_slot_rule(slot, rule)?;
            }
            return Ok(policy);
        }
        Err(LoadError::Mistakes(rejected)) => rejected,
        Err(error) => return Err(error.to_string()),
    };
    let messages = render(&rejected.diagnostics, &rejected.sources, Style::Plain);
    Err(format!("{messages}\n{}", rejected.lists.join("\n")))
}

/// The side from which tests let an IP packet arrive: of two ends, the one with the smaller address and port is
/// outside, so answers come from the other side than their questions. An ICMP error goes back to the sender of the
/// packet that it quotes.
pub fn arrival(ip: &[u8]) -> Arrival {
    let frame = Frame { bytes: ip, wire_len: ip.len() as u32, link: Link::RawIp, time_ns: 0 };
    let (packet, _) = parse(frame);
    let quoted = match (packet.l4, packet.icmp_type) {
        (L4::Icmp, 3 | 4 | 5 | 11 | 12) | (L4::Icmp6, 0..128) => ip.get(packet.l4_offset + 8..).and_then(ends),
        _ => None,
    };
    match (quoted, ends(ip)) {
        (Some([source, destination]), _) => {
            if source > destination {
                Arrival::Outside
            } else {
                Arrival::Inside
            }
        }
        (None, Some([source, destination])) if source > destination => Arrival::Inside,
        (None, _) => Arrival::Outside,
    }
}

/// Source and destination of an IP packet, also of one that was cut.
fn ends(ip: &[u8]) -> Option<[(u128, u16); 2]> {
    let (length, first, protocol, header) = match ip.first()? >> 4 {
        6 => (16, 8, *ip.get(6)?, 40),
        _ => (4, 12, *ip.get(9)?, usize::from(ip[0] & 15) * 4),
    };
    let number = |bytes: &[u8]| bytes.iter().fold(0, |number: u128, &byte| number << 8 | u128::from(byte));
    let has_ports = matches!(protocol, 6 | 17 | 33 | 132 | 136);
    let end = |nth: usize| {
        let address = number(ip.get(first + nth * length..)?.get(..length)?);
        let port = ip.get(header + 2 * nth..).and_then(|bytes| bytes.get(..2)).filter(|_| has_ports);
        Some((address, port.map_or(0, |port| number(port) as u16)))
    };
    Some([end(0)?, end(1)?])
}

/// The packets in the form for engines, in order: one set for each sequence of packets with the same link layer.
pub fn frame_sets<'a>(packets: impl IntoIterator<Item = &'a support::Packet>) -> Vec<FrameSet> {
    type Run<'a> = (support::Link, Vec<(&'a [u8], u32)>, Vec<u64>);
    let mut runs: Vec<Run<'_>> = Vec::new();
    for packet in packets {
        if runs.last().is_none_or(|(link, ..)| *link != packet.link) {
            runs.push((packet.link, Vec::new(), Vec::new()));
        }
        let (_, run, times) = runs.last_mut().expect("pushed above");
        run.push((&packet.bytes, packet.wire));
        times.push(packet.time_ns);
    }
    runs.into_iter().map(|(link, run, times)| FrameSet::new(link_of(link), run).with_times(times)).collect()
}

/// The link layer as Weir's enum.
pub fn link_of(link: support::Link) -> Link {
    match link {
        support::Link::Ethernet => Link::Ethernet,
        support::Link::RawIp => Link::RawIp,
        support::Link::Cooked => Link::Cooked,
        support::Link::Cooked2 => Link::Cooked2,
    }
}

/// The link layer as tests name it.
pub fn link_from(link: Link) -> support::Link {
    match link {
        Link::Ethernet => support::Link::Ethernet,
        Link::RawIp => support::Link::RawIp,
        Link::Cooked => support::Link::Cooked,
        Link::Cooked2 => support::Link::Cooked2,
    }
}

/// The results of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decided {
    /// Verdicts of each chain, in the order of the packets.
    pub verdicts: Vec<Vec<Verdict>>,
    /// What leaves in place of packets, by chain and packet.
    pub leaves: BTreeMap<(usize, usize), Vec<u8>>,
    /// The counters after all packets.
    pub counters: Vec<Counter>,
    /// The counts of each limiter's entries, for limiters that log.
    pub limits: Vec<LimitCounts>,
    /// What rules added to tables, up to the last tick that has ended.
    pub additions: AdditionCounts,
    /// The counts of the entries that were hit, by slot.
    pub entries: Vec<EntryHits>,
    /// What each rule of each slot has counted.
    pub slots: Vec<Vec<SlotCounter>>,
    /// The flows in the order of their slots, with the times after the first packet.
    pub flows: Vec<(FlowKey, Flow)>,
    /// What was observed, with the entries in the order of their keys.
    pub features: Option<[DirectionSnapshot; 2]>,
}

/// Time in ns between the same packets in successive chains. Shared buckets are full again after it. It is a multiple
/// of the ticks of flows and of additions, so that the same packets have the same ages later. A bit more than an hour.
const CHAIN_NS: u64 = (3 * 78_125) << TICK_SHIFT;

/// Runs the packets through every chain of a program, one chain after the other.
pub fn decide(filter: &mut dyn Filter, program: &Program, sets: &mut [FrameSet]) -> Result<Decided, String> {
    let (before, limits_before) = (filter.counters(), limit_counts(filter, program));
    let entries_before = entry_hits(filter, program);
    let slots_before = slot_counts(filter, program);
    let _of_earlier_packets = features(filter)?;
    // Other engines get the same packets later, unless packets leave changed.
    let began_ns = sets.iter().flat_map(FrameSet::bursts).next().map_or(0, |burst| burst.time_ns(0));
    let began = hit_time(began_ns);
    let mut verdicts = Vec::with_capacity(program.chains.len());
    let mut leaves = BTreeMap::new();
    for chain in 0..program.chains.len() {
        let mut all = Vec::new();
        for burst in sets.iter().flat_map(FrameSet::bursts) {
            let mut words = [Verdict(u32::MAX); BURST_MAX];
            filter.decide(chain, &burst, &mut words).map_err(|error| format!("{}: {error}", filter.name()))?;
            let first = all.len();
            filter.rewritten(&burst, &words[..burst.len()], &mut |index, bytes, _| {
                leaves.insert((chain, first + index), bytes.to_vec());
            });
            all.extend_from_slice(&words[..burst.len()]);
        }
        sets.iter_mut().for_each(|set| set.delay(CHAIN_NS));
        verdicts.push(all);
    }
    let since = |(after, before): (&Counter, &Counter)| Counter {
        packets: after.packets - before.packets,
        bytes: after.bytes - before.bytes,
    };
    if program.rewrites() {
        // Cookies depend on the time, so all engines get the same packets at the same time.
        sets.iter_mut().for_each(|set| set.hasten(CHAIN_NS * program.chains.len() as u64));
    }
    let counters = filter.counters().iter().zip(&before).map(since).collect();
    let limits_after = limit_counts(filter, program);
    let limits = limits_after.iter().zip(&limits_before).map(|(now, then)| counted_since(now, then)).collect();
    let additions = filter.addition_counts();
    let entries =
        entry_hits(filter, program).into_iter().zip(&entries_before).map(|(now, then)| hits_since(now, then, began));
    let slots =
        slot_counts(filter, program).iter().zip(&slots_before).map(|(now, then)| slot_since(now, then)).collect();
    let (entries, mut flows) = (entries.collect(), Vec::new());
    filter.flows(&mut |key, flow| flows.push((*key, flow_since(flow, flow::ticks(began_ns)))));
    let features = features(filter)?;
    Ok(Decided { verdicts, leaves, counters, limits, additions, entries, slots, flows, features })
}

/// A flow with its times after `began`. A flow without connection has the time of its first answer, too.
fn flow_since(flow: &Flow, began: u32) -> Flow {
    let mut flow = Flow { time: flow::age(flow.time, began), ..*flow };
    if matches!(flow.state, FlowState::Replied | FlowState::Assured) {
        let exchanges = Exchanges::of(&flow);
        Exchanges { since: flow::age(exchanges.since, began), ..exchanges }.store(&mut flow);
    }
    flow
}

fn slot_counts(filter: &dyn Filter, program: &Program) -> Vec<Vec<SlotCounter>> {
    (0..program.rule_slots.len()).map(|slot| filter.slot_counts(slot)).collect()
}

fn slot_since(now: &[SlotCounter], then: &[SlotCounter]) -> Vec<SlotCounter> {
    let since = |(now, then): (&SlotCounter, &SlotCounter)| SlotCounter {
        packets: now.packets - then.packets,
        bytes: now.bytes - then.bytes,
        dropped: now.dropped - then.dropped,
        dropped_bytes: now.dropped_bytes - then.dropped_bytes,
    };
    now.iter().zip(then).map(since).collect()
}

/// What a filter has observed since the last call.
pub fn features(filter: &mut dyn Filter) -> Result<Option<[DirectionSnapshot; 2]>, String> {
    let taken = filter.take_features().map_err(|error| format!("{}: {error}", filter.name()))?;
    Ok(taken.map(|taken| {
        taken.directions.map(|mut direction| {
            direction.entries.sort_unstable();
            direction
        })
    }))
}

/// Entries of a table that were hit, in order: address, prefix length and counts.
pub type EntryHits = Vec<(IpAddr, u8, EntryCounts)>;

/// The entries that were hit, by slot.
pub fn entry_hits(filter: &dyn Filter, program: &Program) -> Vec<EntryHits> {
    let of = |slot: usize| {
        let mut hits = Vec::new();
        filter.entry_counts(slot, &mut |addr, length, counts| hits.push((addr, length, counts)));
        hits.sort_by_key(|&(addr, length, _)| (addr, length));
        hits
    };
    (0..program.slots.len()).map(of).collect()
}

/// The hits since an earlier time, with the times after `began`. Entries that came back have counts of their own.
fn hits_since(now: EntryHits, then: &EntryHits, began: u32) -> EntryHits {
    let since = |(addr, length, counts): (IpAddr, u8, EntryCounts)| {
        let earlier = then.iter().find(|earlier| (earlier.0, earlier.1) == (addr, length));
        let earlier = earlier.map(|earlier| earlier.2).filter(|earlier| earlier.packets <= counts.packets);
        let earlier = earlier.unwrap_or_default();
        let (packets, bytes) = (counts.packets - earlier.packets, counts.bytes.saturating_sub(earlier.bytes));
        (addr, length, EntryCounts { packets, bytes, last: age(began, counts.last) })
    };
    now.into_iter().map(since).filter(|(.., counts)| counts.packets > 0).collect()
}

/// Entries of a limiter with their counts. Entries without counts may be omitted.
pub type LimitCounts = Vec<(u128, LimitCount)>;

fn limit_counts(filter: &dyn Filter, program: &Program) -> Vec<LimitCounts> {
    let of = |limiter: usize| {
        let mut counts = Vec::new();
        filter.limit_counts(limiter, &mut |entry, count| counts.push((entry, count)));
        counts
    };
    (0..program.limiters.len()).map(of).collect()
}

fn counted_since(now: &LimitCounts, then: &LimitCounts) -> LimitCounts {
    let earlier =
        |entry: u128| then.iter().find(|(of, _)| *of == entry).map_or(LimitCount::default(), |(_, count)| *count);
    let since = |&(entry, now): &(u128, LimitCount)| {
        let then = earlier(entry);
        (entry, LimitCount { exceeded: now.exceeded - then.exceeded, passed: now.passed - then.passed })
    };
    now.iter().map(since).filter(|(_, count)| *count != LimitCount::default()).collect()
}

/// The name of an engine and its results.
pub type Other = (&'static str, Decided);

/// How many policies run as P4, and how many have a feature that P4 lacks.
#[derive(Default)]
pub struct AsP4 {
    ran: AtomicUsize,
    left_out: AtomicUsize,
}

impl AsP4 {
    /// Counts a policy.
    pub fn count(&self, engines: &Engines<'_>) {
        let counter = if !engines.p4.is_empty() { &self.ran } else { &self.left_out };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Prints the counts. At least one policy of `in_so_many` must run as P4, if there is DPDK.
    pub fn tell(&self, in_so_many: usize) {
        if NativeCode::check_p4().is_err() {
            return;
        }
        let [ran, left_out] = [&self.ran, &self.left_out].map(|count| count.load(Ordering::Relaxed));
        println!("{ran} policies ran as P4, {left_out} have a feature that P4 lacks");
        assert!(ran * in_so_many >= ran + left_out, "only {ran} of {} policies ran as P4", ran + left_out);
    }
}

/// A policy in all engines.
pub struct Engines<'a> {
    policy: &'a Policy,
    /// None for a policy that cannot be compiled.
    compiled: Option<(NativeFilter, XdpFilter)>,
    /// See [`as_p4`].
    p4: Vec<(&'static str, NativeFilter)>,
    /// The policy in the kernel in parts of a few rules.
    parts: Option<XdpFilter>,
}

impl<'a> Engines<'a> {
    /// Compiles and loads the policy. Needs clang, and root for the kernel.
    pub fn load(policy: &'a Policy) -> Result<Self, String> {
        if !policy.unsupported().is_empty() {
            return Ok(Engines { policy, compiled: None, p4: vec![], parts: None });
        }
        let native = policy.native().map_err(|failure| format!("native: {failure}"))?;
        let xdp = policy.xdp().map_err(|failure| format!("xdp (needs root): {failure}"))?;
        Ok(Engines { compiled: Some((native, xdp)), ..Engines::load_p4(policy)? })
    }

    /// Loads the policy as P4 only, if P4 has its features.
    pub fn load_p4(policy: &'a Policy) -> Result<Self, String> {
        Ok(Engines { policy, compiled: None, p4: quick_p4(policy)?, parts: None })
    }

    /// Loads the policy like [`Engines::load`], and additionally into the kernel in parts of `rules` rules.
    pub fn load_with_parts(policy: &'a Policy, rules: usize) -> Result<Self, String> {
        let data = policy.bind_kernel_replay().map_err(|failure| failure.to_string())?;
        let parts = policy.compile_bpf_in_parts(&data, rules).and_then(|compiled| compiled.filter());
        let parts = parts.map_err(|error| format!("xdp in parts: {error}"))?;
        Ok(Engines { parts: Some(parts), ..Engines::load(policy)? })
    }

    /// The results of the interpreter, then of the compiled engines if they support the policy. Counters are not reset,
    /// so policies with sampling must be loaded anew.
    pub fn decide(&mut self, sets: &mut [FrameSet]) -> Result<(Decided, Vec<Other>), String> {
        let program = &self.policy.program;
        let mut eval = EvalFilter::new(program, self.policy.answers()).with_slots(self.policy.slot_rules());
        let decided = decide(&mut eval, program, sets)?;
        let mut others = Vec::new();
        // The interpreter begins without flows.
        let compiled = self.compiled.iter().flat_map(|(native, xdp)| [native.flow_table(), xdp.flow_table()]);
        let compiled = compiled.chain(self.p4.iter().map(|(_, p4)| p4.flow_table()));
        let tables: Vec<Arc<FlowTable>> =
            compiled.chain(self.parts.iter().map(XdpFilter::flow_table)).flatten().cloned().collect();
        tables.iter().for_each(|table| table.clear());
        if let Some((native, xdp)) = &mut self.compiled {
            others.push(("native", decide(native, program, sets)?));
            others.push(("xdp", decide(xdp, program, sets)?));
        }
        for (name, p4) in &mut self.p4 {
            others.push((name, decide(p4, program, sets)?));
        }
        if let Some(parts) = &mut self.parts {
            others.push(("xdp in parts", decide(parts, program, sets)?));
        }
        tables.iter().try_for_each(|table| table.verify())?;
        Ok((decided, others))
    }

    /// Runs all engines. Returns the interpreter's results if all agree, else the first difference.
    pub fn agree(&mut self, packets: &[support::Packet]) -> Result<Decided, String> {
        let (eval, others) = self.decide(&mut frame_sets(packets))?;
        for (name, other) in others {
            if let Some(difference) = difference(&self.policy.program, packets, &eval, &other) {
                return Err(format!("eval and {name} differ: {difference}"));
            }
        }
        adds_up(&self.policy.program, &eval, packets)?;
        Ok(eval)
    }
}

/// P4 programs with names for messages.
pub type Pipelines = Vec<(&'static str, NativeFilter)>;

/// The policy as P4, and with a controller if it tracks. Empty if it has a feature that P4 lacks, without DPDK, and for
/// bundles, which have no P4.
pub fn as_p4(policy: &Policy) -> Result<Pipelines, String> {
    as_p4_with(policy, &[])
}

/// As [`as_p4`], without optimisation of the extern objects, which takes clang most of its time. They then call the C
/// library, which this process has. The program also emits what it sends, which must be the packet that it received.
fn quick_p4(policy: &Policy) -> Result<Pipelines, String> {
    as_p4_with(policy, &["-O0", "-Wl,-z,undefs", "-DWEIR_P4_EMITS"])
}

fn as_p4_with(policy: &Policy, flags: &[&str]) -> Result<Pipelines, String> {
    if policy.is_bundle() || NativeCode::check_p4().is_err() || !unsupported(&policy.program, &[Engine::P4]).is_empty()
    {
        return Ok(vec![]);
    }
    let flags: Vec<String> = flags.iter().map(|&flag| flag.to_owned()).collect();
    let compiled = policy.compile_p4_with(Cpu::Native, Extras { flags: &flags, ..Extras::default() });
    let compiled = compiled.map_err(|failure| format!("p4: {failure}"))?;
    let filters = [("p4", None), ("p4 with a controller", Some(Controller::default()))];
    let wanted =
        filters.into_iter().filter(|(_, controller)| controller.is_none() || policy.program.tracking.is_some());
    let load = |(name, controller)| {
        let bound = policy.bind(None).and_then(|bound| compiled.filter(Bound { controller, ..bound }));
        bound.map(|filter| (name, filter)).map_err(|failure| format!("{name}: {failure}"))
    };
    wanted.map(load).collect()
}

/// The first difference between two engines, with its packet.
pub fn difference(program: &Program, packets: &[support::Packet], one: &Decided, other: &Decided) -> Option<String> {
    for (chain, (one, other)) in program.chains.iter().zip(one.verdicts.iter().zip(&other.verdicts)) {
        for (index, (one, other)) in one.iter().zip(other).enumerate() {
            if one != other {
                let (one, other) = (verdict(program, *one), verdict(program, *other));
                let symbol = chain.symbol();
                return Some(format!("{symbol}: packet {index}: {one}, {other}\n  {}", packets[index]));
            }
        }
    }
    let leaving = one.leaves.keys().chain(other.leaves.keys());
    for key @ &(chain, index) in leaving {
        let [one, other] = [one, other].map(|decided| decided.leaves.get(key));
        if one != other {
            let symbol = program.chains[chain].symbol();
            return Some(format!("{symbol}: packet {index} leaves as {one:02x?}, {other:02x?}\n  {}", packets[index]));
        }
    }
    if one.limits != other.limits {
        return Some(format!("counts of limits: {:?}, {:?}", one.limits, other.limits));
    }
    if !same_hits(&one.entries, &other.entries) {
        return Some(format!("counts of entries: {:?}, {:?}", one.entries, other.entries));
    }
    let flows = one.flows.iter().zip(&other.flows).find(|(one, other)| one != other);
    if flows.is_some() || one.flows.len() != other.flows.len() {
        return Some(format!("{} flows, {} flows: {flows:#?}", one.flows.len(), other.flows.len()));
    }
    if one.slots != other.slots {
        return Some(format!("counts of slots: {:?}, {:?}", one.slots, other.slots));
    }
    if one.features != other.features {
        return Some(format!("features: {:#?}, {:#?}", one.features, other.features));
    }
    if one.additions != other.additions {
        return Some(format!("additions: {:?}, {:?}", one.additions, other.additions));
    }
    let counters = one.counters.iter().zip(&other.counters).enumerate();
    counters.into_iter().find(|(_, (one, other))| one != other).map(|(index, (one, other))| {
        format!("counter of {}: {one:?}, {other:?}", weir_command::report::reason_name(program, Reason(index as u16)))
    })
}

/// Whether two engines have counted the same at the same entries. They get the packets at different times, which are
/// rounded to units, so times may differ by one unit.
fn same_hits(one: &[EntryHits], other: &[EntryHits]) -> bool {
    let hits = |hits: &[EntryHits]| hits.concat();
    let (one, other) = (hits(one), hits(other));
    let same = |(one, other): (&(IpAddr, u8, EntryCounts), &(IpAddr, u8, EntryCounts))| {
        let (counts, others) = (one.2, other.2);
        (one.0, one.1, counts.packets, counts.bytes) == (other.0, other.1, others.packets, others.bytes)
            && age(counts.last, others.last).min(age(others.last, counts.last)) <= 1
    };
    one.len() == other.len() && one.iter().zip(&other).all(same)
}

/// Checks that the counters of reasons add up to the received packets and bytes.
fn adds_up(program: &Program, decided: &Decided, packets: &[support::Packet]) -> Result<(), String> {
    let deciding = weir_command::report::decided(program, &decided.counters);
    let sum = deciding.iter().fold((0, 0), |sum, by| (sum.0 + by.counter.packets, sum.1 + by.counter.bytes));
    let chains = program.chains.len() as u64;
    let bytes: u64 = packets.iter().map(|packet| u64::from(packet.wire)).sum();
    let expected = (chains * packets.len() as u64, chains * bytes);
    if sum == expected {
        Ok(())
    } else {
        Err(format!("the counters of reasons add up to {sum:?}, but {expected:?} were received"))
    }
}

/// A verdict as text, for instance `drop* edge.weir:12`: action, `*` if sampled, reason.
pub fn verdict(program: &Program, verdict: Verdict) -> String {
    let action = verdict.action().map_or_else(|| format!("{:#x}", verdict.0), |action| action.name().to_owned());
    let action = action + if verdict.sampled() { "*" } else { "" };
    format!("{action:<8} {}", weir_command::report::reason_name(program, verdict.reason()))
}
