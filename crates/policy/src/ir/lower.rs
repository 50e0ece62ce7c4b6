//! Checked -> IR: rules become nested tests, guards become explicit, each question to a table gets a number.

use super::{Chain, Direction, Effect, Find, FindId, Node, Program, Rule, RuleId, Slot, SlotId, Test, Wanted};
use crate::checked::{self, Checked, Match};
use crate::pass::choose_layouts::{self, CostModel, Plan, Planned};
use crate::source::{SourceMap, Span};

/// The third stage: a program as written, one top node a rule, and where each rule stands in the text.
#[derive(Clone, Debug)]
pub struct Lowered {
    /// The program.
    pub program: Program,
    /// Which tables its slots hold, and why.
    pub plan: Plan,
    /// The text of each rule.
    pub spans: Vec<Span>,
}

/// Lowers a checked policy. It cannot fail: what has no meaning was rejected by `check`.
pub fn lower(policy: &Checked, sources: &SourceMap, model: &CostModel) -> Lowered {
    let plan = choose_layouts::plan(policy, model);
    let table = |id: &checked::TableId| &policy.tables[usize::from(id.0)];
    let slots = plan.images.iter().map(|Planned { tables, layout, .. }| Slot {
        tables: tables.iter().map(|id| table(id).name.clone()).collect(),
        family: table(&tables[0]).family,
        layout: *layout,
    });
    let mut program = Program {
        name: policy.name.clone(),
        defaults: policy.defaults,
        on_exit: policy.on_exit,
        slots: slots.collect(),
        rules: Vec::new(),
        chains: Vec::new(),
    };
    let mut spans = Vec::new();
    for posture in &policy.postures {
        for direction in Direction::BOTH {
            let chain = match rules_of(posture, direction) {
                Some(rules) => {
                    let (program, spans) = (&mut program, &mut spans);
                    let mut chain = Lowering { policy, plan: &plan, sources, program, spans, finds: vec![] };
                    let body = rules.iter().map(|rule| chain.rule(rule)).collect();
                    Chain { posture: None, direction, finds: chain.finds, staged: vec![], body }
                }
                // A named posture inherits what it does not say; the base policy has nothing to inherit.
                None => match program.chain(None, direction) {
                    Some(base) => program.chains[base].clone(),
                    None => Chain { posture: None, direction, finds: vec![], staged: vec![], body: vec![] },
                },
            };
            program.chains.push(Chain { posture: posture.name.clone(), ..chain });
        }
    }
    Lowered { program, plan, spans }
}

fn rules_of(posture: &checked::Posture, direction: Direction) -> Option<&Vec<checked::Rule>> {
    match direction {
        Direction::Upstream => posture.upstream.as_ref(),
        Direction::Downstream => posture.downstream.as_ref(),
    }
}

/// The chain being lowered.
struct Lowering<'a> {
    policy: &'a Checked,
    plan: &'a Plan,
    sources: &'a SourceMap,
    program: &'a mut Program,
    spans: &'a mut Vec<Span>,
    finds: Vec<Find>,
}

impl Lowering<'_> {
    fn rule(&mut self, rule: &checked::Rule) -> Node {
        let id = RuleId(u16::try_from(self.program.rules.len()).expect("check bounds the number of rules"));
        self.program.rules.push(Rule {
            at: self.sources.cite(rule.span),
            text: one_line(self.sources.text(rule.span)),
            effects: rule.effects.iter().filter_map(|effect| self.effect(effect)).collect(),
        });
        self.spans.push(rule.span);
        let steps: Vec<Step> = rule.matches.iter().flat_map(|m| self.steps(m)).collect();
        let mut body = vec![Node::Rule(id)];
        for step in steps.into_iter().rev() {
            match step {
                Step::Test(test) => body = vec![Node::When { test, body }],
                Step::Find(find) => body.insert(0, Node::Find(find)),
            }
        }
        body.remove(0)
    }

    fn effect(&self, effect: &checked::Effect) -> Option<Effect> {
        Some(match effect {
            checked::Effect::Counter => return None,
            checked::Effect::Sample { one_in } => Effect::Sample { one_in: *one_in },
            checked::Effect::Limit { key, limits } => {
                Effect::Limit { key: *key, limits: self.policy.limits[usize::from(limits.0)].name.clone() }
            }
            checked::Effect::Track => Effect::Track,
            checked::Effect::Verdict(action) => Effect::Verdict(*action),
        })
    }

    /// What a match asks, its guard first.
    fn steps(&mut self, condition: &Match) -> Vec<Step> {
        match condition {
            Match::Guard(guard) => vec![Step::Test(Test::Guard(*guard))],
            Match::Value { subject, mask, set, negated } => {
                let test = Test::Value { subject: *subject, mask: *mask, set: set.clone(), negated: *negated };
                vec![Step::Test(Test::Guard(subject.guard())), Step::Test(test)]
            }
            Match::Table { key, table, labels, negated } => {
                let (slot, index) = self.plan.place(*table);
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

/// One question of a match. A find always stands behind the guard of its key.
enum Step {
    Test(Test),
    Find(FindId),
}

/// A rule's text as one line: runs of white space folded, comments inside left out.
fn one_line(text: &str) -> String {
    let words = text.lines().flat_map(|line| without_comment(line).split_whitespace());
    words.filter(|&word| word != "\\").collect::<Vec<_>>().join(" ")
}

/// A line up to its comment; a `#` in a string begins none.
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
