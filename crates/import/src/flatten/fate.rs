//! What would happen to packets further on, without writing rules.

use super::{Flattener, Frame, Place};
use crate::condition::{Condition, covers, joined};
use crate::finding::Effect;
use crate::ruleset::{Rule, Verdict};

/// What happens to all of some packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// They are dropped.
    Dropped,
    /// They reach the end of the chain.
    Through,
    /// Something else, or not the same for all.
    Other,
}

/// Most calls that are followed.
const DEPTH_MAX: usize = 8;

impl Flattener<'_> {
    /// Whether a rule changes nothing, whatever it matches.
    pub(super) fn is_inert(&self, rule: &Rule) -> bool {
        rule.verdict == Verdict::Continue
            && rule.adds.is_empty()
            && !rule.limit.as_ref().is_some_and(|limit| limit.counts_connections && limit.is_over)
    }

    /// Whether a chain from a rule on decides nothing, so that leaving it there changes nothing.
    pub(super) fn is_idle(&self, at: Frame, depth: usize) -> bool {
        let rules = self.ruleset.chains[at.chain].rules.get(at.rule..).unwrap_or_default();
        let is_plain = |rule: &Rule| rule.adds.is_empty() && rule.limit.is_none();
        depth < DEPTH_MAX
            && rules.iter().all(|rule| match &rule.verdict {
                _ if self.is_tired() => false,
                Verdict::Return => is_plain(rule),
                Verdict::Jump(chain) => is_plain(rule) && self.is_idle(Frame { chain: *chain, rule: 0 }, depth + 1),
                _ => self.is_inert(rule),
            })
    }

    /// Whether no rule at these places and behind them, in their chains, could drop or add. Rules that are left out
    /// could not: they are in no policy.
    pub(super) fn is_rest_inert(&self, frames: &[Frame]) -> bool {
        let rules = |frame: &Frame| self.ruleset.chains[frame.chain].rules.get(frame.rule..).unwrap_or_default();
        let is_inert = |rule: &Rule| rule.foreign().is_some() || self.is_harmless_rule(rule, 0);
        frames.iter().all(|frame| rules(frame).iter().all(is_inert))
    }

    /// Whether a chain from a rule on drops and adds nothing.
    fn is_harmless(&self, chain: usize, first: usize, depth: usize) -> bool {
        let rules = self.ruleset.chains[chain].rules.get(first..).unwrap_or_default();
        depth < DEPTH_MAX && rules.iter().all(|rule| self.is_harmless_rule(rule, depth))
    }

    fn is_harmless_rule(&self, rule: &Rule, depth: usize) -> bool {
        let is_plain = rule.adds.is_empty() && rule.limit.is_none();
        match &rule.verdict {
            _ if self.is_tired() => false,
            Verdict::Continue => self.is_inert(rule),
            Verdict::Accept | Verdict::Return => is_plain,
            Verdict::Jump(target) | Verdict::Goto(target) => is_plain && self.is_harmless(*target, 0, depth + 1),
            Verdict::Drop | Verdict::Foreign(_) => false,
        }
    }

    /// Whether no base chain behind this one could drop these packets.
    pub(super) fn is_last(&self, base: usize, packets: &[Condition]) -> bool {
        (base + 1..self.bases.len()).all(|later| {
            let (chain, settings) = self.chain_of(later);
            let is_harmless = !settings.drops && self.is_harmless(self.bases[later], 0, 0);
            is_harmless || joined(packets, &chain.scope).is_none()
        })
    }

    /// What happens to packets behind a rule.
    pub(super) fn fate_behind(&self, place: Place<'_>, packets: &[Condition]) -> Fate {
        let next = Frame { rule: place.at.rule + 1, ..place.at };
        for frame in std::iter::once(&next).chain(place.callers.iter().rev()) {
            match self.fate(place.base, *frame, packets, 0) {
                Fate::Through => {}
                fate => return fate,
            }
        }
        if self.chain_of(place.base).1.drops { Fate::Dropped } else { Fate::Other }
    }

    /// What happens to packets from a place in a chain on, to the end of the chain.
    pub(super) fn fate(&self, base: usize, at: Frame, packets: &[Condition], depth: usize) -> Fate {
        if depth > DEPTH_MAX {
            return Fate::Other;
        }
        for rule in self.ruleset.chains[at.chain].rules.get(at.rule..).unwrap_or_default() {
            let conditions = match self.resolve(base, rule) {
                _ if self.is_tired() => return Fate::Other,
                None => continue,
                _ if self.is_inert(rule) => continue,
                Some(Ok(conditions)) => conditions,
                // A rule that cannot be written is left out.
                Some(Err(_)) => return Fate::Other,
            };
            let Some(here) = joined(packets, &conditions) else { continue };
            let is_plain = rule.limit.is_none() && rule.adds.is_empty();
            let is_whole = covers(packets, &conditions);
            let fate = match &rule.verdict {
                Verdict::Drop => Fate::Dropped,
                Verdict::Return if is_whole && is_plain => return Fate::Through,
                Verdict::Jump(target) => self.fate(base, Frame { chain: *target, rule: 0 }, &here, depth + 1),
                Verdict::Goto(target) => match self.fate(base, Frame { chain: *target, rule: 0 }, &here, depth + 1) {
                    Fate::Through => Fate::Other,
                    fate => fate,
                },
                _ => Fate::Other,
            };
            match fate {
                Fate::Through => {}
                Fate::Dropped if is_whole && is_plain => return Fate::Dropped,
                // Some of the packets are dropped here, the others by what follows.
                Fate::Dropped if is_plain => {}
                _ => return Fate::Other,
            }
        }
        Fate::Through
    }

    /// What it means for packets that a rule is missing.
    pub(super) fn missing_effect(&self, place: Place<'_>, rule: &Rule) -> Effect {
        if let Verdict::Return = rule.verdict {
            return inverse(self.effect_from(place.at.chain, place.at.rule + 1, 0));
        }
        self.rule_effect(rule, 0)
    }

    /// What it means for packets that a chain is missing.
    pub(super) fn chain_effect(&self, chain: usize, depth: usize) -> Effect {
        self.effect_from(chain, 0, depth)
    }

    fn effect_from(&self, chain: usize, first: usize, depth: usize) -> Effect {
        let rules = self.ruleset.chains[chain].rules.get(first..).unwrap_or_default();
        let drops = self.ruleset.chains[chain].base.as_ref().is_some_and(|base| base.drops);
        let policy = if drops { Effect::PassesMore } else { Effect::Same };
        rules.iter().map(|rule| self.rule_effect(rule, depth)).fold(policy, Effect::and)
    }

    fn rule_effect(&self, rule: &Rule, depth: usize) -> Effect {
        let of_adds = if rule.adds.is_empty() { Effect::Same } else { Effect::Unknown };
        let of_verdict = match &rule.verdict {
            _ if self.is_tired() => Effect::Unknown,
            Verdict::Continue => Effect::Same,
            Verdict::Drop => Effect::PassesMore,
            Verdict::Accept => Effect::PassesLess,
            Verdict::Jump(target) | Verdict::Goto(target) if depth < DEPTH_MAX => self.chain_effect(*target, depth + 1),
            // Only rules behind it could tell.
            Verdict::Return => Effect::Same,
            Verdict::Jump(_) | Verdict::Goto(_) | Verdict::Foreign(_) => Effect::Unknown,
        };
        of_adds.and(of_verdict)
    }
}

/// The effect of leaving out what spares packets from rules.
fn inverse(effect: Effect) -> Effect {
    match effect {
        Effect::PassesMore => Effect::PassesLess,
        Effect::PassesLess => Effect::PassesMore,
        effect => effect,
    }
}
