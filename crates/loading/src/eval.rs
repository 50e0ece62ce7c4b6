//! The reference interpreter as a [`Filter`].

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use weir_abi::flow::{Flow, FlowKey};
use weir_abi::slot::SlotCounter;
use weir_abi::{AdditionCounts, Counter, EntryCounts, Family, LimitEntries, Verdict};
use weir_engine::{EngineError, Filter, FrameBurst};
use weir_policy::ir::eval::packet::Frame;
use weir_policy::ir::eval::rewrite::Leaving;
use weir_policy::ir::eval::{Charged, DirectionFeatures, Evaluator, Protected, Tables};
use weir_policy::ir::{LimiterId, Program, RuleSlotId, SlotId};
use weir_policy::slot_rule::SlotRule;
use weir_state::features::{DirectionSnapshot, FeatureEntry, Samples, Snapshot};
use weir_state::limits::LimitCount;
use weir_tables::{Reference, Table};

/// The contents of a program's slots and limiters.
#[derive(Clone, Debug)]
pub struct SlotAnswers {
    /// The family of each slot's keys, with the slow references of its tables, or of its list of limits.
    pub slots: Vec<(Family, Vec<Arc<Reference>>)>,
    /// The entries of tables that are dynamic or have counters, by slot.
    pub followed: HashMap<SlotId, Arc<Table>>,
    /// What rules must not add to dynamic tables, by slot.
    pub protected: HashMap<SlotId, Vec<Protected>>,
    /// The entries of each limiter.
    pub limits: Vec<Arc<LimitEntries>>,
}

impl Tables for SlotAnswers {
    fn find(&self, slot: SlotId, key: u128) -> u32 {
        let (family, references) = &self.slots[usize::from(slot.0)];
        let ask = |reference: &Reference| match family {
            Family::Ipv4 => reference.find4(key as u32),
            Family::Ipv6 => reference.find6(key),
        };
        match references.as_slice() {
            [one] => ask(one),
            fused => (0..).zip(fused).map(|(index, one)| u32::from(ask(one) != 0) << index).sum(),
        }
    }

    fn entries(&self, slot: SlotId) -> Option<Vec<(u128, u8, u32)>> {
        let table = self.followed.get(&slot)?;
        let entries4 = table.prefixes4().iter().map(|prefix| (prefix.addr.into(), prefix.len, prefix.label));
        let entries6 = table.prefixes6().iter().map(|prefix| (prefix.addr, prefix.len, prefix.label));
        Some(entries4.chain(entries6).collect())
    }

    fn protected(&self, slot: SlotId) -> Vec<Protected> {
        self.protected.get(&slot).cloned().unwrap_or_default()
    }

    fn limits(&self, limiter: LimiterId) -> Arc<LimitEntries> {
        Arc::clone(&self.limits[usize::from(limiter.0)])
    }
}

/// The interpreter of a program.
pub struct EvalFilter<'a> {
    program: &'a Program,
    evaluator: Evaluator<'a, SlotAnswers>,
    /// The packets of the last burst that were changed, with their indices.
    rewritten: Vec<(usize, Leaving)>,
}

impl<'a> EvalFilter<'a> {
    /// A filter whose counters are 0. The interpreter must support all effects of the program.
    pub fn new(program: &'a Program, tables: SlotAnswers) -> Self {
        EvalFilter { program, evaluator: Evaluator::new(program, tables), rewritten: vec![] }
    }

    /// Enters a flow at a time, ns, as a restart does. Returns whether it had room.
    pub fn enter_flow(&mut self, key: &FlowKey, flow: &Flow, time_ns: u64) -> bool {
        self.evaluator.enter_flow(key, flow, time_ns)
    }

    /// This filter with rules in its slots.
    pub fn with_slots(mut self, rules: &[Vec<SlotRule>]) -> Self {
        for (slot, rules) in (0..).map(RuleSlotId).zip(rules) {
            self.evaluator.set_slot(slot, rules.clone());
        }
        self
    }
}

impl Filter for EvalFilter<'_> {
    fn name(&self) -> &str {
        "eval"
    }

    fn decide(&mut self, chain: usize, burst: &FrameBurst<'_>, verdicts: &mut [Verdict]) -> Result<(), EngineError> {
        self.rewritten.clear();
        for (index, verdict) in verdicts.iter_mut().enumerate().take(burst.len()) {
            let frame = frame(burst, index);
            *verdict = self.evaluator.decide(chain, frame, &mut ());
            self.rewritten.extend(self.evaluator.leaving().map(|leaving| (index, leaving.clone())));
        }
        Ok(())
    }

    fn rewritten(&self, _: &FrameBurst<'_>, _: &[Verdict], visit: &mut dyn FnMut(usize, &[u8], u32)) {
        self.rewritten.iter().for_each(|(index, leaving)| visit(*index, &leaving.bytes, leaving.wire_len));
    }

    fn counters(&self) -> Vec<Counter> {
        self.evaluator.counters().to_vec()
    }

    fn addition_counts(&self) -> AdditionCounts {
        self.evaluator.addition_counts()
    }

    fn entry_counts(&self, slot: usize, visit: &mut dyn FnMut(IpAddr, u8, EntryCounts)) {
        let family = self.program.slots[slot].family;
        self.evaluator.entry_counts(SlotId(slot as u16), &mut |prefix, length, counts| {
            visit(address(family, prefix), length, counts);
        });
    }

    fn slot_counts(&self, slot: usize) -> Vec<SlotCounter> {
        self.evaluator.slot_counts(RuleSlotId(slot as u16))
    }

    fn flows(&self, visit: &mut dyn FnMut(&FlowKey, &Flow)) {
        self.evaluator.flows(visit);
    }

    fn take_features(&mut self) -> Result<Option<Snapshot>, EngineError> {
        let directions = self.evaluator.take_features();
        Ok(directions.map(|directions| Snapshot { directions: directions.map(snapshot), ..Snapshot::default() }))
    }

    fn limit_counts(&self, limiter: usize, visit: &mut dyn FnMut(u128, LimitCount)) {
        self.evaluator.limit_counts(LimiterId(limiter as u16), &mut |entry, Charged { exceeded, passed }| {
            visit(entry, LimitCount { exceeded, passed });
        });
    }
}

/// What the interpreter has observed, in the form of engines.
pub fn snapshot(of: DirectionFeatures) -> DirectionSnapshot {
    let DirectionFeatures { entries, rest, without_address, outside, sampler, records, .. } = of;
    let entries = entries.into_iter().map(|(key, counts)| FeatureEntry { key, counts }).collect();
    let samples = Samples { seen: sampler.seen, taken: sampler.taken, records };
    let samples = if samples.seen > 0 { vec![samples] } else { vec![] };
    DirectionSnapshot { entries, rest, without_address, outside, samples }
}

/// An address of a family as the interpreter has it: a number.
pub fn address(family: Family, number: u128) -> IpAddr {
    match family {
        Family::Ipv4 => IpAddr::V4((number as u32).into()),
        Family::Ipv6 => IpAddr::V6(number.into()),
    }
}

/// Frame `index` of a burst in the form for the interpreter.
pub fn frame<'a>(burst: &FrameBurst<'a>, index: usize) -> Frame<'a> {
    let (wire_len, time_ns) = (burst.wire_len(index), burst.time_ns(index));
    Frame { bytes: burst.bytes(index), wire_len, link: burst.link(), time_ns }
}
