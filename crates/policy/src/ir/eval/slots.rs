//! The rules of slots, their buckets and counts. A rule means what its tests mean in a rule of the policy.

use super::field;
use super::guard::guard_holds;
use crate::ir::eval::packet::{self, Frame, Packet};
use crate::ir::{Program, RuleSlotId, Test};
use crate::slot_rule::{Act, SlotRule};
use weir_abi::limit::{charge, ticks};
use weir_abi::slot::SlotCounter;

/// The slots of a program.
pub(super) struct Slots {
    slots: Vec<Vec<Held>>,
    /// Time of the last packet, ns; `None` before the first.
    clock_ns: Option<u64>,
}

struct Held {
    rule: SlotRule,
    /// Its bucket.
    word: u64,
    counts: SlotCounter,
}

impl Slots {
    /// Empty slots.
    pub(super) fn new(program: &Program) -> Self {
        Slots { slots: program.rule_slots.iter().map(|_| Vec::new()).collect(), clock_ns: None }
    }

    /// Replaces the rules of a slot. Their buckets are full.
    pub(super) fn set(&mut self, slot: RuleSlotId, rules: Vec<SlotRule>) {
        let word = ticks(self.clock_ns.unwrap_or(0));
        let held = |rule: SlotRule| Held { rule, word, counts: SlotCounter::default() };
        self.slots[usize::from(slot.0)] = rules.into_iter().map(held).collect();
    }

    /// Sets the clock, which never goes back. All buckets are full at the first packet.
    pub(super) fn tick(&mut self, time_ns: u64) {
        if self.clock_ns.is_none() {
            self.slots.iter_mut().flatten().for_each(|held| held.word = ticks(time_ns));
        }
        self.clock_ns = self.clock_ns.max(Some(time_ns));
    }

    /// What each rule of a slot has counted.
    pub(super) fn counts(&self, slot: RuleSlotId) -> Vec<SlotCounter> {
        self.slots[usize::from(slot.0)].iter().map(|held| held.counts).collect()
    }

    /// The number, from 0, of the rule of a slot that drops the packet.
    pub(super) fn drops(&mut self, slot: RuleSlotId, packet: &Packet, frame: Frame<'_>) -> Option<usize> {
        let now_ns = self.clock_ns.expect("the clock is set before a packet is decided");
        let bytes = frame.wire_len;
        for (index, Held { rule, word, counts }) in self.slots[usize::from(slot.0)].iter_mut().enumerate() {
            if !rule.tests.iter().all(|test| holds(test, packet, frame)) {
                continue;
            }
            counts.packets += 1;
            counts.bytes += u64::from(bytes);
            match rule.act {
                Act::Count => continue,
                Act::Drop => {}
                Act::Limit(limit) => {
                    let profile = limit.profile();
                    if let Some(charged) = charge(*word, ticks(now_ns), profile.cost(bytes), profile.room) {
                        *word = charged;
                        continue;
                    }
                }
            }
            counts.dropped += 1;
            counts.dropped_bytes += u64::from(bytes);
            return Some(index);
        }
        None
    }
}

/// Whether the matches of a rule hold for a frame. Of a malformed packet they see the headers in front of the fault.
pub fn matches(rule: &SlotRule, frame: Frame<'_>) -> bool {
    let (packet, _fault) = packet::parse(frame);
    rule.tests.iter().all(|test| holds(test, &packet, frame))
}

fn holds(test: &Test, packet: &Packet, frame: Frame<'_>) -> bool {
    match test {
        Test::Guard(guard) => guard_holds(*guard, packet),
        Test::Value { subject, mask, set, negated } => field::subject(*subject, frame, packet)
            .is_some_and(|value| set.contains(value & mask.unwrap_or(u128::MAX)) != *negated),
        Test::Found { .. } => unreachable!("compiler bug: a rule of a slot asks no table"),
    }
}
