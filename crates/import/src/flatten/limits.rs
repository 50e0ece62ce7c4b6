//! Limits. In nftables and iptables a limit is a match: packets that exceed it go on to the next rule. In Weir it ends
//! them, or marks them.

use super::fate::Fate;
use super::{Flattener, Flow, Frame, Line, Place, Refused, Written};
use crate::condition::{Condition, joined};
use crate::finding::Effect;
use crate::ruleset::{Limit, Rule, Verdict};

impl Flattener<'_> {
    /// A rule with a limit.
    pub(super) fn limited(
        &mut self,
        place: Place<'_>,
        rule: &Rule,
        packets: &[Condition],
        here: &[Condition],
        is_whole: bool,
    ) -> Result<Option<Flow>, Refused> {
        let limit = rule.limit.as_ref().expect("the caller has seen it");
        if limit.counts_connections {
            return self.connections(place, rule, limit, here).map(|()| None);
        }
        self.say_directions(rule);
        let ends_excess = limit.is_over && self.drops(place, rule, here);
        if ends_excess && let Some(statement) = exceeding(limit, &rule.adds) {
            self.write(rule, here, vec![statement], None)?;
            return Ok(None);
        }
        if !limit.is_over && rule.verdict != Verdict::Drop && self.fate_behind(place, here) == Fate::Dropped {
            let statements = [vec![limit.statement.clone()], rule.adds.clone()].concat();
            return self.verdict(place, rule, here, is_whole, statements);
        }
        // A packet that was marked once stays marked.
        if self.marked.iter().any(|marked| joined(marked, packets).is_some_and(|both| joined(&both, here).is_some())) {
            self.leave_out(place, rule, "an earlier limit marks the same packets, and a packet has one mark");
            return Ok(None);
        }
        self.emit(here, vec![format!("{} exceed mark", limit.statement)], None, rule.comment.clone())?;
        self.marked.push(here.to_vec());
        let mark = match limit.is_over {
            true => Condition::one_of("meta exceeded", &[((1, 1), "exists".to_owned())]),
            false => Condition::one_of("meta exceeded", &[((0, 0), "missing".to_owned())]),
        };
        let here = joined(here, &[mark]).expect("no other rule tests the mark of these packets");
        self.verdict(place, rule, &here, false, rule.adds.clone())
    }

    /// Whether the verdict of a rule drops all packets that match.
    fn drops(&self, place: Place<'_>, rule: &Rule, here: &[Condition]) -> bool {
        match rule.verdict {
            Verdict::Drop => true,
            Verdict::Jump(target) | Verdict::Goto(target) => {
                self.fate(place.base, Frame { chain: target, rule: 0 }, here, 0) == Fate::Dropped
            }
            _ => false,
        }
    }

    /// Says that a limit that is written more than once has a bucket at each place.
    fn say_directions(&mut self, rule: &Rule) {
        if !self.limited.insert(rule.at.clone()) {
            let reason = "this limit has a bucket of its own at each place where its chain is written";
            self.findings.approximate(&rule.at, &rule.text, reason, Effect::PassesMore);
        }
    }

    /// A limit of open connections stands in front of the first rule that accepts the packets of open connections.
    fn connections(&mut self, place: Place<'_>, rule: &Rule, limit: &Limit, here: &[Condition]) -> Result<(), Refused> {
        let (of_state, conditions): (Vec<_>, Vec<_>) =
            here.iter().cloned().partition(|condition| matches!(condition.field.as_str(), "ct state" | "tcp flags"));
        let position = self.lines.iter().position(accepts_established);
        let in_between = self.lines.iter().skip(position.unwrap_or(self.lines.len()));
        let is_spared = in_between.into_iter().any(|line| match line {
            Line::Rule(earlier) if earlier.accepts == Some(true) && !accepts_established(line) => {
                joined(&earlier.conditions, &conditions).is_some()
            }
            _ => false,
        });
        let opens = Condition::one_of("ct state", &[((0, 0), "new".to_owned())]);
        let syn = |condition: &Condition| condition.field == "tcp flags" && condition.text.contains("syn");
        let is_open = of_state.iter().all(|condition| syn(condition) || opens.implies(condition));
        let reason = match (limit.is_over && self.drops(place, rule, here), is_spared || !is_open) {
            (false, _) => Some("a limit of connections ends packets; here they go on"),
            (_, true) => {
                Some("Weir's limit of connections must see the packets of open connections, which are accepted before")
            }
            _ => None,
        };
        let Some(statement) = exceeding(limit, &rule.adds).filter(|_| reason.is_none()) else {
            let reason = reason.unwrap_or("Weir adds the address that a limit looks up, and no other");
            self.leave_out(place, rule, reason);
            return Ok(());
        };
        let reason = "Weir counts TCP connections from the end of their handshake, the kernel counts connections from \
                      their first packet; the rule stands in front of those that accept open connections";
        self.findings.approximate(&rule.at, &rule.text, reason, Effect::PassesMore);
        let written = Written { conditions, statements: vec![statement], accepts: None, comment: rule.comment.clone() };
        self.rules += 1;
        self.lines.insert(position.unwrap_or(self.lines.len()), Line::Rule(Box::new(written)));
        Ok(())
    }
}

/// Whether a rule accepts packets of open connections.
fn accepts_established(line: &Line) -> bool {
    let Line::Rule(rule) = line else { return false };
    let is_established = |condition: &Condition| {
        let holds = |values: &Vec<(u128, u128)>| values.iter().any(|&(low, high)| low <= 1 && 1 <= high);
        condition.field == "ct state" && condition.values.as_ref().is_some_and(holds)
    };
    rule.accepts == Some(true) && rule.conditions.iter().any(is_established)
}

/// The statement that ends packets above the limit and adds their address. `None` if it would add another one.
fn exceeding(limit: &Limit, adds: &[String]) -> Option<String> {
    match adds {
        [] => Some(limit.statement.clone()),
        [add] => {
            let (table, braces) = add.strip_prefix("add ")?.split_once(" { ")?;
            let (subject, timeout) = match braces.strip_suffix(" }")?.split_once(" timeout ") {
                Some((subject, timeout)) => (subject, format!(" timeout {timeout}")),
                None => (braces.strip_suffix(" }")?, String::new()),
            };
            let is_same = limit.statement.starts_with(&format!("limit each {subject} "));
            is_same.then(|| format!("{} exceed add {table}{timeout} drop", limit.statement))
        }
        _ => None,
    }
}
