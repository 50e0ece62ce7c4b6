//! Following traffic: a choice is changed only if another one is better for some time. Each change is an epoch of the card,
//! so no packet is judged by a mixture.

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
    /// The time between changes, as a multiple of a reconfiguration.
    pub rest: u64,
}

impl Default for Patience {
    fn default() -> Self {
        Patience { margin: 0.05, floor: 1.0, windows: 3, rest: 100 }
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
}

/// What happens after a window.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// The choice stays.
    Keep {
        /// Why.
        why: &'static str,
    },
    /// These rules are offloaded from the next epoch on.
    Change {
        /// The rules.
        rules: BTreeSet<RuleId>,
        /// The cost before, in this window.
        from: Bill,
        /// The cost after, in this window.
        to: Bill,
    },
}

impl Follower {
    /// No rule is offloaded yet.
    pub fn new(profile: &Profile, patience: Patience) -> Self {
        let reconfigure_ms = profile.reconfigure_ms;
        Follower { patience, reconfigure_ms, rules: BTreeSet::new(), better_for: 0, changed_ms: None }
    }

    /// The rules that are offloaded.
    pub fn rules(&self) -> &BTreeSet<RuleId> {
        &self.rules
    }

    /// A window has ended at this time.
    pub fn step(&mut self, distributor: &Distributor<'_>, traffic: &Traffic, now_ms: u64) -> Step {
        let now = distributor.cost_of(&self.rules, traffic);
        let Advised { choice, .. } = distributor.choose(traffic);
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
        let rest = self.patience.rest * self.reconfigure_ms;
        if self.changed_ms.is_some_and(|changed| now_ms.saturating_sub(changed) < rest) {
            return Step::Keep { why: "the card was configured a short time ago" };
        }
        self.rules = choice.rules.clone();
        (self.better_for, self.changed_ms) = (0, Some(now_ms));
        Step::Change { rules: choice.rules, from: now, to: choice.bill }
    }
}
