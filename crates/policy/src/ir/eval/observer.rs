//! Observers of the interpreter: they receive each step of a decision and can explain it.

use crate::ir::{LimiterId, RuleId, Test};

/// Receives each step of a decision.
pub trait Observer {
    /// A test was made; `saw` is what it looked at.
    fn tested(&mut self, test: &Test, saw: Saw, held: bool);
    /// A rule matched.
    fn matched(&mut self, rule: RuleId);
    /// The rule that matched charged the bucket of a label.
    fn charged(&mut self, limiter: LimiterId, label: u32, outcome: Charge);
}

/// Whether a bucket had room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charge {
    /// It had room.
    Fits,
    /// It had none.
    Exceeded,
}

/// What a test looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saw {
    /// Whether a header is present.
    Header,
    /// A value, before masking.
    Value(u128),
    /// Raw bits that the packet does not have.
    Nothing,
    /// What a find found.
    Found(u32),
}

/// Observes nothing.
impl Observer for () {
    fn tested(&mut self, _: &Test, _: Saw, _: bool) {}
    fn matched(&mut self, _: RuleId) {}
    fn charged(&mut self, _: LimiterId, _: u32, _: Charge) {}
}
