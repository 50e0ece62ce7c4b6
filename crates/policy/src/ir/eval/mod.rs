//! The reference interpreter. It defines what a program does with a packet.
//!
//! Every backend and engine must agree with it. It is written for clarity, not for speed: it parses with `packet`,
//! looks up tables through [`Tables`], and walks the tree without optimisation.

mod additions;
mod buckets;
pub mod explain;
mod features;
pub mod field;
mod guard;
mod observer;
pub mod packet;
pub mod rewrite;
pub mod slots;
mod tables;
mod tcp_options;
mod tracking;

use super::{
    AdderId, Chain, Direction, Effect, Fallback, FindId, Invalid, LimiterId, LimiterKind, Node, Program, RuleId,
    RuleSlotId, SlotId, Test,
};
use crate::field::{Answer, Field, Subject};
use crate::slot_rule::SlotRule;
use additions::Additions;
use buckets::Buckets;
pub use buckets::Charged;
pub use features::DirectionFeatures;
use features::Features;
pub use guard::guard_holds;
pub use observer::{Charge, Observed, Observer};
use packet::{Frame, Packet};
use rewrite::Leaving;
use slots::Slots;
pub use tables::{Protected, Tables};
use tracking::{Tracked, Tracker};
use weir_abi::flow::{Arrival, Flow, FlowKey};
use weir_abi::packet::{Fragment, L3, L4};
use weir_abi::slot::{SlotCounter, VERDICT};
use weir_abi::verdict::Sampled;
use weir_abi::{Action, AdditionCounts, Counter, EntryCounts, Reason, Verdict};

/// What a card has found out about one packet.
pub trait Answers {
    /// The answer; `None` if it is about something that the packet lacks.
    fn answer(&self, answer: Answer) -> Option<u128>;
}

/// Decides packets by a program, and counts.
pub struct Evaluator<'a, T> {
    program: &'a Program,
    tables: T,
    counters: Vec<Counter>,
    /// The meaning of the last counters ([`Program::limited`]).
    limited: Vec<(RuleId, Action, Reason)>,
    buckets: Buckets,
    additions: Additions,
    tracker: Option<Tracker>,
    slots: Slots,
    features: Option<Features>,
    /// The last packet as it leaves, if it was rewritten.
    leaving: Option<Leaving>,
}

impl<'a, T: Tables> Evaluator<'a, T> {
    /// An evaluator with zero counters, full buckets and no flows.
    pub fn new(program: &'a Program, tables: T) -> Self {
        let counters = vec![Counter::default(); program.counters()];
        let buckets = Buckets::new(program, &tables);
        let additions = Additions::new(program, &tables);
        let tracker = program.tracking.as_ref().map(Tracker::new);
        let (limited, slots, leaving) = (program.limited(), Slots::new(program), None);
        let features = program.observe.as_ref().map(Features::new);
        Evaluator { program, tables, counters, limited, buckets, additions, tracker, slots, features, leaving }
    }

    /// One counter for each reason, indexed by [`Reason`], then one for each entry of [`Program::limited`].
    pub fn counters(&self) -> &[Counter] {
        &self.counters
    }

    /// Calls `visit` with the counts of a limiter's buckets that are not 0: by the label that its find returns, and by
    /// address in `limit each`. Makes no calls if the limiter does not log.
    pub fn limit_counts(&self, limiter: LimiterId, visit: &mut dyn FnMut(u128, Charged)) {
        self.buckets.counts(limiter, visit);
    }

    /// What additions by rules did to tables, up to the last tick that has ended.
    pub fn addition_counts(&self) -> AdditionCounts {
        self.additions.counts()
    }

    /// Calls `visit` with each entry of a slot with counters that was hit: prefix, length and counts.
    pub fn entry_counts(&self, slot: SlotId, visit: &mut dyn FnMut(u128, u8, EntryCounts)) {
        self.additions.entry_counts(slot, visit);
    }

    /// Replaces the rules of a slot, which has none at first.
    pub fn set_slot(&mut self, slot: RuleSlotId, rules: Vec<SlotRule>) {
        self.slots.set(slot, rules);
    }

    /// What each rule of a slot has counted.
    pub fn slot_counts(&self, slot: RuleSlotId) -> Vec<SlotCounter> {
        self.slots.counts(slot)
    }

    /// Calls `visit` with the key and state of each flow in the table, in the order of its slots, also of expired ones.
    pub fn flows(&self, visit: &mut dyn FnMut(&FlowKey, &Flow)) {
        self.tracker.iter().for_each(|tracker| tracker.flows(visit));
    }

    /// Enters a flow at a time, ns, as a restart does. Returns whether it had room.
    pub fn enter_flow(&mut self, key: &FlowKey, flow: &Flow, time_ns: u64) -> bool {
        self.tracker.as_mut().is_some_and(|tracker| tracker.enter(key, flow, time_ns))
    }

    /// What was observed of the packets that passed since the last call, upstream and downstream. `None` if nothing is.
    pub fn take_features(&mut self) -> Option<[DirectionFeatures; 2]> {
        self.features.as_mut().map(Features::take)
    }

    /// Checks the invariants of the table of flows, for tests.
    ///
    /// # Panics
    /// If one is violated.
    pub fn verify_flows(&self) {
        self.tracker.iter().for_each(Tracker::verify);
    }

    /// The last frame as it leaves, if the chain changed it: a reply, or an accepted packet.
    pub fn leaving(&self) -> Option<&Leaving> {
        self.leaving.as_ref()
    }

    /// Decides a frame by the chain with index `chain`.
    pub fn decide(&mut self, chain: usize, frame: Frame<'_>, observer: &mut impl Observer) -> Verdict {
        self.judge(chain, frame, None, observer)
    }

    /// Decides a frame by a chain that needs a card's answers.
    pub fn decide_answered(
        &mut self,
        chain: usize,
        frame: Frame<'_>,
        answers: &dyn Answers,
        observer: &mut impl Observer,
    ) -> Verdict {
        self.judge(chain, frame, Some(answers), observer)
    }

    fn judge(
        &mut self,
        chain: usize,
        frame: Frame<'_>,
        answers: Option<&dyn Answers>,
        observer: &mut impl Observer,
    ) -> Verdict {
        self.leaving = None;
        self.buckets.tick(frame.time_ns);
        self.slots.tick(frame.time_ns);
        self.additions.advance(self.program, frame.time_ns);
        let (packet, malformed) = packet::parse(frame);
        if let Some(reason) = malformed {
            self.count(usize::from(reason.0), frame.wire_len);
            self.observe(self.program.defaults.malformed, chain, None, frame);
            return Verdict::new(self.program.defaults.malformed, reason, Sampled::No);
        }
        if let Some((action, reason)) = before_rules(self.program, &packet) {
            self.count(usize::from(reason.0), frame.wire_len);
            self.finish(action, None, chain, &packet, frame);
            self.observe(action, chain, Some(&packet), frame);
            return self.verdict(action, reason, Sampled::No);
        }
        let (decided, tracked, sampled) = self.run(chain, &packet, frame, answers, observer);
        let (action, reason) = decided.unwrap_or_else(|| {
            self.count(usize::from(Reason::NO_MATCH.0), frame.wire_len);
            (self.program.defaults.no_match, Reason::NO_MATCH)
        });
        self.finish(action, tracked, chain, &packet, frame);
        self.observe(action, chain, Some(&packet), frame);
        self.verdict(action, reason, sampled)
    }

    /// Counts the features of a packet that passes.
    fn observe(&mut self, action: Action, chain: usize, packet: Option<&Packet>, frame: Frame<'_>) {
        if let (Some(features), Action::Accept) = (&mut self.features, action) {
            features.see(self.program.chains[chain].direction, packet, frame.wire_len);
        }
    }

    fn verdict(&self, action: Action, reason: Reason, sampled: Sampled) -> Verdict {
        let verdict = Verdict::new(action, reason, sampled);
        if self.leaving.is_some() { verdict.of_rewritten() } else { verdict }
    }

    /// Runs the rules of a chain: the decision, the state, and whether the packet is sampled.
    fn run(
        &mut self,
        chain: usize,
        packet: &Packet,
        frame: Frame<'_>,
        answers: Option<&dyn Answers>,
        observer: &mut impl Observer,
    ) -> Ran {
        let chain = &self.program.chains[chain];
        let found = vec![0; chain.finds.len()];
        let (counted, exceeded, sampled, tracked, asked) = (vec![], false, Sampled::No, None, false);
        let mut run =
            Run { eval: self, chain, frame, packet, answers, found, counted, exceeded, sampled, tracked, asked };
        for &id in &chain.tree.staged {
            run.find(id);
        }
        let decided = run.block(&chain.tree.nodes, observer);
        (decided, run.tracked, run.sampled)
    }

    /// Tracks an accepted packet, if that has not happened yet, and enters the flow that it opens.
    fn finish(&mut self, action: Action, tracked: Option<Tracked>, chain: usize, packet: &Packet, frame: Frame<'_>) {
        if let (Some(tracker), Action::Accept) = (&mut self.tracker, action) {
            let arrival = arrival(self.program.chains[chain].direction);
            let tracked = tracked.unwrap_or_else(|| tracker.track(packet, frame, arrival));
            tracker.open(&tracked);
            self.leaving = tracked.leaving;
        }
    }

    fn count(&mut self, index: usize, bytes: u32) {
        let counter = &mut self.counters[index];
        counter.packets += 1;
        counter.bytes += u64::from(bytes);
    }
}

/// The side of arrival of packets that go in a direction.
fn arrival(direction: Direction) -> Arrival {
    match direction {
        Direction::Upstream => Arrival::Outside,
        Direction::Downstream => Arrival::Inside,
    }
}

/// The verdict on a well-formed packet that bypasses the rules.
fn before_rules(program: &Program, packet: &Packet) -> Option<(Action, Reason)> {
    let defaults = &program.defaults;
    let cases = [
        (packet.l3 == L3::Arp, defaults.arp, Reason::ARP),
        (packet.l3 == L3::None, defaults.not_ip, Reason::NOT_IP),
        (packet.fragment != Fragment::None, defaults.fragment, Reason::FRAGMENT),
        (packet.ip_options, defaults.ip_options, Reason::IP_OPTIONS),
    ];
    cases.into_iter().find_map(|(applies, fallback, reason)| match fallback {
        Fallback::Decide(action) if applies => Some((action, reason)),
        _ => None,
    })
}

/// The decision of the rules, the state of the packet if it was tracked, and whether it is sampled.
type Ran = (Option<(Action, Reason)>, Option<Tracked>, Sampled);

/// The evaluation of one packet in a chain.
struct Run<'r, 'a, T> {
    eval: &'r mut Evaluator<'a, T>,
    chain: &'r Chain,
    frame: Frame<'r>,
    packet: &'r Packet,
    /// What a card has answered, for chains that need it.
    answers: Option<&'r dyn Answers>,
    found: Vec<u32>,
    /// The finds at whose entries the packet was counted.
    counted: Vec<FindId>,
    /// Whether the packet exceeded a limit with `exceed mark`.
    exceeded: bool,
    sampled: Sampled,
    /// The state, once the packet is tracked.
    tracked: Option<Tracked>,
    /// Whether the proxy has seen the packet.
    asked: bool,
}

impl<T: Tables> Run<'_, '_, T> {
    fn block(&mut self, nodes: &[Node], observer: &mut impl Observer) -> Option<(Action, Reason)> {
        nodes.iter().find_map(|node| match node {
            Node::Find(id) => {
                self.find(*id);
                None
            }
            Node::When { test, body } => {
                let (saw, held) = self.test(test);
                observer.tested(test, saw, held);
                if held { self.block(body, observer) } else { None }
            }
            Node::Track => self.track(),
            Node::Rule(id) => {
                observer.matched(*id);
                self.rule(*id, observer)
            }
        })
    }

    /// Tracks the packet. Decides it if it is invalid and the policy says what happens then.
    fn track(&mut self) -> Option<(Action, Reason)> {
        let tracker = self.eval.tracker.as_mut().expect("`verify` requires the settings");
        let tracked = tracker.track(self.packet, self.frame, arrival(self.chain.direction));
        let refused = tracked.refused;
        self.tracked = Some(tracked);
        match self.eval.program.tracking.map(|tracking| tracking.invalid) {
            Some(Invalid::Decide(action)) => refused.map(|reason| self.refuse(action, reason)),
            _ => None,
        }
    }

    /// Decides a packet that the tracker refuses.
    fn refuse(&mut self, action: Action, reason: Reason) -> (Action, Reason) {
        self.eval.count(usize::from(reason.0), self.frame.wire_len);
        (action, reason)
    }

    /// Looks up a key. If the packet does not have it, the result is 0.
    fn find(&mut self, id: FindId) {
        let find = self.chain.finds[usize::from(id.0)];
        let there = guard_holds(find.key.guard(), self.packet);
        self.found[usize::from(id.0)] = match there {
            true => {
                let key = field::value(find.key, self.packet);
                self.eval.additions.find(find.slot, key).unwrap_or_else(|| self.eval.tables.find(find.slot, key))
            }
            false => 0,
        };
    }

    fn test(&self, test: &Test) -> (Observed, bool) {
        match test {
            Test::Guard(guard) => (Observed::Header, guard_holds(*guard, self.packet)),
            Test::Value { subject: Subject::Field(Field::MetaExceeded), mask, set, negated } => {
                let value = u128::from(self.exceeded);
                (Observed::Value(value), set.contains(value & mask.unwrap_or(u128::MAX)) != *negated)
            }
            Test::Value { subject: Subject::Field(Field::CtState), mask, set, negated } => {
                let tracked = self.tracked.as_ref().expect("`verify` requires that the packet is tracked");
                let value = tracked.state as u128;
                (Observed::Value(value), set.contains(value & mask.unwrap_or(u128::MAX)) != *negated)
            }
            Test::Value { subject, mask, set, negated } => match self.value(*subject) {
                Some(value) => (Observed::Value(value), set.contains(value & mask.unwrap_or(u128::MAX)) != *negated),
                None => (Observed::Missing, false),
            },
            Test::Found { find, wanted, negated } => {
                let found = self.found[usize::from(find.0)];
                (Observed::Found(found), wanted.is(found) != *negated)
            }
        }
    }

    fn value(&self, subject: Subject) -> Option<u128> {
        match subject {
            Subject::Card(answer) => {
                self.answers.expect("the chain is only run for packets with answers").answer(answer)
            }
            _ => field::subject(subject, self.frame, self.packet),
        }
    }

    fn rule(&mut self, id: RuleId, observer: &mut impl Observer) -> Option<(Action, Reason)> {
        let program = self.eval.program;
        let reason = Reason::rule(id.0);
        if program.rule(id).tracks()
            && self.packet.l4 == L4::Tcp
            && let Some(refused) = self.tracked.as_ref().and_then(|tracked| tracked.refused)
        {
            return Some(self.refuse(Action::Drop, refused));
        }
        if program.rule(id).answers() && self.answered() {
            self.eval.count(usize::from(Reason::SYN_COOKIE.0), self.frame.wire_len);
            return Some((Action::Reply, Reason::SYN_COOKIE));
        }
        self.eval.count(usize::from(reason.0), self.frame.wire_len);
        for effect in &program.rule(id).effects {
            match effect {
                Effect::Sample { one_in } => {
                    let nth = self.eval.counters[usize::from(reason.0)].packets - 1;
                    if is_sampled(nth, *one_in) {
                        self.sampled = Sampled::Yes;
                    }
                }
                Effect::Verdict(action) => return Some((*action, reason)),
                Effect::Limit { limiter, find, add, exceed } => {
                    let label = find.map_or(0, |find| self.found[usize::from(find.0)]);
                    let bytes = self.frame.wire_len;
                    let has_room = match program.limiter(*limiter).kind {
                        LimiterKind::Each(each) if each.connections().is_some() => {
                            let address = field::value(each.key, self.packet);
                            let tracker = self.eval.tracker.as_ref().expect("`verify` requires the settings");
                            let tracked = self.tracked.as_ref().expect("`verify` requires that the packet is tracked");
                            let holding = tracker.holding(tracked, self.packet, arrival(self.chain.direction));
                            self.eval.buckets.may_hold(*limiter, address, holding)
                        }
                        LimiterKind::Each(each) => {
                            let address = field::value(each.key, self.packet);
                            self.eval.buckets.has_room_for(*limiter, address, bytes)
                        }
                        _ => self.eval.buckets.has_room(*limiter, label, bytes),
                    };
                    observer.charged(*limiter, label, if has_room { Charge::Fits } else { Charge::Exceeded });
                    if has_room {
                        continue;
                    }
                    add.iter().for_each(|adder| self.add(*adder));
                    match exceed.verdict() {
                        Some(action) => return Some(self.end(id, action, Reason::LIMIT)),
                        None => self.exceeded = true,
                    }
                }
                Effect::Add { adder } => self.add(*adder),
                Effect::Count { find } => self.count_entry(*find),
                Effect::Slot(slot) => {
                    let by = self.eval.slots.drops(*slot, self.packet, self.frame);
                    observer.asked(*slot, by);
                    if by.is_some() {
                        return Some(self.end(id, VERDICT, Reason::SLOT));
                    }
                }
                // It happened before the rule counted.
                Effect::Track | Effect::Synproxy => {}
            }
        }
        None
    }

    /// Counts a SYN, once, and answers it if the proxy is on and it might open a connection.
    fn answered(&mut self) -> bool {
        if std::mem::replace(&mut self.asked, true) {
            return false;
        }
        let tracker = self.eval.tracker.as_mut().expect("`verify` requires the settings");
        let tracked = self.tracked.as_ref().expect("`verify` requires that the packet is tracked");
        self.eval.leaving = tracker.answer(tracked, self.packet, self.frame);
        self.eval.leaving.is_some()
    }

    /// Counts the packet at the entry that a find has found, unless an earlier rule did.
    fn count_entry(&mut self, id: FindId) {
        if self.counted.contains(&id) {
            return;
        }
        self.counted.push(id);
        let find = self.chain.finds[usize::from(id.0)];
        let key = field::value(find.key, self.packet);
        if let Some(entry) = self.eval.additions.found_entry(find.slot, key) {
            self.eval.additions.count(entry, self.frame.wire_len, self.frame.time_ns);
        }
    }

    /// Adds an address of the packet to a table.
    fn add(&mut self, adder: AdderId) {
        let program = self.eval.program;
        let address = field::value(program.adder(adder).key, self.packet);
        self.eval.additions.add(program, adder, address);
    }

    /// Counts a packet that a limit or a slot decided: by the built-in reason, and by the rule's counter of such
    /// packets.
    fn end(&mut self, rule: RuleId, action: Action, reason: Reason) -> (Action, Reason) {
        let limited = self.eval.limited.iter().position(|&known| known == (rule, action, reason));
        let index = limited.expect("every effect that decides packets is in `limited`");
        let rules = usize::from(Reason::RULE_BASE) + self.eval.program.rules.len();
        self.eval.count(usize::from(reason.0), self.frame.wire_len);
        self.eval.count(rules + index, self.frame.wire_len);
        (action, reason)
    }
}

/// Whether the `nth` packet of a rule, counted from 0, is sampled. A Weyl sequence (golden ratio of 2^32) spreads
/// samples evenly, without a short period that a sender could exploit.
pub fn is_sampled(nth: u64, one_in: u32) -> bool {
    u64::from((nth as u32).wrapping_mul(0x9e37_79b1)) < sample_below(one_in)
}

/// 2^32 / `one_in`, rounded up. A packet is sampled if its element of the sequence is below this.
pub fn sample_below(one_in: u32) -> u64 {
    (1u64 << 32).div_ceil(u64::from(one_in.max(1)))
}
