//! The steps of an evaluation, which the interpreter reports for explanations.

use crate::ir::{LimiterId, RuleId, RuleSlotId, Test};

/// Receives the steps of an evaluation.
pub trait Observer {
    /// A test was evaluated; `saw` is the value that it saw.
    fn tested(&mut self, test: &Test, saw: Observed, held: bool);
    /// A rule matched.
    fn matched(&mut self, rule: RuleId);
    /// The rule that matched last charged the bucket of a label.
    fn charged(&mut self, limiter: LimiterId, label: u32, outcome: Charge);
    /// The rule that matched last asked a slot; `by` is the rule of the slot that drops the packet, from 0.
    fn asked(&mut self, slot: RuleSlotId, by: Option<usize>);
}

/// The outcome of a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charge {
    /// The packet was charged.
    Fits,
    /// The packet exceeds the limit.
    Exceeded,
}

/// The value that a test saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observed {
    /// Whether a header is present.
    Header,
    /// A value, before masking.
    Value(u128),
    /// Raw bits that were not captured.
    Missing,
    /// The result of a find.
    Found(u32),
}

/// Ignores all steps.
impl Observer for () {
    fn tested(&mut self, _: &Test, _: Observed, _: bool) {}
    fn matched(&mut self, _: RuleId) {}
    fn charged(&mut self, _: LimiterId, _: u32, _: Charge) {}
    fn asked(&mut self, _: RuleSlotId, _: Option<usize>) {}
}
