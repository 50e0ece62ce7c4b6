//! What a packet costs the software with a split, by a model of its work.
//!
//! ```text
//! cycles a packet that the card receives =
//!     share that arrives * (receive + seal and body + parse, if a rule reads headers)
//!   + for each rule of the chain: share that reaches it * (tests + lookups + second halves of the card's lookups)
//! ```
//! The rules are those of the answered chain for packets with answers, and those of the plain chain for the others. A
//! packet that the card drops costs nothing.

use crate::category::Offload;
use crate::program::TableKey;
use crate::split::Placement;
use std::collections::BTreeSet;
use weir_abi::card::SEAL_BYTES;
use weir_policy::field::{Answer, Subject};
use weir_policy::ir::match_tree::{Condition, conditions};
use weir_policy::ir::{Effect, Find, FindId, Node, Program, RuleId, Test};

/// Bytes of a frame on Ethernet besides those from the link header on: preamble, FCS and gap.
const OVERHEAD_BYTES: f64 = 24.0;

/// The cycles of the software's steps.
pub trait Costs {
    /// Receiving and forwarding a packet.
    fn receive(&self) -> f64;
    /// Parsing it.
    fn parse(&self) -> f64;
    /// Comparing a seal and loading the body.
    fn seal(&self) -> f64;
    /// A byte of metadata that is received.
    fn byte(&self) -> f64;
    /// A comparison of a value, or of a bit of an answer.
    fn test(&self) -> f64;
    /// A lookup in the software's own layout.
    fn lookup(&self, find: Find) -> f64;
    /// The second half of a lookup in a table.
    fn finish(&self, table: &str) -> f64;
}

/// Measured traffic: for each rule of the program, by index, shares of the packets that the card receives.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Traffic {
    /// Packets a second.
    pub pps: f64,
    /// Bytes of a frame, on average, from the link header on.
    pub frame_bytes: f64,
    /// The share for which a card answers.
    pub answered: f64,
    /// The share that is tested by each rule.
    pub reached: Vec<f64>,
    /// The share that each rule matches.
    pub matched: Vec<f64>,
}

/// The link between card and host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Bits a second.
    pub bits_per_s: f64,
    /// The load up to which a choice is allowed: 1 is the whole link.
    pub load_max: f64,
}

/// What there is in front of the software if no rule is offloaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// Nothing: such a card is not used.
    NoCard,
    /// The card, which seals packets all the same: it is in use already.
    Seals,
}

/// What a packet costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bill {
    /// Cycles of the software for a packet that the card receives, on average.
    pub cycles: f64,
    /// Bytes that the card appends to a packet with answers; 0 if there is none.
    pub trailer_bytes: usize,
    /// The share of packets that the card drops.
    pub dropped: f64,
    /// The load of the link: 1 is the whole link.
    pub load: f64,
    /// The load up to which a choice is allowed.
    pub load_max: f64,
}

impl Bill {
    /// Whether the packets fit the link.
    pub fn fits(&self) -> bool {
        self.load <= self.load_max
    }
}

/// The cost of a placement.
pub(crate) fn bill(
    (program, chain): (&Program, usize),
    placement: &Placement,
    costs: &dyn Costs,
    (link, idle): (Link, Idle),
    traffic: &Traffic,
) -> Bill {
    let chain = &program.chains[chain];
    // Seals alone cost something.
    let is_used = idle == Idle::Seals || placement.rules.iter().any(|placed| placed.offload != Offload::Software);
    let answered = if is_used { traffic.answered } else { 0.0 };
    let matched = placement.card.dropped.iter().map(|rule| share(&traffic.matched, *rule));
    let dropped = matched.fold(0.0, |sum, share| sum + share).min(answered);
    let trailer = |body: usize| if is_used { (body + SEAL_BYTES) as f64 } else { 0.0 };
    let of_chain = |nodes: &[Node], body: usize| {
        let (rules, reads_headers) = walk((program, &chain.finds), &placement.card.lookups, nodes, costs, traffic);
        let seal = if is_used { costs.seal() + costs.byte() * trailer(body) } else { 0.0 };
        let parse = if reads_headers { costs.parse() } else { 0.0 };
        (costs.receive() + seal + parse, rules)
    };
    let body = placement.card.body.bytes();
    let (plain, plain_rules) = of_chain(&chain.tree.nodes, 0);
    let (with, with_rules) = of_chain(&placement.nodes, body);
    // The share of packets that reach a rule is a share of all packets. So its cost is a share of the cost of all
    // packets, too.
    let cycles = (answered - dropped) * with + answered * with_rules + (1.0 - answered) * (plain + plain_rules);
    let arrives = 1.0 - dropped;
    let frames = traffic.frame_bytes + OVERHEAD_BYTES;
    let bytes = arrives * frames + (answered - dropped) * trailer(body) + (1.0 - answered) * trailer(0);
    Bill {
        cycles,
        trailer_bytes: trailer(body) as usize,
        dropped,
        load: traffic.pps * bytes * 8.0 / link.bits_per_s,
        load_max: link.load_max,
    }
}

fn share(shares: &[f64], rule: RuleId) -> f64 {
    shares.get(usize::from(rule.0)).copied().unwrap_or(0.0)
}

/// Cycles of the rules of a chain for a packet, and whether any of them reads headers. The first rule that needs a
/// lookup pays for it.
fn walk(
    (program, finds): (&Program, &[Find]),
    lookups: &[TableKey],
    nodes: &[Node],
    costs: &dyn Costs,
    traffic: &Traffic,
) -> (f64, bool) {
    let (mut cycles, mut reads_headers, mut done) = (0.0, nodes.contains(&Node::Track), BTreeSet::new());
    for Condition { rule, tests } in conditions(nodes) {
        let mut of_rule = costs.test() * tests.len() as f64;
        for test in &tests {
            match test {
                Test::Found { find, .. } => {
                    of_rule += first(&mut done, *find).map_or(0.0, |find| of(costs, finds, find))
                }
                Test::Value { subject: Subject::Card(Answer::Label(lookup)), .. } => {
                    // Numbers above the numbers of finds, which are indices.
                    let number = FindId(u16::MAX - u16::from(*lookup));
                    of_rule +=
                        first(&mut done, number).map_or(0.0, |_| costs.finish(&lookups[usize::from(*lookup)].name));
                }
                _ => {}
            }
            reads_headers |= !test.asks_card();
        }
        let effects = program.rule(rule);
        of_rule +=
            effects.finds().filter_map(|find| first(&mut done, find)).map(|find| of(costs, finds, find)).sum::<f64>();
        let acts = |effect: &Effect| effect.tracks() || effect.rule_slot().is_some();
        reads_headers |= effects.finds().next().is_some()
            || program.addresses_read(rule).next().is_some()
            || effects.effects.iter().any(acts);
        cycles += share(&traffic.reached, rule) * of_rule;
    }
    (cycles, reads_headers)
}

fn first(done: &mut BTreeSet<FindId>, find: FindId) -> Option<FindId> {
    done.insert(find).then_some(find)
}

fn of(costs: &dyn Costs, finds: &[Find], find: FindId) -> f64 {
    costs.lookup(finds[usize::from(find.0)])
}
