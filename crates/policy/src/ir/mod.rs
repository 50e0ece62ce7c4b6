//! The intermediate representation: what each direction of each posture does with a packet.
//!
//! A program separates matching from effects; both refer to rules by number. The [`MatchTree`] of a chain says which
//! rules match (`match_tree`), [`Program::rules`] says what a rule does then (`effect`). In the tree, `when` runs its
//! body if a test holds, and `find` looks up a key in a table. `rule` counts a match and runs the effects of the rule;
//! a verdict ends the chain. Tests only read the packet, so passes may merge, move and drop them. `eval` interprets the
//! tree and is the reference for every backend.

pub mod answers;
pub mod effect;
pub mod eval;
pub mod id;
pub mod lower;
pub mod match_tree;
pub mod parse;
pub mod print;
mod tables_tested;
pub mod verify;

pub use crate::checked::{
    AddKind, Defaults, Dynamic, EachLimit, Exceed, Fallback, LabelId, LimitEach, Log, Observe, OnExit, RuleSlot,
    TableKind, ValueSet,
};
use crate::field::Field;
pub use crate::tracking::{Invalid, PacketState, Synproxy, TIMEOUTS, Threshold, Timeout, Tracking};
use answers::Answering;
pub use effect::{Adder, Effect, Limiter, LimiterKind, Rule};
pub use id::{AdderId, Direction, FindId, LimiterId, RuleId, RuleSlotId, SlotId};
pub use match_tree::{MatchTree, Node, Test, Wanted};
use weir_abi::flow::FlowNeeds;
use weir_abi::{Action, Family, Layout, Reason};

/// A whole policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The policy's name.
    pub name: String,
    /// Verdicts on packets that bypass the rules or that no rule decides.
    pub defaults: Defaults,
    /// What the link does when Weir ends.
    pub on_exit: OnExit,
    /// How flows are tracked; `None` if they are not.
    pub tracking: Option<Tracking>,
    /// What is observed of the packets that pass; `None` if nothing is.
    pub observe: Option<Observe>,
    /// The sources that are inside, of IPv4 and of IPv6: where packets come from that go downstream. Empty if the
    /// policy does not say so, or by tables. That packets from outside do not come from them is said by rules.
    pub inside: [ValueSet; 2],
    /// Images of tables and lists of limits.
    pub slots: Vec<Slot>,
    /// Groups of buckets that effects charge.
    pub limiters: Vec<Limiter>,
    /// How effects add to tables.
    pub adders: Vec<Adder>,
    /// Rules that are put in while Weir runs.
    pub rule_slots: Vec<RuleSlot>,
    /// The rules of all chains.
    pub rules: Vec<Rule>,
    /// Two chains for each posture, upstream first. The chains of the base policy come first, the chain for a card's
    /// answers comes last.
    pub chains: Vec<Chain>,
    /// The chain that reads a card's answers; `None` if there is no card.
    pub card: Option<Answering>,
}

/// An image as the compiler knows it: content and layout, but not its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Its content.
    pub contents: SlotContents,
    /// The family of its keys.
    pub family: Family,
    /// Its layout.
    pub layout: Layout,
    /// Bounds, if it holds a dynamic table.
    pub dynamic: Option<Dynamic>,
    /// The kind of its table, if rules count at its entries. A lookup then finds the number of an entry, which leads to
    /// its label.
    pub counted: Option<TableKind>,
}

/// The content of an image. Names of tables and of lists of limits are separate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlotContents {
    /// The tables with these names. If there are several, all are sets, and a lookup returns one bit for each.
    Tables(Vec<String>),
    /// The prefixes of the list of limits with this name. The label of a prefix is its index among them, from 1.
    Limits(String),
}

impl Slot {
    /// Its name: `bad`, or `allowed+bad`.
    pub fn name(&self) -> String {
        match &self.contents {
            SlotContents::Tables(names) => names.join("+"),
            SlotContents::Limits(name) => name.clone(),
        }
    }

    /// The names of its tables. Empty if it holds limits.
    pub fn tables(&self) -> &[String] {
        match &self.contents {
            SlotContents::Tables(names) => names,
            SlotContents::Limits(_) => &[],
        }
    }

    /// Whether it holds several tables, so that one lookup is enough for all.
    pub fn is_fused(&self) -> bool {
        self.tables().len() > 1
    }
}

/// One direction of one posture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// The posture; `None` for the base policy.
    pub posture: Option<String>,
    /// The direction.
    pub direction: Direction,
    /// The table lookups of its tests and of the effects of its rules.
    pub finds: Vec<Find>,
    /// Which rules match.
    pub tree: MatchTree,
}

impl Chain {
    /// The chain's name in C: `upstream`, `high_alert_upstream`.
    pub fn symbol(&self) -> String {
        let direction = self.direction.name();
        match &self.posture {
            None => direction.to_owned(),
            Some(posture) => format!("{}_{direction}", symbol(posture)),
        }
    }
}

/// A name as a C identifier.
pub fn symbol(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

/// A lookup of a key in a slot. Its result is the label of the longest matching prefix, or 0. In a fused slot, one bit
/// for each table that contains the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Find {
    /// The slot.
    pub slot: SlotId,
    /// An address field of the table's family.
    pub key: Field,
}

impl Program {
    /// Rules with limits or slots that decide packets, each with verdict and reason, in order of the rules. Each has a
    /// counter of the packets that were decided so. These counters follow the counters of the rules, in this order. The
    /// counter of a rule counts all packets that matched.
    pub fn limited(&self) -> Vec<(RuleId, Action, Reason)> {
        let mut limited = Vec::new();
        for (index, rule) in (0..).zip(&self.rules) {
            let first = limited.len();
            for (action, reason) in rule.effects.iter().filter_map(Effect::ends) {
                if !limited[first..].contains(&(RuleId(index), action, reason)) {
                    limited.push((RuleId(index), action, reason));
                }
            }
        }
        limited
    }

    /// The address fields that the effects of a rule read: fields of `limit each`, and fields that are added to tables.
    pub fn addresses_read(&self, rule: RuleId) -> impl Iterator<Item = Field> {
        self.rule(rule).effects.iter().flat_map(|effect| {
            let limited = effect.limiter().and_then(|limiter| match self.limiter(limiter).kind {
                LimiterKind::Each(each) => Some(each.key),
                LimiterKind::Prefixes { .. } | LimiterKind::Labels | LimiterKind::Rate(_) => None,
            });
            limited.into_iter().chain(effect.adder().map(|adder| self.adder(adder).key))
        })
    }

    /// The largest number of additions that one packet makes: the adding effects of the chain that has most.
    pub fn additions_max(&self) -> usize {
        let of_rule = |rule: RuleId| self.rule(rule).effects.iter().filter(|effect| effect.adder().is_some()).count();
        let of_chain = |chain: &Chain| match_tree::rules(&chain.tree.nodes).map(of_rule).sum();
        self.chains.iter().map(of_chain).max().unwrap_or(0)
    }

    /// Whether packets leave changed.
    pub fn rewrites(&self) -> bool {
        self.tracking.is_some_and(|tracking| tracking.synproxy.is_some())
    }

    /// What the policy needs of a table of flows, if it tracks.
    pub fn flow_needs(&self) -> Option<FlowNeeds> {
        let tracking = self.tracking?;
        Some(FlowNeeds { size: tracking.size, timeouts: tracking.timeouts(), proxied: self.rewrites() })
    }

    /// Whether tables change while packets pass, by rules or because entries expire.
    pub fn changes_tables(&self) -> bool {
        let expires = |slot: &Slot| slot.dynamic.is_some_and(|dynamic| dynamic.timeout_ms.is_some());
        !self.adders.is_empty() || self.slots.iter().any(expires)
    }

    /// Whether any table counts the packets of its entries.
    pub fn counts_entries(&self) -> bool {
        self.slots.iter().any(|slot| slot.counted.is_some())
    }

    /// Number of counters: built-in reasons, rules, and packets that limits decided.
    pub fn counters(&self) -> usize {
        usize::from(Reason::RULE_BASE) + self.rules.len() + self.limited().len()
    }

    /// The limiter.
    pub fn limiter(&self, id: LimiterId) -> &Limiter {
        &self.limiters[usize::from(id.0)]
    }

    /// The adder.
    pub fn adder(&self, id: AdderId) -> &Adder {
        &self.adders[usize::from(id.0)]
    }

    /// Index of the chain of a posture and direction.
    pub fn chain(&self, posture: Option<&str>, direction: Direction) -> Option<usize> {
        self.chains.iter().position(|chain| chain.posture.as_deref() == posture && chain.direction == direction)
    }

    /// The rule.
    pub fn rule(&self, id: RuleId) -> &Rule {
        &self.rules[usize::from(id.0)]
    }

    /// The slot of rules.
    pub fn rule_slot(&self, id: RuleSlotId) -> &RuleSlot {
        &self.rule_slots[usize::from(id.0)]
    }

    /// The slot.
    pub fn slot(&self, id: SlotId) -> &Slot {
        &self.slots[usize::from(id.0)]
    }
}
