//! The distributor: which rules are offloaded.
//!
//! It compares splits by the cycles that the software spends on a received packet ([`cost`]), and takes the cheapest
//! whose packets fit the link. Metadata have a price: bytes on the link between card and host, and cycles to read them.
//! Where nothing is won it refuses, and says in cycles and bytes why. [`follow`] changes a choice only if another one
//! stays better.
//!
//! The paper models this part "heuristically", without saying how.

pub mod cost;
pub mod follow;
#[cfg(test)]
mod tests;

use crate::TableSizes;
use crate::category::Offload;
use crate::profile::Profile;
use crate::split::{Placement, place};
use cost::{Bill, Costs, Idle, Link, Traffic};
use std::collections::BTreeSet;
use weir_policy::ir::match_tree::rules;
use weir_policy::ir::{Program, RuleId};

/// Most rounds of a search. Each changes one rule, so more are never needed.
const ROUNDS_MAX: usize = 255;
/// A change that saves less is not worth a rule, cycles a packet.
const GAIN_MIN: f64 = 1e-6;

/// What is distributed: one chain of a program on one card.
pub struct Distributor<'a> {
    /// The program, as it was lowered.
    pub program: &'a Program,
    /// Which rules have a `counter` statement.
    pub counters: &'a [bool],
    /// The chain.
    pub chain: usize,
    /// The card.
    pub profile: &'a Profile,
    /// The sizes of tables on it.
    pub sizes: &'a dyn TableSizes,
    /// What the software's work costs.
    pub costs: &'a dyn Costs,
    /// The link between card and host.
    pub link: Link,
    /// What there is without offloaded rules.
    pub idle: Idle,
}

/// A choice of rules.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// The rules that are offloaded.
    pub rules: BTreeSet<RuleId>,
    /// What the software's work costs with them.
    pub bill: Bill,
}

/// What the distributor says about a rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    /// The rule.
    pub rule: RuleId,
    /// Whether it is offloaded.
    pub is_offloaded: bool,
    /// Cycles a packet that offloading it saves: beside the rest of the choice, or beside it with this rule too. Less
    /// than 0 if it costs more than it saves. `None` if the card cannot take it.
    pub saves: Option<f64>,
    /// Bytes of metadata that it takes beside the others of the choice.
    pub bytes: usize,
}

/// A choice with its reasons.
#[derive(Clone, Debug, PartialEq)]
pub struct Advised {
    /// The choice.
    pub choice: Choice,
    /// Without offloaded rules.
    pub alone: Bill,
    /// All rules that the card can take.
    pub all: Bill,
    /// Each rule of the chain, in order.
    pub rules: Vec<Advice>,
}

impl Distributor<'_> {
    /// The cheapest choice that was found. The search starts from no rule and from all that the card can take, and
    /// changes the rule that saves most, until none does.
    pub fn choose(&self, traffic: &Traffic) -> Advised {
        let able = self.able();
        let starts = [BTreeSet::new(), able.clone()].map(|start| self.improve(start, &able, traffic));
        let [none, all] = starts;
        let choice = if all.bill.is_better_than(&none.bill) { all } else { none };
        let chain = &self.program.chains[self.chain].tree.nodes;
        let advice = rules(chain).map(|rule| self.advice(rule, &choice, &able, traffic)).collect();
        Advised {
            alone: self.bill(&BTreeSet::new(), traffic).1,
            all: self.bill(&able, traffic).1,
            rules: advice,
            choice,
        }
    }

    /// The cost of a choice.
    pub fn cost_of(&self, rules: &BTreeSet<RuleId>, traffic: &Traffic) -> Bill {
        self.bill(rules, traffic).1
    }

    /// The rules that the card can take if it takes all that it can.
    fn able(&self) -> BTreeSet<RuleId> {
        let placement = self.place(&|_| true);
        let taken = placement.rules.iter().filter(|placed| placed.offload != Offload::Software);
        taken.map(|placed| placed.rule).collect()
    }

    fn place(&self, wanted: &dyn Fn(RuleId) -> bool) -> Placement {
        place(self.program, self.counters, self.chain, self.profile, self.sizes, wanted)
    }

    /// The cost of a choice, and its bytes of metadata.
    fn bill(&self, rules: &BTreeSet<RuleId>, traffic: &Traffic) -> (usize, Bill) {
        let placement = self.place(&|rule| rules.contains(&rule));
        let bill = cost::bill((self.program, self.chain), &placement, self.costs, (self.link, self.idle), traffic);
        (placement.card.body.bytes(), bill)
    }

    fn improve(&self, mut rules: BTreeSet<RuleId>, able: &BTreeSet<RuleId>, traffic: &Traffic) -> Choice {
        let mut bill = self.cost_of(&rules, traffic);
        for _ in 0..ROUNDS_MAX {
            let changed = able.iter().map(|rule| {
                let other = toggled(&rules, *rule);
                (self.cost_of(&other, traffic), other)
            });
            let best = changed.reduce(|best, next| if next.0.is_better_than(&best.0) { next } else { best });
            match best {
                Some((next, other)) if next.is_better_than(&bill) => (bill, rules) = (next, other),
                _ => break,
            }
        }
        Choice { rules, bill }
    }

    fn advice(&self, rule: RuleId, choice: &Choice, able: &BTreeSet<RuleId>, traffic: &Traffic) -> Advice {
        let is_offloaded = choice.rules.contains(&rule);
        if !able.contains(&rule) {
            return Advice { rule, is_offloaded, saves: None, bytes: 0 };
        }
        let ((other_bytes, other), (bytes, chosen)) =
            (self.bill(&toggled(&choice.rules, rule), traffic), self.bill(&choice.rules, traffic));
        let (with, without) = if is_offloaded { (&chosen, &other) } else { (&other, &chosen) };
        let bytes = bytes.abs_diff(other_bytes);
        Advice { rule, is_offloaded, saves: Some(without.cycles - with.cycles), bytes }
    }
}

fn toggled(rules: &BTreeSet<RuleId>, rule: RuleId) -> BTreeSet<RuleId> {
    let mut other = rules.clone();
    if !other.remove(&rule) {
        other.insert(rule);
    }
    other
}

impl Bill {
    /// Whether it fits the link and the other does not, or costs noticeably less.
    fn is_better_than(&self, other: &Bill) -> bool {
        match (self.fits(), other.fits()) {
            (true, false) => true,
            (false, true) => false,
            _ => self.cycles + GAIN_MIN < other.cycles,
        }
    }
}
