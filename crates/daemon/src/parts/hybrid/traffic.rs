//! The traffic of a window, from counters of running code: what the distributor asks for.
//!
//! Exact are the packets and bytes that the card has received, the share that it answered or dropped, the packets that
//! match each rule, and those that reach it: all that no default, no earlier rule, limit or slot, and not the tracker
//! has decided before. The model's only assumption is that packets with answers and without match the same rules.
//!
//! Counters of card and workers are not read at the same moment. What is in between counts in the next window.

use weir_abi::{Counter, Reason};
use weir_card::distributor::cost::Traffic;
use weir_command::report::{Decided, decided};
use weir_policy::ir::{Node, Program, RuleId};

/// Counters at one moment.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    /// Of the software's chains.
    pub counters: Vec<Counter>,
    /// Of the rules for which the card drops.
    pub dropped: Vec<(RuleId, Counter)>,
}

/// What has happened in a window.
#[derive(Clone, Debug, PartialEq)]
pub struct Window {
    /// Packets that the card has received.
    pub packets: u64,
    /// Traffic of the packets that the card has received.
    pub traffic: Traffic,
}

impl Reading {
    /// The window between an earlier reading of the same policy and this one. `nodes` are the nodes of the chain as it
    /// was lowered.
    pub fn since(&self, before: &Reading, program: &Program, nodes: &[Node], seconds: f64) -> Window {
        let counters = differences(&self.counters, &before.counters);
        let dropped =
            self.dropped.iter().zip(&before.dropped).map(|((rule, now), (_, then))| (*rule, less(*now, *then)));
        let dropped: Vec<(RuleId, Counter)> = dropped.collect();
        let of = |reason: Reason| counters[usize::from(reason.0)];
        let by_card = dropped.iter().fold(Counter::default(), |sum, (_, counter)| more(sum, *counter));
        let answered = more(of(Reason::COUNTER_ANSWERED), by_card);
        let all = more(answered, of(Reason::COUNTER_ALONE));
        let share = |packets: u64| (packets as f64 / all.packets.max(1) as f64).clamp(0.0, 1.0);
        let mut matched = vec![0; program.rules.len()];
        let mut ended = vec![0; program.rules.len()];
        for (matched, counter) in matched.iter_mut().zip(&counters[usize::from(Reason::RULE_BASE)..]) {
            *matched = counter.packets;
        }
        for (rule, counter) in &dropped {
            matched[usize::from(rule.0)] += counter.packets;
            ended[usize::from(rule.0)] += counter.packets;
        }
        let (mut before_rules, mut tracked) = (0, 0);
        for Decided { reason, rule, counter, .. } in decided(program, &counters) {
            match rule {
                Some(rule) => ended[usize::from(rule.0)] += counter.packets,
                None if is_tracked(reason) => tracked += counter.packets,
                None if is_no_packet(reason) || reason == Reason::NO_MATCH => {}
                None => before_rules += counter.packets,
            }
        }
        let mut reached = vec![0.0; program.rules.len()];
        let mut left = all.packets.saturating_sub(before_rules);
        for node in nodes {
            if *node == Node::Track {
                left = left.saturating_sub(tracked);
            }
            for rule in node.rules().map(|rule| usize::from(rule.0)) {
                reached[rule] = share(left);
                left = left.saturating_sub(ended[rule]);
            }
        }
        let traffic = Traffic {
            pps: all.packets as f64 / seconds,
            frame_bytes: all.bytes as f64 / all.packets.max(1) as f64,
            answered: share(answered.packets),
            reached,
            matched: matched.into_iter().map(share).collect(),
        };
        Window { packets: all.packets, traffic }
    }
}

/// Whether the tracker decides for this reason.
fn is_tracked(reason: Reason) -> bool {
    (Reason::BAD_FLAGS..=Reason::STATE_FULL).contains(&reason) || reason == Reason::SYN_COOKIE
}

/// Whether frames with this reason are no packets of the card.
fn is_no_packet(reason: Reason) -> bool {
    [Reason::UNKNOWN_INTERFACE, Reason::UNSEALED, Reason::CARD_CONTROL].contains(&reason)
}

fn differences(now: &[Counter], before: &[Counter]) -> Vec<Counter> {
    now.iter().zip(before).map(|(now, before)| less(*now, *before)).collect()
}

fn less(now: Counter, before: Counter) -> Counter {
    Counter { packets: now.packets.saturating_sub(before.packets), bytes: now.bytes.saturating_sub(before.bytes) }
}

fn more(one: Counter, other: Counter) -> Counter {
    Counter { packets: one.packets + other.packets, bytes: one.bytes + other.bytes }
}

#[cfg(test)]
#[path = "traffic/tests.rs"]
mod tests;
