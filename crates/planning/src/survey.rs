//! What rules and a card do with given packets: the traffic that the distributor asks for.

use crate::card::CardImages;
use std::collections::BTreeMap;
use weir_abi::{Reason, Verdict};
use weir_card::Profile;
use weir_card::distributor::cost::Traffic;
use weir_card::eval::{Card, Configuration};
use weir_card::receive::{Configured, Port, Received};
use weir_card::split::Split;
use weir_loading::Policy;
use weir_loading::eval::SlotAnswers;
use weir_policy::ir::eval::packet::Frame;
use weir_policy::ir::eval::{Charge, Evaluator, Observed, Observer};
use weir_policy::ir::match_tree::rules;
use weir_policy::ir::{LimiterId, RuleId, RuleSlotId, Test};

/// Bytes of a frame where none was seen.
const FRAME_BYTES: f64 = 60.0;

/// Without packets: every packet reaches every rule of the chain and matches none.
pub fn assumed(policy: &Policy, chain: usize) -> Traffic {
    let none = vec![0.0; policy.program.rules.len()];
    let mut reached = none.clone();
    rules(&policy.program.chains[chain].tree.nodes).for_each(|rule| reached[usize::from(rule.0)] = 1.0);
    Traffic { pps: 0.0, frame_bytes: FRAME_BYTES, answered: 1.0, reached, matched: none }
}

/// The hits of rules over packets, and what the card answers for.
pub struct Survey<'a> {
    evaluator: Evaluator<'a, SlotAnswers>,
    chain: usize,
    /// The rules of the chain, and the place of each.
    order: Vec<RuleId>,
    place: BTreeMap<RuleId, usize>,
    card: Card<'a, &'a CardImages>,
    port: Port,
    /// Packets so far, their bytes, the packets with answers, and the packets that the card dropped.
    pub packets: u64,
    bytes: u64,
    answered: u64,
    /// Packets that reach and match each rule.
    reached: Vec<u64>,
    matched: Vec<u64>,
}

impl<'a> Survey<'a> {
    /// A survey of a policy whose card has what `split` says.
    pub fn new(policy: &'a Policy, profile: &'a Profile, split: &'a Split, images: &'a CardImages) -> Self {
        let program = &policy.program;
        let order: Vec<RuleId> = rules(&program.chains[split.plain].tree.nodes).collect();
        let place = order.iter().enumerate().map(|(place, rule)| (*rule, place)).collect();
        let mut card = Card::new(profile);
        card.commit(Configuration { program: &split.card, lookups: images, token: 0, epoch: 0 });
        let own = Configured { epoch: 0, body: split.card.body.bytes() as u8 };
        Survey {
            evaluator: Evaluator::new(program, policy.answers()),
            chain: split.plain,
            order,
            place,
            card,
            port: Port { token: 0, own, others: vec![] },
            packets: 0,
            bytes: 0,
            answered: 0,
            reached: vec![0; program.rules.len()],
            matched: vec![0; program.rules.len()],
        }
    }

    /// Adds a packet.
    pub fn see(&mut self, frame: Frame<'_>) {
        self.packets += 1;
        self.bytes += u64::from(frame.wire_len);
        let has_answers = match self.card.handle(frame) {
            None => true,
            Some(passed) => matches!(self.port.receive(&passed), Received::Answered { .. }),
        };
        self.answered += u64::from(has_answers);
        let mut hits = Matched::default();
        let verdict = self.evaluator.decide(self.chain, frame, &mut hits);
        hits.0.iter().for_each(|rule| self.matched[usize::from(rule.0)] += 1);
        let last = self.last_rule(verdict, &hits.0);
        self.order[..last].iter().for_each(|rule| self.reached[usize::from(rule.0)] += 1);
    }

    /// The traffic that was seen, without its rate.
    pub fn traffic(&self) -> Traffic {
        let share = |count: u64| count as f64 / self.packets.max(1) as f64;
        let shares = |counts: &[u64]| counts.iter().copied().map(share).collect();
        Traffic {
            pps: 0.0,
            frame_bytes: if self.packets == 0 { FRAME_BYTES } else { share(self.bytes) },
            answered: share(self.answered),
            reached: shares(&self.reached),
            matched: shares(&self.matched),
        }
    }

    /// Number of rules that a packet reached: all up to the one that ended the chain.
    fn last_rule(&self, verdict: Verdict, matched: &[RuleId]) -> usize {
        let behind = |rule: &RuleId| self.place.get(rule).map_or(0, |place| place + 1);
        match verdict.reason() {
            Reason::NO_MATCH => self.order.len(),
            // A rule, a limit or a slot of one: the last that matched. Faults and defaults have none.
            _ => matched.last().map_or(0, behind),
        }
    }
}

/// The rules that a packet matched.
#[derive(Default)]
struct Matched(Vec<RuleId>);

impl Observer for Matched {
    fn tested(&mut self, _: &Test, _: Observed, _: bool) {}

    fn matched(&mut self, rule: RuleId) {
        self.0.push(rule);
    }

    fn charged(&mut self, _: LimiterId, _: u32, _: Charge) {}

    fn asked(&mut self, _: RuleSlotId, _: Option<usize>) {}
}
