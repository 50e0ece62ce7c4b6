//! Why a packet got its verdict: what every rule before the deciding one saw.

use super::packet::{self, Frame, Packet};
use super::{Charge, Evaluator, Observer, Saw, Tables};
use crate::ir::{LimiterId, RuleId, Test, match_tree};
use weir_abi::Verdict;

/// The story of one packet.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// What the parser found.
    pub packet: Packet,
    /// The outcome.
    pub verdict: Verdict,
    /// The rules asked, in order. Empty when the defaults decided.
    pub steps: Vec<Step>,
}

/// What one rule made of the packet.
#[derive(Clone, Debug)]
pub struct Step {
    /// The rule.
    pub rule: RuleId,
    /// Its tests as far as they were made, each with what it saw and whether it held.
    pub tests: Vec<(Test, Saw, bool)>,
    /// Whether the rule matched.
    pub matched: bool,
    /// The buckets that it charged, each with the label that was found.
    pub charged: Vec<(LimiterId, u32, Charge)>,
}

/// Explains a frame to an evaluator that has decided those before it. Its program must be as lowered: one top node a rule.
pub fn explain(evaluator: &mut Evaluator<'_, impl Tables>, chain: usize, frame: Frame<'_>) -> Explanation {
    let rules: Vec<RuleId> = match_tree::rules(&evaluator.program.chains[chain].tree.nodes).collect();
    let mut witness = Witness { rules, steps: Vec::new(), current: 0 };
    let verdict = evaluator.decide(chain, frame, &mut witness);
    Explanation { packet: packet::parse(frame).0, verdict, steps: witness.steps }
}

struct Witness {
    rules: Vec<RuleId>,
    steps: Vec<Step>,
    /// Position in `rules` of the rule being asked.
    current: usize,
}

impl Witness {
    fn step(&mut self) -> &mut Step {
        let rule = self.rules[self.current];
        if self.steps.last().is_none_or(|step| step.rule != rule) {
            self.steps.push(Step { rule, tests: Vec::new(), matched: false, charged: Vec::new() });
        }
        self.steps.last_mut().expect("pushed above")
    }
}

impl Observer for Witness {
    fn tested(&mut self, test: &Test, saw: Saw, held: bool) {
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
}
