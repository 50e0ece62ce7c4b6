//! From chains that call each other to one list of rules for a direction.
//!
//! A rule of Weir accepts or drops for good, and there are no calls. So a chain stands where it is called, each of its
//! rules with the conditions of the call. What ends a chain early (`return`, or `accept` with another base chain behind
//! it) is followed by the rest of the packet's way, with the conditions under which the packet goes it. A list for some
//! packets that decides them all needs no negations, which is why this is exact:
//!
//! ```text
//! chain pre  { ip saddr 192.0.2.1 accept; udp drop }     ip saddr 192.0.2.1 tcp dport 22 accept   |  the rest
//! chain main { tcp dport 22 accept; drop }          =>   ip saddr 192.0.2.1 drop                  |  for 192.0.2.1
//!                                                        udp drop
//!                                                        tcp dport 22 accept
//!                                                        drop
//! ```

mod fate;
mod limits;
#[cfg(test)]
mod tests;
mod verdict;

use crate::condition::{Condition, covers, joined};
use crate::finding::{Effect, Findings};
use crate::interfaces::{Answer, Interfaces};
use crate::ruleset::{Base, Chain, Hook, Rule, Ruleset, Test, Verdict};
use std::cell::Cell;
use std::collections::HashSet;

/// Most rules of a direction.
pub const RULES_MAX: usize = 20_000;
/// Most chains that call each other. The kernel has the same limit.
const DEPTH_MAX: usize = 16;
/// Most rules that are visited for a direction, so that chains that call each other many times end.
const STEPS_MAX: u64 = 2_000_000;
/// Most earlier rules with which a rule is compared to see whether they leave any packets to it.
const COMPARED_MAX: usize = 500;
/// At the priority of conntrack, and before it, packets have no state.
const CONNTRACK_PRIORITY: i64 = -200;

/// A line of a direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// A comment on a line of its own.
    Comment(String),
    /// A rule.
    Rule(Box<Written>),
}

/// A rule of the policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Its matches.
    pub conditions: Vec<Condition>,
    /// Its statements.
    pub statements: Vec<String>,
    /// `Some(true)` accepts, `Some(false)` drops.
    pub accepts: Option<bool>,
    /// The comment at its end.
    pub comment: Option<String>,
}

/// A place in a chain where its evaluation continues.
#[derive(Clone, Copy, Debug)]
struct Frame {
    chain: usize,
    rule: usize,
}

/// Where a packet is: the base chain, the callers of its chain from the outermost to the innermost, and the chain.
#[derive(Clone, Copy)]
struct Place<'p> {
    base: usize,
    callers: &'p [Frame],
    at: Frame,
}

/// What happened to all packets of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    /// They reached the end of the chain, if no rule decided them.
    Through,
    /// They were accepted, and the next base chain sees them.
    NextBase,
    /// Rules decided them.
    Decided,
}

/// What a rule leaves to the next one.
enum Left {
    /// All packets of the list, except those that it decided.
    Rest,
    /// Packets with one more condition: the others have left the chain.
    Only(Box<Condition>),
    /// No packet.
    Nothing(Flow),
}

/// Why a ruleset cannot be flattened.
type Refused = String;

/// Writes the rules of one direction.
pub struct Flattener<'a> {
    ruleset: &'a Ruleset,
    interfaces: &'a Interfaces,
    findings: &'a mut Findings,
    is_upstream: bool,
    /// Base chains on the way, in order.
    bases: Vec<usize>,
    lines: Vec<Line>,
    rules: usize,
    /// The conditions of limits that mark.
    marked: Vec<Vec<Condition>>,
    /// Places of rules that are comments, and of rules with a state.
    commented: HashSet<String>,
    limited: HashSet<String>,
    /// Places and texts of rules that are written, and of those whose packets earlier rules have decided.
    written: HashSet<String>,
    covered: Vec<(String, String)>,
    chain: Option<usize>,
    depth: usize,
    /// Rules that were visited.
    steps: Cell<u64>,
}

impl<'a> Flattener<'a> {
    /// The rules for packets that pass these hooks.
    pub fn flatten(
        ruleset: &'a Ruleset,
        interfaces: &'a Interfaces,
        findings: &'a mut Findings,
        is_upstream: bool,
        hooks: &[Hook],
    ) -> Result<Vec<Line>, Refused> {
        let mut flattener = Flattener {
            ruleset,
            interfaces,
            findings,
            is_upstream,
            bases: Vec::new(),
            lines: Vec::new(),
            rules: 0,
            marked: Vec::new(),
            commented: HashSet::new(),
            limited: HashSet::new(),
            written: HashSet::new(),
            covered: Vec::new(),
            chain: None,
            depth: 0,
            steps: Cell::new(0),
        };
        flattener.bases = flattener.on_the_way(hooks);
        flattener.way_from(0, &[])?;
        for (at, text) in std::mem::take(&mut flattener.covered) {
            if !flattener.written.contains(&at) {
                flattener.findings.note(&at, &text, "earlier rules have decided all its packets");
            }
        }
        Ok(flattener.lines)
    }

    /// The base chains at these hooks, in the order in which a packet meets them.
    fn on_the_way(&mut self, hooks: &[Hook]) -> Vec<usize> {
        let mut found: Vec<(usize, i64, usize)> = Vec::new();
        for (index, chain) in self.ruleset.chains.iter().enumerate() {
            let Some(base) = &chain.base else { continue };
            let Some(order) = hooks.iter().position(|hook| *hook == base.hook) else { continue };
            if !base.device.is_empty() {
                match self.interfaces.device(&base.device, base.hook, self.is_upstream) {
                    Answer::Always => {}
                    Answer::Never => continue,
                    Answer::Unknown(reason) => {
                        let effect = self.chain_effect(index, 0);
                        self.findings.left_out(
                            &base.at,
                            &format!("all rules of chain {}", chain.name),
                            &reason,
                            effect,
                        );
                        continue;
                    }
                }
            }
            found.push((order, base.priority, index));
        }
        found.sort();
        found.into_iter().map(|(.., index)| index).collect()
    }

    /// Counts a visited rule. Whether they are too many.
    fn is_tired(&self) -> bool {
        self.steps.set(self.steps.get() + 1);
        self.steps.get() > STEPS_MAX
    }

    fn chain_of(&self, base: usize) -> (&'a Chain, &'a Base) {
        let chain = &self.ruleset.chains[self.bases[base]];
        (chain, chain.base.as_ref().expect("only base chains are on the way"))
    }

    /// The way of packets from a base chain on, to its end.
    fn way_from(&mut self, first: usize, packets: &[Condition]) -> Result<(), Refused> {
        for base in first..self.bases.len() {
            let (chain, _) = self.chain_of(base);
            let Some(inside) = joined(packets, &chain.scope) else { continue };
            let is_whole = covers(packets, &chain.scope);
            let at = Frame { chain: self.bases[base], rule: 0 };
            let flow = self.walk(Place { base, callers: &[], at }, &inside)?;
            let is_decided = self.end_base(flow, base, &inside)?;
            if is_decided && is_whole {
                return Ok(());
            }
        }
        self.emit(packets, Vec::new(), Some(true), None).map(drop)
    }

    /// The policy of a base chain. Whether all packets are decided.
    fn end_base(&mut self, flow: Flow, base: usize, packets: &[Condition]) -> Result<bool, Refused> {
        let (chain, settings) = self.chain_of(base);
        if flow == Flow::Through && settings.drops {
            self.chain = None;
            let comment = format!("policy of chain {}", chain.name);
            self.emit(packets, Vec::new(), Some(false), Some(comment))?;
            return Ok(true);
        }
        Ok(flow == Flow::Decided)
    }

    /// The rest of the way of packets, beginning with the innermost caller.
    fn continue_at(&mut self, base: usize, callers: &[Frame], packets: &[Condition]) -> Result<(), Refused> {
        for (depth, &at) in callers.iter().enumerate().rev() {
            match self.walk(Place { base, callers: &callers[..depth], at }, packets)? {
                Flow::Through => {}
                Flow::NextBase => return self.way_from(base + 1, packets),
                Flow::Decided => return Ok(()),
            }
        }
        if self.end_base(Flow::Through, base, packets)? {
            return Ok(());
        }
        self.way_from(base + 1, packets)
    }

    /// The rules of a chain, for some packets.
    fn walk(&mut self, place: Place<'_>, packets: &[Condition]) -> Result<Flow, Refused> {
        self.depth += 1;
        if self.depth > DEPTH_MAX * 8 {
            return Err(format!("more than {DEPTH_MAX} chains call each other"));
        }
        let chain = &self.ruleset.chains[place.at.chain];
        let mut flow = Flow::Through;
        let mut packets = packets.to_vec();
        let mut is_left = false;
        for index in place.at.rule..chain.rules.len() {
            let place = Place { at: Frame { rule: index, ..place.at }, ..place };
            if self.is_tired() {
                return Err(too_large());
            }
            match self.rule(place, &chain.rules[index], &packets)? {
                Left::Rest => {}
                Left::Only(condition) => match joined(&packets, &[*condition]) {
                    Some(fewer) => (packets, is_left) = (fewer, true),
                    None => break,
                },
                Left::Nothing(ended) => {
                    flow = ended;
                    break;
                }
            }
        }
        self.depth -= 1;
        // Packets that have left the chain are not decided.
        Ok(match flow {
            Flow::Decided if is_left && place.callers.is_empty() => Flow::NextBase,
            Flow::Decided if is_left => Flow::Through,
            flow => flow,
        })
    }

    /// What a policy can test of a rule at this place. `None` if no packet can match. `Err` says why it cannot be
    /// written.
    fn resolve(&self, base: usize, rule: &Rule) -> Option<Result<Vec<Condition>, String>> {
        let (_, settings) = self.chain_of(base);
        let mut conditions = Vec::new();
        let mut unknown = rule.foreign().map(str::to_owned);
        for test in &rule.tests {
            match test {
                Test::Never => return None,
                Test::Foreign(_) => {}
                Test::Field(condition) => {
                    let is_early = matches!(settings.hook, Hook::Ingress | Hook::Prerouting | Hook::Output)
                        && settings.priority <= CONNTRACK_PRIORITY;
                    if condition.field == "ct state" && is_early {
                        unknown
                            .get_or_insert("packets have no `ct state` yet at the priority of this chain".to_owned());
                    }
                    conditions.push(condition.clone());
                }
                Test::Interface(test) => match self.interfaces.answer(test, settings.hook, self.is_upstream) {
                    Answer::Always => {}
                    Answer::Never => return None,
                    Answer::Unknown(reason) => drop(unknown.get_or_insert(reason)),
                },
            }
        }
        let conditions = joined(&[], &conditions)?;
        Some(unknown.map_or(Ok(conditions), Err))
    }

    /// One rule, for some packets.
    fn rule(&mut self, place: Place<'_>, rule: &Rule, packets: &[Condition]) -> Result<Left, Refused> {
        let Some(resolved) = self.resolve(place.base, rule) else { return Ok(Left::Rest) };
        if joined(packets, &rule.conditions()).is_none() {
            return Ok(Left::Rest);
        }
        for reason in &rule.ignored {
            self.findings.left_out(&rule.at, &rule.text, reason, Effect::Same);
        }
        let conditions = match resolved {
            Ok(conditions) => conditions,
            Err(reason) => {
                self.leave_out(place, rule, &reason);
                return Ok(Left::Rest);
            }
        };
        let Some(here) = joined(packets, &conditions) else { return Ok(Left::Rest) };
        for (reason, effect) in &rule.approximations {
            self.findings.approximate(&rule.at, &rule.text, reason, *effect);
        }
        if self.is_inert(rule) {
            return Ok(Left::Rest);
        }
        self.say_chain(place.at.chain);
        let is_whole = covers(packets, &conditions);
        let flow = if rule.limit.is_some() {
            self.limited(place, rule, packets, &here, is_whole)?
        } else if let Some(left) = self.leaves(place, rule, packets, &conditions) {
            return Ok(Left::Only(Box::new(left)));
        } else {
            self.verdict(place, rule, &here, is_whole, rule.adds.clone())?
        };
        Ok(flow.map_or(Left::Rest, Left::Nothing))
    }

    /// The condition of the packets that stay in their chain, if the others only leave it by a rule with one condition.
    fn leaves(
        &self,
        place: Place<'_>,
        rule: &Rule,
        packets: &[Condition],
        conditions: &[Condition],
    ) -> Option<Condition> {
        let (is_base, drops) = (place.callers.is_empty(), self.chain_of(place.base).1.drops);
        let leaves = match rule.verdict {
            Verdict::Return => !is_base || !drops,
            // All packets of a base chain go on to the next one.
            Verdict::Accept => is_base && !drops && !self.is_last(place.base, packets),
            _ => false,
        };
        let mut further = conditions.iter().filter(|condition| !covers(packets, std::slice::from_ref(condition)));
        let (Some(one), None) = (further.next(), further.next()) else { return None };
        one.opposite(packets).filter(|_| leaves && rule.adds.is_empty())
    }

    /// A rule that cannot be written becomes a comment and a finding.
    fn leave_out(&mut self, place: Place<'_>, rule: &Rule, reason: &str) {
        let effect = self.missing_effect(place, rule);
        self.findings.left_out(&rule.at, &rule.text, reason, effect);
        self.say_chain(place.at.chain);
        if self.commented.insert(rule.at.clone()) {
            self.lines.push(Line::Comment(format!("left out: {} ({})", rule.text, rule.at)));
        }
    }

    /// Writes a rule. `false` if earlier rules leave it no packets.
    fn emit(
        &mut self,
        conditions: &[Condition],
        statements: Vec<String>,
        accepts: Option<bool>,
        comment: Option<String>,
    ) -> Result<bool, Refused> {
        let written = Written { conditions: conditions.to_vec(), statements, accepts, comment };
        let decided = |line: &Line| match line {
            Line::Rule(earlier) => earlier.decides_all() && covers(conditions, &earlier.conditions),
            Line::Comment(_) => false,
        };
        if self.lines.iter().rev().take(COMPARED_MAX).any(decided) {
            return Ok(false);
        }
        self.rules += 1;
        if self.rules > RULES_MAX {
            return Err(too_large());
        }
        self.lines.push(Line::Rule(Box::new(written)));
        Ok(true)
    }

    /// Says from which chain the next rules are.
    fn say_chain(&mut self, chain: usize) {
        if self.chain.replace(chain) == Some(chain) {
            return;
        }
        let chain = &self.ruleset.chains[chain];
        let line = match &chain.base {
            Some(base) => format!("chain {} (hook {}, priority {})", chain.name, base.hook.name(), base.priority),
            None => format!("chain {}", chain.name),
        };
        // A comment about a chain without rules would say nothing.
        if let Some(Line::Comment(last)) = self.lines.last()
            && last.starts_with("chain ")
        {
            self.lines.pop();
        }
        self.lines.push(Line::Comment(line));
    }
}

fn too_large() -> Refused {
    format!(
        "without calls between chains this ruleset has more than {RULES_MAX} rules; fewer `return`, or fewer accepting \
         rules in early base chains, make it smaller"
    )
}

impl Written {
    /// Whether no packet that matches goes on to the next rule, whatever its statements do.
    pub fn decides_all(&self) -> bool {
        self.accepts.is_some()
    }

    /// The rule as a policy writes it.
    pub fn text(&self) -> String {
        let matches = self.conditions.iter().map(|condition| condition.text.as_str());
        let statements = self.statements.iter().map(String::as_str);
        let verdict = self.accepts.map(|accepts| if accepts { "accept" } else { "drop" });
        let words: Vec<&str> = matches.chain(statements).chain(verdict).collect();
        words.join(" ")
    }
}
