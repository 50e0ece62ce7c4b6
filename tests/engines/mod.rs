//! One policy in every engine, side by side over the same packets.
#![allow(dead_code, reason = "each test uses its part")]

use std::path::{Path, PathBuf};
use weir::eval::EvalFilter;
use weir::policy::Policy;
use weir_abi::{BURST_MAX, Counter, Link, Reason, Verdict};
use weir_engine::memory::FrameSet;
use weir_engine::{Filter, NativeFilter, XdpFilter};
use weir_policy::diag::render::{Style, render};
use weir_policy::ir::Program;
use weir_policy::pass::choose_layouts::CostModel;
use weir_test_support as support;

/// The repository's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Loads a policy that should be right; the errors of one that is not, as its author would read them.
pub fn load(path: &Path) -> Result<Policy, String> {
    let rejected = match Policy::from_text(path, &CostModel::default()) {
        Ok(Ok(policy)) => return Ok(policy),
        Ok(Err(rejected)) => rejected,
        Err(failure) => return Err(failure.to_string()),
    };
    let messages = render(&rejected.diagnostics, &rejected.sources, Style::Plain);
    Err(format!("{messages}\n{}", rejected.lists.join("\n")))
}

/// The same packets as engines take them, in order: one set for each run of packets with one link layer.
pub fn frame_sets<'a>(packets: impl IntoIterator<Item = &'a support::Packet>) -> Vec<FrameSet> {
    type Run<'a> = (support::Link, Vec<(&'a [u8], u32)>);
    let mut runs: Vec<Run<'_>> = Vec::new();
    for packet in packets {
        if runs.last().is_none_or(|(link, _)| *link != packet.link) {
            runs.push((packet.link, Vec::new()));
        }
        let (_, run) = runs.last_mut().expect("pushed above");
        run.push((&packet.bytes, packet.wire));
    }
    runs.into_iter().map(|(link, run)| FrameSet::new(link_of(link), run)).collect()
}

/// Weir's number of a link layer.
pub fn link_of(link: support::Link) -> Link {
    match link {
        support::Link::Ethernet => Link::Ethernet,
        support::Link::RawIp => Link::RawIp,
        support::Link::Cooked => Link::Cooked,
        support::Link::Cooked2 => Link::Cooked2,
    }
}

/// What an engine made of packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decided {
    /// Each chain's verdicts, in the order of the packets.
    pub verdicts: Vec<Vec<Verdict>>,
    /// The counters after all of that.
    pub counters: Vec<Counter>,
}

/// Runs packets through every chain of a program, one chain after the other.
pub fn decide(filter: &mut dyn Filter, program: &Program, sets: &[FrameSet]) -> Result<Decided, String> {
    let before = filter.counters();
    let mut verdicts = Vec::with_capacity(program.chains.len());
    for chain in 0..program.chains.len() {
        let mut all = Vec::new();
        for burst in sets.iter().flat_map(FrameSet::bursts) {
            let mut words = [Verdict(u32::MAX); BURST_MAX];
            filter.decide(chain, &burst, &mut words).map_err(|error| format!("{}: {error}", filter.name()))?;
            all.extend_from_slice(&words[..burst.len()]);
        }
        verdicts.push(all);
    }
    let since = |(after, before): (&Counter, &Counter)| Counter {
        packets: after.packets - before.packets,
        bytes: after.bytes - before.bytes,
    };
    Ok(Decided { verdicts, counters: filter.counters().iter().zip(&before).map(since).collect() })
}

/// A policy compiled for both machines and loaded into all engines.
pub struct Engines<'a> {
    policy: &'a Policy,
    native: NativeFilter,
    xdp: XdpFilter,
}

impl<'a> Engines<'a> {
    /// Compiles and loads. Needs clang, and root for the kernel.
    pub fn load(policy: &'a Policy) -> Result<Self, String> {
        let native = policy.native().map_err(|failure| format!("native: {failure}"))?;
        let xdp = policy.xdp().map_err(|failure| format!("xdp (needs root): {failure}"))?;
        Ok(Engines { policy, native, xdp })
    }

    /// What eval, native and xdp make of the packets. Each starts with the counters it had, so load anew where rules sample.
    pub fn decide(&mut self, sets: &[FrameSet]) -> Result<[Decided; 3], String> {
        let program = &self.policy.program;
        let mut eval = EvalFilter::new(program, self.policy.answers());
        Ok([
            decide(&mut eval, program, sets)?,
            decide(&mut self.native, program, sets)?,
            decide(&mut self.xdp, program, sets)?,
        ])
    }

    /// Decides by all engines; what eval made of the packets if all agree, else the first difference.
    pub fn agree(&mut self, packets: &[support::Packet]) -> Result<Decided, String> {
        let [eval, native, xdp] = self.decide(&frame_sets(packets))?;
        for (name, other) in [("native", &native), ("xdp", &xdp)] {
            if let Some(difference) = difference(&self.policy.program, packets, &eval, other) {
                return Err(format!("eval and {name} differ: {difference}"));
            }
        }
        adds_up(&self.policy.program, &eval, packets)?;
        Ok(eval)
    }
}

/// The first difference between two engines, with the packet.
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
    let counters = one.counters.iter().zip(&other.counters).enumerate();
    counters.into_iter().find(|(_, (one, other))| one != other).map(|(index, (one, other))| {
        format!("counter of {}: {one:?}, {other:?}", weir::report::reason_name(program, Reason(index as u16)))
    })
}

/// The counters of built-in reasons and of rules with a verdict must add up to the packets and bytes received.
fn adds_up(program: &Program, decided: &Decided, packets: &[support::Packet]) -> Result<(), String> {
    let deciding = decided.counters.iter().enumerate().filter(|(index, _)| match Reason(*index as u16).rule_index() {
        Some(rule) => program.rules[usize::from(rule)].verdict().is_some(),
        None => true,
    });
    let sum = deciding.fold((0, 0), |sum, (_, counter)| (sum.0 + counter.packets, sum.1 + counter.bytes));
    let chains = program.chains.len() as u64;
    let bytes: u64 = packets.iter().map(|packet| u64::from(packet.wire)).sum();
    let expected = (chains * packets.len() as u64, chains * bytes);
    if sum == expected { Ok(()) } else { Err(format!("the reasons hold {sum:?}, received were {expected:?}")) }
}

/// `drop* edge.weir:12`: action, `*` if sampled, reason.
pub fn verdict(program: &Program, verdict: Verdict) -> String {
    let action = verdict.action().map_or_else(|| format!("{:#x}", verdict.0), |action| action.name().to_owned());
    let action = action + if verdict.sampled() { "*" } else { "" };
    format!("{action:<8} {}", weir::report::reason_name(program, verdict.reason()))
}
