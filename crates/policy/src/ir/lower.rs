//! Lowers a checked policy to IR: rules become nested tests, guards become explicit, and each table lookup gets a
//! number.

use super::{
    Adder, AdderId, Chain, Direction, Effect, Find, FindId, Limiter, LimiterId, LimiterKind, Log, MatchTree,
    SlotContents,
};
use super::{Node, Program, Rule, RuleId, Slot, SlotId, Test, Wanted};
use crate::catalog::Catalog;
use crate::checked::{self, Checked, Exceed, LimitBy, LimitKeys, LimitOwner, Match};
use crate::pass::choose_layouts::{self, CostModel, ImageContents, Plan, Planned};
use crate::source::{SourceMap, Span};
use std::collections::HashMap;

/// The third stage: the program before optimisation, with one top node for each rule.
#[derive(Clone, Debug)]
pub struct Lowered {
    /// The program.
    pub program: Program,
    /// Which tables the slots hold, and why.
    pub plan: Plan,
    /// The text of each rule.
    pub spans: Vec<Span>,
    /// Whether each rule has a `counter` statement. All rules count; the statement says that the counter is read.
    pub counters: Vec<bool>,
    /// Where the policy says that flows are tracked.
    pub tracking: Option<Span>,
    /// Where the policy says what is observed.
    pub observe: Option<Span>,
}

/// Lowers a checked policy. It cannot fail, because `check` rejects invalid policies.
pub fn lower(policy: &Checked, sources: &SourceMap, catalog: &dyn Catalog, model: &CostModel) -> Lowered {
    let plan = choose_layouts::plan(policy, catalog, model);
    let mut program = Program {
        name: policy.name.clone(),
        defaults: policy.defaults,
        on_exit: policy.on_exit,
        tracking: policy.tracking.map(|(tracking, _)| tracking),
        observe: policy.observe.as_ref().map(|(observe, _)| observe.clone()),
        inside: policy
            .inside
            .as_ref()
            .filter(|inside| !inside.has_tables)
            .map_or_else(Default::default, |inside| inside.sets.clone()),
        slots: plan.images.iter().map(|planned| slot(policy, planned)).collect(),
        limiters: Vec::new(),
        adders: Vec::new(),
        rule_slots: policy.rule_slots.clone(),
        rules: Vec::new(),
        chains: Vec::new(),
        card: None,
    };
    let (mut spans, mut counters) = (Vec::new(), Vec::new());
    for posture in &policy.postures {
        for direction in Direction::BOTH {
            let chain = match rules_of(posture, direction) {
                Some(rules) => {
                    let has_counter = |rule: &checked::Rule| rule.effects.contains(&checked::Effect::Counter);
                    counters.extend(rules.iter().map(has_counter));
                    let (program, spans) = (&mut program, &mut spans);
                    let (finds, ordinals) = (vec![], HashMap::new());
                    let plan = &plan;
                    let mut chain = Lowering { policy, plan, sources, program, spans, direction, finds, ordinals };
                    let mut nodes: Vec<Node> = rules.iter().map(|rule| chain.rule(rule)).collect();
                    if let Some(first) =
                        nodes.iter().position(|node| node.needs_state(&chain.program.rules, &chain.program.limiters))
                    {
                        nodes.insert(first, Node::Track);
                    }
                    let tree = MatchTree { staged: vec![], nodes };
                    Chain { posture: None, direction, finds: chain.finds, tree }
                }
                // A named posture inherits the directions that it lacks from the base policy.
                None => match program.chain(None, direction) {
                    Some(base) => program.chains[base].clone(),
                    None => {
                        let tree = MatchTree { staged: vec![], nodes: vec![] };
                        Chain { posture: None, direction, finds: vec![], tree }
                    }
                },
            };
            program.chains.push(Chain { posture: posture.name.clone(), ..chain });
        }
    }
    only_used_counters(&mut program);
    let tracking = policy.tracking.map(|(_, span)| span);
    let observe = policy.observe.as_ref().map(|(_, span)| *span);
    Lowered { program, plan, spans, counters, tracking, observe }
}

fn slot(policy: &Checked, planned: &Planned) -> Slot {
    let table = |id: &checked::TableId| &policy.tables[usize::from(id.0)];
    match &planned.contents {
        ImageContents::Tables(tables) => {
            let contents = SlotContents::Tables(tables.iter().map(|id| table(id).name.clone()).collect());
            // A dynamic table has an image of its own, and so has one with counters.
            let first = table(&tables[0]);
            Slot {
                contents,
                family: first.family,
                layout: planned.layout,
                dynamic: first.dynamic,
                counted: first.counters.then_some(first.kind),
            }
        }
        ImageContents::Limits(list, family) => {
            let contents = SlotContents::Limits(policy.limits[usize::from(list.0)].name.clone());
            Slot { contents, family: *family, layout: planned.layout, dynamic: None, counted: None }
        }
    }
}

/// Tables need no numbers if no rule counts at their entries.
fn only_used_counters(program: &mut Program) {
    let mut counted = vec![false; program.slots.len()];
    for chain in &program.chains {
        for rule in chain.tree.nodes.iter().flat_map(Node::rules) {
            for effect in &program.rule(rule).effects {
                if let Effect::Count { find } = effect {
                    counted[usize::from(chain.finds[usize::from(find.0)].slot.0)] = true;
                }
            }
        }
    }
    let unused = program.slots.iter_mut().zip(counted).filter(|(_, counted)| !counted);
    unused.for_each(|(slot, _)| slot.counted = None);
}

fn rules_of(posture: &checked::Posture, direction: Direction) -> Option<&Vec<checked::Rule>> {
    match direction {
        Direction::Upstream => posture.upstream.as_ref(),
        Direction::Downstream => posture.downstream.as_ref(),
    }
}

/// The state of lowering one chain.
struct Lowering<'a> {
    policy: &'a Checked,
    plan: &'a Plan,
    sources: &'a SourceMap,
    program: &'a mut Program,
    spans: &'a mut Vec<Span>,
    direction: Direction,
    finds: Vec<Find>,
    /// Number of limit statements so far for each owner.
    ordinals: HashMap<LimitOwner, u16>,
}

impl Lowering<'_> {
    fn rule(&mut self, rule: &checked::Rule) -> Node {
        let id = RuleId(u16::try_from(self.program.rules.len()).expect("check bounds the number of rules"));
        let mut steps: Vec<Step> = rule.matches.iter().flat_map(|m| self.steps(m)).collect();
        let mut effects: Vec<Effect> = rule.effects.iter().filter_map(|effect| self.effect(effect)).collect();
        // What the tracker refuses is not counted.
        let first = effects.iter().take_while(|effect| effect.tracks()).count();
        effects.splice(first..first, self.counts(&steps));
        // `check` has put the guards of their addresses among the matches.
        steps.extend(effects.iter().filter_map(Effect::find).map(Step::Find));
        let (at, text) = (self.sources.cite(rule.span), one_line(self.sources.text(rule.span)));
        self.program.rules.push(Rule { at, text, effects });
        self.spans.push(rule.span);
        let mut body = vec![Node::Rule(id)];
        for step in steps.into_iter().rev() {
            match step {
                Step::Test(test) => body = vec![Node::When { test, body }],
                Step::Find(find) => body.insert(0, Node::Find(find)),
            }
        }
        body.remove(0)
    }

    /// The effects that count packets at the entries that the steps have found.
    fn counts(&self, steps: &[Step]) -> Vec<Effect> {
        let mut counts = Vec::new();
        for step in steps {
            let Step::Test(Test::Found { find, negated: false, .. }) = step else { continue };
            let count = Effect::Count { find: *find };
            if self.program.slot(self.finds[usize::from(find.0)].slot).counted.is_some() && !counts.contains(&count) {
                counts.push(count);
            }
        }
        counts
    }

    fn effect(&mut self, effect: &checked::Effect) -> Option<Effect> {
        Some(match effect {
            checked::Effect::Counter => return None,
            checked::Effect::Sample { one_in } => Effect::Sample { one_in: *one_in },
            checked::Effect::Limit { by, add, exceed } => {
                let add = add.as_ref().map(|add| self.adder(add));
                self.limit(by, add, *exceed)
            }
            checked::Effect::Add(add) => Effect::Add { adder: self.adder(add) },
            checked::Effect::Track => Effect::Track,
            checked::Effect::Synproxy => Effect::Synproxy,
            checked::Effect::Slot(slot) => Effect::Slot(*slot),
            checked::Effect::Verdict(action) => Effect::Verdict(*action),
        })
    }

    /// The id of an adder. Equal statements share one.
    fn adder(&mut self, add: &checked::Add) -> AdderId {
        let &checked::Add { kind, table, key, length, timeout_ms } = add;
        let adder = Adder { kind, slot: SlotId(self.plan.image_of(table).0 as u16), key, length, timeout_ms };
        let adders = &mut self.program.adders;
        let known = adders.iter().position(|known| *known == adder);
        let index = known.unwrap_or_else(|| {
            adders.push(adder);
            adders.len() - 1
        });
        AdderId(u16::try_from(index).expect("check bounds the number of additions"))
    }

    fn limit(&mut self, by: &LimitBy, add: Option<AdderId>, exceed: Exceed) -> Effect {
        let (find, name, kind, log) = match *by {
            LimitBy::Rate(limit) => (None, "rate".to_owned(), LimiterKind::Rate(limit), Log::Off),
            LimitBy::Each(each, log) => (None, "each".to_owned(), LimiterKind::Each(each), log),
            LimitBy::List { key, limits } => {
                let (list, family) = (&self.policy.limits[usize::from(limits.0)], key.family());
                let (slot, kind) = match list.keys {
                    LimitKeys::Prefixes { nested } => {
                        (self.plan.image_of_limits(limits, family), LimiterKind::Prefixes { family, nested })
                    }
                    LimitKeys::Labels(table) => (self.plan.image_of(table).0, LimiterKind::Labels),
                };
                let find = self.find(Find { slot: SlotId(slot as u16), key });
                (Some(find), list.name.clone(), kind, list.log)
            }
        };
        let next = self.ordinals.entry(by.owner()).or_default();
        let nth = *next;
        *next += 1;
        let limiter = self.limiter(Limiter { name, direction: self.direction, nth, kind, log });
        Effect::Limit { limiter, find, add, exceed }
    }

    /// The id of a limiter. An equal limiter of another posture is shared.
    fn limiter(&mut self, limiter: Limiter) -> LimiterId {
        let limiters = &mut self.program.limiters;
        let known = limiters.iter().position(|known| *known == limiter);
        let index = known.unwrap_or_else(|| {
            limiters.push(limiter);
            limiters.len() - 1
        });
        LimiterId(u16::try_from(index).expect("check bounds the number of limiters"))
    }

    /// The steps of a match, its guard first.
    fn steps(&mut self, condition: &Match) -> Vec<Step> {
        match condition {
            Match::Guard(guard) => vec![Step::Test(Test::Guard(*guard))],
            Match::Value { subject, mask, set, negated } => {
                let test = Test::Value { subject: *subject, mask: *mask, set: set.clone(), negated: *negated };
                vec![Step::Test(Test::Guard(subject.guard())), Step::Test(test)]
            }
            Match::Table { key, table, labels, negated } => {
                let (slot, index) = self.plan.image_of(*table);
                let find = self.find(Find { slot: SlotId(slot as u16), key: *key });
                let wanted = match labels {
                    Some(labels) => Wanted::Labels(labels.clone()),
                    None if self.program.slots[slot].is_fused() => Wanted::Table(index as u8),
                    None => Wanted::Any,
                };
                let test = Test::Found { find, wanted, negated: *negated };
                vec![Step::Test(Test::Guard(key.guard())), Step::Find(find), Step::Test(test)]
            }
        }
    }

    fn find(&mut self, find: Find) -> FindId {
        let known = self.finds.iter().position(|&f| f == find);
        let index = known.unwrap_or_else(|| {
            self.finds.push(find);
            self.finds.len() - 1
        });
        FindId(u16::try_from(index).expect("fewer finds than tables times address fields"))
    }
}

/// A step of a match. A find always comes after the guard of its key.
enum Step {
    Test(Test),
    Find(FindId),
}

/// A rule's text on one line, with single blanks and without comments.
fn one_line(text: &str) -> String {
    let words = text.lines().flat_map(|line| without_comment(line).split_whitespace());
    words.filter(|&word| word != "\\").collect::<Vec<_>>().join(" ")
}

/// A line without its comment. A `#` in a string begins no comment.
fn without_comment(line: &str) -> &str {
    let mut in_string = false;
    let comment = line.find(|c| {
        in_string ^= c == '"';
        c == '#' && !in_string
    });
    &line[..comment.unwrap_or(line.len())]
}

#[cfg(test)]
mod tests {
    use super::one_line;

    #[test]
    fn rules_on_one_line() {
        let text = "ip saddr @geo {  \"a#b\", # the first\n  HR }\t\\\n  drop";
        assert_eq!(one_line(text), "ip saddr @geo { \"a#b\", HR } drop");
    }
}
