//! Explains a verdict: the tests of every rule up to the deciding one, with the values that they saw.

use super::packet::{self, Frame, Packet};
use super::{Charge, Evaluator, Observed, Observer, Tables};
use crate::ir::{LimiterId, RuleId, RuleSlotId, Test, match_tree};
use weir_abi::Verdict;

/// The explanation of one verdict.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// The parsed packet.
    pub packet: Packet,
    /// The verdict.
    pub verdict: Verdict,
    /// The evaluated rules, in order. Empty if the defaults decided.
    pub steps: Vec<Step>,
}

/// The evaluation of one rule.
#[derive(Clone, Debug)]
pub struct Step {
    /// The rule.
    pub rule: RuleId,
    /// Its evaluated tests, each with the value that it saw and its outcome.
    pub tests: Vec<(Test, Observed, bool)>,
    /// Whether the rule matched.
    pub matched: bool,
    /// The buckets that it charged, each with the label that was found.
    pub charged: Vec<(LimiterId, u32, Charge)>,
    /// The slots that it asked, each with the rule that drops the packet, from 0.
    pub asked: Vec<(RuleSlotId, Option<usize>)>,
}

/// Explains the verdict on a frame, after the evaluator has decided all earlier frames. The program must not be
/// optimised: it has one top node for each rule.
pub fn explain(evaluator: &mut Evaluator<'_, impl Tables>, chain: usize, frame: Frame<'_>) -> Explanation {
    let rules: Vec<RuleId> = match_tree::rules(&evaluator.program.chains[chain].tree.nodes).collect();
    let mut recorder = Recorder { rules, steps: Vec::new(), current: 0 };
    let verdict = evaluator.decide(chain, frame, &mut recorder);
    Explanation { packet: packet::parse(frame).0, verdict, steps: recorder.steps }
}

struct Recorder {
    rules: Vec<RuleId>,
    steps: Vec<Step>,
    /// Index into `rules` of the current rule.
    current: usize,
}

impl Recorder {
    fn step(&mut self) -> &mut Step {
        let rule = self.rules[self.current];
        if self.steps.last().is_none_or(|step| step.rule != rule) {
            self.steps.push(Step { rule, tests: Vec::new(), matched: false, charged: Vec::new(), asked: Vec::new() });
        }
        self.steps.last_mut().expect("pushed above")
    }
}

impl Observer for Recorder {
    fn tested(&mut self, test: &Test, saw: Observed, held: bool) {
        self.step().tests.push((test.clone(), saw, held));
        if !held {
            self.current += 1;
        }
    }

    fn matched(&mut self, _: RuleId) {
        self.step().matched = true;
        self.current += 1;
    }

    fn charged(&mut self, limiter: LimiterId, label: u32, outcome: Charge) {
        let step = self.steps.last_mut().expect("a rule that charges has matched");
        step.charged.push((limiter, label, outcome));
    }

    fn asked(&mut self, slot: RuleSlotId, by: Option<usize>) {
        let step = self.steps.last_mut().expect("a rule that asks a slot has matched");
        step.asked.push((slot, by));
    }
}
