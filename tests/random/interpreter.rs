//! The interpreter with the tables and slots of a loaded policy, and what it has counted.

use crate::engines::{Decided, link_of};
use std::collections::BTreeMap;
use weir_abi::Verdict;
use weir_loading::Policy;
use weir_loading::eval::SlotAnswers;
use weir_policy::ir::eval::Evaluator;
use weir_policy::ir::eval::packet::Frame;
use weir_policy::ir::{LimiterId, Program, RuleSlotId, SlotId};
use weir_state::limits::LimitCount;
use weir_test_support::Packet;

/// The interpreter of a form of the policy's program.
pub fn new<'a>(program: &'a Program, policy: &Policy) -> Evaluator<'a, SlotAnswers> {
    let mut evaluator = Evaluator::new(program, policy.answers());
    let slots = (0..).map(RuleSlotId).zip(policy.slot_rules());
    slots.for_each(|(slot, rules)| evaluator.set_slot(slot, rules.clone()));
    evaluator
}

/// A packet in the form for the interpreter.
pub fn frame(packet: &Packet) -> Frame<'_> {
    Frame { bytes: &packet.bytes, wire_len: packet.wire, link: link_of(packet.link), time_ns: packet.time_ns }
}

/// What the interpreter has decided and counted.
pub fn decided(
    evaluator: &mut Evaluator<'_, SlotAnswers>,
    program: &Program,
    verdicts: Vec<Vec<Verdict>>,
    leaves: BTreeMap<(usize, usize), Vec<u8>>,
) -> Decided {
    let features = evaluator.take_features().map(|features| features.map(weir_loading::eval::snapshot));
    let limits = (0..).map(LimiterId).zip(&program.limiters).map(|(limiter, _)| {
        let mut counts = Vec::new();
        evaluator.limit_counts(limiter, &mut |entry, count| {
            counts.push((entry, LimitCount { exceeded: count.exceeded, passed: count.passed }));
        });
        counts
    });
    let entries = (0..).map(SlotId).zip(&program.slots).map(|(id, slot)| {
        let mut hits = Vec::new();
        evaluator.entry_counts(id, &mut |prefix, length, counts| {
            hits.push((weir_loading::eval::address(slot.family, prefix), length, counts));
        });
        hits
    });
    let mut flows = Vec::new();
    evaluator.flows(&mut |key, flow| flows.push((*key, *flow)));
    let slots = (0..).map(RuleSlotId).zip(&program.rule_slots).map(|(slot, _)| evaluator.slot_counts(slot));
    let (counters, additions) = (evaluator.counters().to_vec(), evaluator.addition_counts());
    Decided {
        verdicts,
        leaves,
        counters,
        limits: limits.collect(),
        additions,
        entries: entries.collect(),
        slots: slots.collect(),
        flows,
        features,
    }
}
