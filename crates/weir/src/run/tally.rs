//! What became of the packets of one direction, from its counters.

use crate::report::{self, RuleCount};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use weir_abi::{Action, Counter, Reason};
use weir_policy::ir::{Fallback, Program};

/// The packets of one direction, in a stay in office or in all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Packets received: the sum of the next three.
    pub packets: u64,
    /// Their bytes on the wire.
    pub bytes: u64,
    /// Packets accepted.
    pub passed: u64,
    /// Packets dropped.
    pub dropped: u64,
    /// Packets diverted.
    pub diverted: u64,
    /// Every rule that a policy of the time had, with what matched it.
    pub rules: Vec<RuleCount>,
    /// Packets by the reason of their verdict.
    pub reasons: BTreeMap<String, u64>,
}

impl Tally {
    /// Of one program's counters.
    pub fn of(program: &Program, counters: &[Counter]) -> Self {
        let mut tally = Tally {
            rules: report::rule_counts(program, counters),
            reasons: report::reason_counts(program, counters),
            ..Tally::default()
        };
        for (index, counter) in counters.iter().enumerate() {
            let Some(action) = action(program, Reason(index as u16)) else { continue };
            tally.packets += counter.packets;
            tally.bytes += counter.bytes;
            *match action {
                Action::Accept => &mut tally.passed,
                Action::Drop => &mut tally.dropped,
                Action::Divert => &mut tally.diverted,
            } += counter.packets;
        }
        tally
    }

    /// Adds what another counted. Rules are the same where place and text are.
    pub fn add(&mut self, other: &Tally) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.passed += other.passed;
        self.dropped += other.dropped;
        self.diverted += other.diverted;
        for rule in &other.rules {
            match self.rules.iter_mut().find(|known| known.at == rule.at && known.rule == rule.rule) {
                Some(known) => {
                    known.packets += rule.packets;
                    known.bytes += rule.bytes;
                }
                None => self.rules.push(rule.clone()),
            }
        }
        for (reason, packets) in &other.reasons {
            *self.reasons.entry(reason.clone()).or_default() += packets;
        }
    }
}

/// What a reason does to a packet; `None` if it decides nothing.
fn action(program: &Program, reason: Reason) -> Option<Action> {
    if let Some(rule) = reason.rule_index() {
        return program.rules.get(usize::from(rule))?.verdict();
    }
    let defaults = &program.defaults;
    let decided = |fallback| match fallback {
        Fallback::Decide(action) => Some(action),
        Fallback::Rules => None,
    };
    match reason {
        Reason::NO_MATCH => Some(defaults.no_match),
        Reason::ARP => decided(defaults.arp),
        Reason::NOT_IP => decided(defaults.not_ip),
        Reason::FRAGMENT => decided(defaults.fragment),
        Reason::IP_OPTIONS => decided(defaults.ip_options),
        reason => reason.builtin_name().map(|_| defaults.malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_policy::ir::parse::parse;

    #[test]
    fn packets_are_the_sum_of_what_became_of_them() {
        let program = parse(
            "program p\ndefaults malformed drop, arp accept, not-ip drop, fragment rules, ip-options rules, no-match divert\n\
             rule 0 p:1 [] tcp counter\nrule 1 p:2 [accept] udp accept\nrule 2 p:2 [accept] icmp accept\nchain upstream\n",
        )
        .expect("a program");
        let mut counters = vec![Counter::default(); 35];
        let mut count = |reason: Reason, packets: u64| {
            counters[usize::from(reason.0)] = Counter { packets, bytes: 100 * packets };
        };
        count(Reason::NO_MATCH, 1);
        count(Reason::ARP, 2);
        count(Reason::MALFORMED_TCP, 4);
        count(Reason::rule(0), 100);
        count(Reason::rule(1), 8);
        count(Reason::rule(2), 16);
        let mut tally = Tally::of(&program, &counters);
        assert_eq!((tally.packets, tally.bytes), (31, 3100));
        assert_eq!((tally.passed, tally.dropped, tally.diverted), (26, 4, 1));
        let reasons: Vec<(&str, u64)> = tally.reasons.iter().map(|(name, &packets)| (name.as_str(), packets)).collect();
        assert_eq!(reasons, [("arp", 2), ("malformed-tcp", 4), ("no-match", 1), ("p:2", 24)]);
        let once = tally.clone();
        tally.add(&once);
        assert_eq!((tally.packets, tally.rules.len(), tally.rules[0].packets), (62, 3, 200));
    }
}
