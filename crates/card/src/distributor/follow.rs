//! Following traffic: a choice is changed only if another one is better for some time. Each change is an epoch of the
//! card, so no packet is judged by a mixture.

use super::cost::{Bill, Traffic};
use super::{Advised, Distributor};
use crate::profile::Profile;
use std::collections::BTreeSet;
use weir_policy::ir::RuleId;

/// When a choice changes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Patience {
    /// The share of cycles that a change must save.
    pub margin: f64,
    /// Cycles a packet that it must save at least: above the noise of measurements.
    pub floor: f64,
    /// Successive windows in which it must do so.
    pub windows: u32,
    /// The time between changes, as a multiple of a reconfiguration of the card.
    pub rest: u64,
    /// The time between changes, as a multiple of the total time of the last change. That time includes compiling the
    /// software again.
    pub rest_of_change: u64,
}

impl Default for Patience {
    fn default() -> Self {
        Patience { margin: 0.05, floor: 1.0, windows: 3, rest: 100, rest_of_change: 4 }
    }
}

/// The choice in force, and the reasons to change it.
#[derive(Clone, Debug)]
pub struct Follower {
    patience: Patience,
    reconfigure_ms: u64,
    rules: BTreeSet<RuleId>,
    /// Windows in which a change would have been worth it.
    better_for: u32,
    changed_ms: Option<u64>,
    /// How long the last change took.
    took_ms: u64,
}

/// What a window says.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// The cost of the choice in force.
    pub now: Bill,
    /// The best choice for the window, and what else costs.
    pub advised: Advised,
    /// What happens.
    pub step: Step,
}

/// What happens after a window.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// The choice stays.
    Keep {
        /// Why.
        why: &'static str,
    },
    /// The best choice is in force from the next epoch on.
    Change {
        /// Why.
        why: &'static str,
    },
}

impl Follower {
    /// No rule is offloaded yet.
    pub fn new(profile: &Profile, patience: Patience) -> Self {
        Follower {
            patience,
            reconfigure_ms: profile.reconfigure_ms,
            rules: BTreeSet::new(),
            better_for: 0,
            changed_ms: None,
            took_ms: 0,
        }
    }

    /// The rules that are offloaded.
    pub fn rules(&self) -> &BTreeSet<RuleId> {
        &self.rules
    }

    /// Another choice is in force than the follower has made: a change has failed, or there is another policy.
    pub fn set(&mut self, rules: BTreeSet<RuleId>) {
        if self.rules != rules {
            (self.rules, self.better_for) = (rules, 0);
        }
    }

    /// Notes a window without measurements. Only successive windows count, so the count starts again.
    pub fn skip(&mut self) {
        self.better_for = 0;
    }

    /// The last change took so long, whether it succeeded or not. It ended now.
    pub fn took(&mut self, took_ms: u64, now_ms: u64) {
        (self.took_ms, self.changed_ms) = (took_ms, Some(now_ms));
    }

    /// A window has ended at this time.
    pub fn step(&mut self, distributor: &Distributor<'_>, traffic: &Traffic, now_ms: u64) -> Judged {
        let now = distributor.cost_of(&self.rules, traffic);
        let advised = distributor.choose(traffic);
        let step = self.decide(&now, &advised, now_ms);
        Judged { now, advised, step }
    }

    fn decide(&mut self, now: &Bill, Advised { choice, .. }: &Advised, now_ms: u64) -> Step {
        let saved = now.cycles - choice.bill.cycles;
        // A link that is full loses packets, so it is worth any cycles.
        let overflows = !now.fits() && choice.bill.fits();
        let is_better = overflows || saved >= self.patience.floor && saved >= self.patience.margin * now.cycles;
        if choice.rules == self.rules || !is_better {
            self.better_for = 0;
            return Step::Keep { why: "no other choice is noticeably better" };
        }
        self.better_for += 1;
        if self.better_for < self.patience.windows {
            return Step::Keep { why: "another choice is better, but not for long" };
        }
        let rest = (self.patience.rest * self.reconfigure_ms).max(self.patience.rest_of_change * self.took_ms);
        if self.changed_ms.is_some_and(|changed| now_ms.saturating_sub(changed) < rest) {
            return Step::Keep { why: "the card was configured a short time ago" };
        }
        self.rules = choice.rules.clone();
        (self.better_for, self.changed_ms) = (0, Some(now_ms));
        Step::Change { why: if overflows { "the link is full" } else { "it saves cycles" } }
    }
}
