//! Verifies the invariants of programs. A violation is a compiler bug or an error in hand-written IR.

use super::{
    Adder, Chain, EachLimit, Effect, FindId, LimitEach, LimiterId, LimiterKind, Log, Node, Observe, Program, RuleId,
    RuleSlotId, SlotContents, SlotId, Synproxy, Test, Threshold, Tracking, Wanted,
};
use crate::field::{Field, Guard, Notation, Subject};
use crate::ir::answers::Answering;
use crate::pass::choose_layouts::FUSED_MAX;
use weir_abi::{Layout, Reason, each, features, flow, seats, slot};

/// Deepest nesting of tests. `check` bounds the number of matches of a rule accordingly.
pub const DEPTH_MAX: usize = 256;

/// Checks a program.
///
/// # Errors
/// The first violated invariant, and where.
pub fn verify(program: &Program) -> Result<(), String> {
    verify_declarations(program)?;
    program.chains.iter().try_for_each(|chain| verify_chain(program, chain, false).map(|_| ()))
}

/// Checks a program whose chains are the parts of one chain, in order: a packet that one part tracks is tracked in the
/// next.
///
/// # Errors
/// The first violated invariant, and where.
pub fn verify_parts(program: &Program) -> Result<(), String> {
    verify_declarations(program)?;
    let mut parts = program.chains.iter();
    parts.try_fold(false, |tracked, part| verify_chain(program, part, tracked)).map(|_| ())
}

/// Checks a chain whose packets are `tracked` before it. Returns whether they are tracked after it.
fn verify_chain(program: &Program, chain: &Chain, tracked: bool) -> Result<bool, String> {
    let found = chain.tree.staged.clone();
    let mut walk =
        Walk { program, chain, guards: vec![Guard::Any], found, limiters: vec![], rule_slots: vec![], tracked };
    walk.chain().map_err(|what| format!("chain {}: {what}", chain.symbol()))?;
    Ok(walk.tracked)
}

fn verify_declarations(program: &Program) -> Result<(), String> {
    if program.rules.len() > Reason::RULES_MAX {
        return Err(format!("{} rules, at most {}", program.rules.len(), Reason::RULES_MAX));
    }
    for (index, rule) in program.rules.iter().enumerate() {
        let verdicts = rule.effects.iter().filter(|effect| matches!(effect, Effect::Verdict(_))).count();
        if verdicts > 1 || (verdicts == 1 && rule.verdict().is_none()) {
            return Err(format!("rule {index}: a verdict that is not the last effect"));
        }
    }
    for (index, limiter) in program.limiters.iter().enumerate() {
        if matches!(&limiter.kind, LimiterKind::Each(each) if !is_sound(each) || limiter.log == Log::All) {
            return Err(format!("limiter {index}: an address, size or burst that is out of bounds"));
        }
    }
    for (index, slot) in program.slots.iter().enumerate() {
        let fits = slot.layout.is_fused() && slot.tables().len() <= FUSED_MAX;
        let empty = matches!(&slot.contents, SlotContents::Tables(names) if names.is_empty());
        if slot.counted.is_some()
            && (slot.tables().len() != 1 || !matches!(slot.layout, Layout::RankLeaf | Layout::RankLeaf6))
        {
            return Err(format!("slot {index}: no entries with counters in {}", slot.layout.name()));
        }
        if empty || slot.is_fused() && !fits {
            return Err(format!("slot {index}: {} tables in {}", slot.tables().len(), slot.layout.name()));
        }
    }
    for (index, adder) in program.adders.iter().enumerate() {
        verify_adder(program, adder).map_err(|what| format!("adder {index}: {what}"))?;
    }
    let sizes = 1..=slot::RULES_MAX;
    if program.rule_slots.len() > slot::SLOTS_MAX
        || program.rule_slots.iter().any(|slot| !sizes.contains(&usize::from(slot.size)))
    {
        return Err("slots: a size or a number of them that is out of bounds".to_owned());
    }
    if program.tracking.is_some_and(|tracking| !is_sound_tracking(&tracking)) {
        return Err("tracking: a size, share or timeout that is out of bounds".to_owned());
    }
    if let Some(card) = &program.card {
        verify_card(program, card)?;
    }
    if program.inside[0].ranges().iter().any(|&(_, last)| last > u32::MAX.into()) {
        return Err("inside: an IPv4 address is out of bounds".to_owned());
    }
    if program.observe.as_ref().is_some_and(|observe| !is_sound_observe(observe)) {
        return Err("observe: a size, length or set that is out of bounds".to_owned());
    }
    Ok(())
}

/// A card's body has its bounds, and each of its lookups a slot with one constant table in the card's layout.
fn verify_card(program: &Program, card: &Answering) -> Result<(), String> {
    let is_lookup = |id: &SlotId| {
        let slot = program.slots.get(usize::from(id.0));
        slot.is_some_and(|slot| {
            slot.layout == Layout::Dxr16x4
                && slot.tables().len() == 1
                && slot.dynamic.is_none()
                && !program.chains.iter().flat_map(|chain| &chain.finds).any(|find| find.slot == *id)
        })
    };
    if !card.is_sound() || !card.lookups.iter().all(is_lookup) {
        return Err("card: a body or a lookup that no card has".to_owned());
    }
    Ok(())
}

/// An adder needs a slot with one dynamic set of its family, and a prefix length of its key.
fn verify_adder(program: &Program, Adder { slot: id, key, length, .. }: &Adder) -> Result<(), String> {
    let slot = program.slots.get(usize::from(id.0)).ok_or_else(|| format!("slot {} does not exist", id.0))?;
    if slot.dynamic.is_none() || slot.tables().len() != 1 {
        return Err(format!("slot {} is not a dynamic table", id.0));
    }
    let is_address = matches!(key.notation(), Notation::Ipv4Address | Notation::Ipv6Address);
    if !is_address || key.bits() != slot.family.bits() || !(1..=key.bits()).contains(length) {
        return Err(format!("`{}/{length}` is not a prefix for slot {}", key.name(), id.0));
    }
    Ok(())
}

struct Walk<'a> {
    program: &'a Program,
    chain: &'a Chain,
    /// Guards that hold here.
    guards: Vec<Guard>,
    /// Finds done on the path to here.
    found: Vec<FindId>,
    /// Limiters that an earlier statement uses.
    limiters: Vec<LimiterId>,
    /// Slots that an earlier statement asks.
    rule_slots: Vec<RuleSlotId>,
    /// Whether the packet is tracked on the path to here.
    tracked: bool,
}

impl Walk<'_> {
    fn chain(&mut self) -> Result<(), String> {
        for (index, find) in self.chain.finds.iter().enumerate() {
            let slot = self.program.slots.get(usize::from(find.slot.0));
            let slot = slot.ok_or_else(|| format!("find {index} uses slot {}, which does not exist", find.slot.0))?;
            if find.key.bits() != slot.family.bits() {
                return Err(format!("find {index} uses slot {} with a key of another family", find.slot.0));
            }
        }
        if let Some(id) = self.chain.tree.staged.iter().find(|id| usize::from(id.0) >= self.chain.finds.len()) {
            return Err(format!("stages find {}, which does not exist", id.0));
        }
        self.block(&self.chain.tree.nodes, 0)
    }

    fn block(&mut self, nodes: &[Node], depth: usize) -> Result<(), String> {
        if depth > DEPTH_MAX {
            return Err(format!("nested deeper than {DEPTH_MAX}"));
        }
        for node in nodes {
            match node {
                Node::Rule(id) if usize::from(id.0) >= self.program.rules.len() => {
                    return Err(format!("rule {} does not exist", id.0));
                }
                Node::Track if depth > 0 || self.tracked || self.program.tracking.is_none() => {
                    return Err("a packet is tracked at most once, outside of all tests".to_owned());
                }
                Node::Track => self.tracked = true,
                Node::Rule(id) => {
                    self.track(*id)?;
                    self.limits(*id)?;
                    self.counts(*id)?;
                    self.additions(*id)?;
                    self.rule_slots(*id)?;
                }
                Node::Find(id) => {
                    let find = self.chain.finds.get(usize::from(id.0));
                    let find = find.ok_or_else(|| format!("find {} does not exist", id.0))?;
                    self.needs(find.key.guard())?;
                    self.found.push(*id);
                }
                Node::When { test, body } => {
                    self.test(test)?;
                    let (guards, found) = (self.guards.len(), self.found.len());
                    if let Test::Guard(guard) = test {
                        self.guards.push(*guard);
                    }
                    self.block(body, depth + 1)?;
                    self.guards.truncate(guards);
                    self.found.truncate(found);
                }
            }
        }
        Ok(())
    }

    /// A rule counts at entries that were found on the path to it, in slots with counters.
    fn counts(&self, rule: RuleId) -> Result<(), String> {
        for effect in &self.program.rule(rule).effects {
            let Effect::Count { find } = effect else { continue };
            let found = self.found.contains(find).then(|| self.chain.finds[usize::from(find.0)].slot);
            if found.is_none_or(|slot| self.program.slot(slot).counted.is_none()) {
                return Err(format!("rule {} counts at find {}, which finds no entry with counters", rule.0, find.0));
            }
        }
        Ok(())
    }

    /// A rule that drops what the tracker refuses comes after the tracking, and does so first.
    fn track(&self, rule: RuleId) -> Result<(), String> {
        let effects = &self.program.rule(rule).effects;
        let last = effects.iter().rposition(Effect::tracks);
        if effects.contains(&Effect::Synproxy)
            && self.program.tracking.is_none_or(|settings| settings.synproxy.is_none())
        {
            return Err(format!("rule {}: nothing says how SYNs are answered", rule.0));
        }
        match last.map(|last| &effects[..last]) {
            Some(before) if !self.tracked || !before.iter().all(Effect::tracks) => {
                Err(format!("rule {}: packets are not tracked yet", rule.0))
            }
            _ => Ok(()),
        }
    }

    /// Each limit of a rule must use the right find, and no other statement of the chain may use its limiter.
    fn limits(&mut self, rule: RuleId) -> Result<(), String> {
        for effect in &self.program.rule(rule).effects {
            let Effect::Limit { limiter: id, find, .. } = effect else { continue };
            let limiter = self.program.limiters.get(usize::from(id.0));
            let limiter = limiter.ok_or_else(|| format!("limiter {} does not exist", id.0))?;
            if limiter.direction != self.chain.direction {
                return Err(format!("limiter {} belongs to the other direction", id.0));
            }
            if self.limiters.contains(id) {
                return Err(format!("limiter {} has two statements", id.0));
            }
            self.limiters.push(*id);
            let found = find.filter(|find| self.found.contains(find));
            let slot = found.map(|find| self.program.slot(self.chain.finds[usize::from(find.0)].slot));
            let fits = match (limiter.kind, slot) {
                (LimiterKind::Prefixes { family, .. }, Some(slot)) => {
                    slot.family == family && slot.contents == SlotContents::Limits(limiter.name.clone())
                }
                (LimiterKind::Labels, Some(slot)) => slot.tables().len() == 1,
                (LimiterKind::Rate(_), None) => find.is_none(),
                (LimiterKind::Each(each), None) => {
                    self.needs(each.key.guard())?;
                    if each.connections().is_some() && !self.tracked {
                        return Err(format!("limiter {} is charged before packets are tracked", id.0));
                    }
                    find.is_none()
                }
                _ => false,
            };
            if !fits {
                return Err(format!("rule {}: limiter {} has the wrong find", rule.0, id.0));
            }
        }
        Ok(())
    }

    /// Each addition of a rule must use an adder whose key the packet has.
    fn additions(&self, rule: RuleId) -> Result<(), String> {
        for id in self.program.rule(rule).effects.iter().filter_map(Effect::adder) {
            let adder = self.program.adders.get(usize::from(id.0));
            self.needs(adder.ok_or_else(|| format!("adder {} does not exist", id.0))?.key.guard())?;
        }
        Ok(())
    }

    /// Each slot exists, and no other statement of the chain asks it.
    fn rule_slots(&mut self, rule: RuleId) -> Result<(), String> {
        for id in self.program.rule(rule).effects.iter().filter_map(Effect::rule_slot) {
            if usize::from(id.0) >= self.program.rule_slots.len() || self.rule_slots.contains(&id) {
                return Err(format!("rule {}: rules {} do not exist, or have two statements", rule.0, id.0));
            }
            self.rule_slots.push(id);
        }
        Ok(())
    }

    fn test(&self, test: &Test) -> Result<(), String> {
        match test {
            Test::Guard(_) => Ok(()),
            Test::Value { subject: Subject::Field(Field::CtState), .. } if !self.tracked => {
                Err("a state is tested before the packet is tracked".to_owned())
            }
            Test::Value { subject: Subject::Card(_), .. }
                if self.program.card.as_ref().is_none_or(|card| !card.has(test)) =>
            {
                Err("a test of an answer that the card's body does not have".to_owned())
            }
            Test::Value { subject, .. } => self.needs(subject.guard()),
            Test::Found { find, wanted, .. } => {
                if !self.found.contains(find) {
                    return Err(format!("find {} is tested before it is done", find.0));
                }
                let slot = self.program.slot(self.chain.finds[usize::from(find.0)].slot);
                match wanted {
                    _ if matches!(slot.contents, SlotContents::Limits(_)) => {
                        Err(format!("find {} looks up limits, which cannot be tested", find.0))
                    }
                    Wanted::Table(index) if usize::from(*index) >= slot.tables().len() => {
                        Err(format!("find {} has no table {index}", find.0))
                    }
                    Wanted::Any | Wanted::Labels(_) if slot.is_fused() => {
                        Err(format!("find {} looks up {} tables, but its test names none", find.0, slot.tables().len()))
                    }
                    Wanted::Labels(labels) if labels.is_empty() || !labels.is_sorted_by(|a, b| a < b) => {
                        Err(format!("labels of find {} are not a sorted set", find.0))
                    }
                    Wanted::Any | Wanted::Labels(_) | Wanted::Table(_) => Ok(()),
                }
            }
        }
    }

    fn needs(&self, guard: Guard) -> Result<(), String> {
        if self.guards.iter().any(|held| held.implies(guard)) {
            Ok(())
        } else {
            Err(format!("a test is outside of its guard '{}'", guard.name()))
        }
    }
}

/// Whether the bounds of a `limit each` are valid.
fn is_sound(LimitEach { key, length, limit, size }: &LimitEach) -> bool {
    let sizes = each::SIZE_MIN..=each::SIZE_MAX;
    matches!(key.notation(), Notation::Ipv4Address | Notation::Ipv6Address)
        && (1..=key.bits()).contains(length)
        && size.is_power_of_two()
        && sizes.contains(size)
        && match *limit {
            EachLimit::Rate(limit) => each::profile(limit).is_some(),
            EachLimit::Connections(number) => {
                (1..=seats::SEATS_MAX).contains(&number) && seats::table_words(*size, number) <= seats::WORDS_MAX
            }
        }
}

/// Whether the settings of `observe` are valid.
fn is_sound_observe(Observe { size, lengths: [ipv4, ipv6], inside }: &Observe) -> bool {
    size.is_power_of_two()
        && (features::SIZE_MIN..=features::SIZE_MAX).contains(size)
        && *ipv4 <= 32
        && *ipv6 <= 128
        && inside.iter().all(|set| set.ranges().len() <= features::RANGES_MAX)
        && inside[0].ranges().iter().all(|&(_, last)| last <= u32::MAX.into())
}

/// Whether the settings of the tracker are valid.
fn is_sound_tracking(
    Tracking { size, embryonic_percent, unproven_percent, timeouts_ms, one_way, vlan_ignore, synproxy, .. }: &Tracking,
) -> bool {
    (flow::SIZE_MIN..=flow::SIZE_MAX).contains(size)
        && [embryonic_percent, unproven_percent].iter().all(|share| (1..=100).contains(*share))
        && timeouts_ms.iter().all(|timeout| (1..=flow::TIMEOUT_MAX_MS).contains(timeout))
        && synproxy.as_ref().is_none_or(|synproxy| !one_way && !vlan_ignore && is_sound_synproxy(synproxy))
}

fn is_sound_synproxy(Synproxy { mss, wscale, sack, timestamp, threshold }: &Synproxy) -> bool {
    let is_sound = |&Threshold { on, off, calm_s }: &Threshold| {
        (1..=on).contains(&off) && (1..=Threshold::CALM_MAX_S).contains(&calm_s)
    };
    (Synproxy::MSS_MIN..=Synproxy::MSS_MAX).contains(mss)
        && wscale.is_none_or(|shift| shift <= flow::Side::SCALE_MAX)
        && (*timestamp || wscale.is_none() && !sack)
        && threshold.as_ref().is_none_or(is_sound)
}
