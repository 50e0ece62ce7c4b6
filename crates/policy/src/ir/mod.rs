//! The intermediate representation: what each direction of each posture does with a packet.
//!
//! A program keeps two things apart, which meet in a rule's number. A chain's [`MatchTree`] says which rules match (`match_tree`),
//! [`Program::rules`] what a rule does then (`effect`). Of the tree, `when` runs its body if a test holds, `find` asks a table, `rule`
//! counts a match, has the rule's effects and, if it has a verdict, ends the chain. Tests read the packet and change nothing, so
//! passes may merge, move and drop them; `eval` runs the tree as it stands and is what every backend answers to.

mod asked;
pub mod effect;
pub mod eval;
pub mod id;
pub mod lower;
pub mod match_tree;
pub mod parse;
pub mod print;
pub mod verify;

pub use crate::checked::{Defaults, Exceed, Fallback, LabelId, LimitEach, Log, OnExit, ValueSet};
use crate::field::Field;
pub use effect::{Effect, Limiter, LimiterKind, Rule};
pub use id::{Direction, FindId, LimiterId, RuleId, SlotId};
pub use match_tree::{MatchTree, Node, Test, Wanted};
use weir_abi::{Action, Family, Layout, Reason};

/// A whole policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The policy's name.
    pub name: String,
    /// What happens before any rule.
    pub defaults: Defaults,
    /// What the link does when Weir ends.
    pub on_exit: OnExit,
    /// Images of tables and lists of limits.
    pub slots: Vec<Slot>,
    /// What has buckets.
    pub limiters: Vec<Limiter>,
    /// What the rules of all chains do.
    pub rules: Vec<Rule>,
    /// Two a posture, upstream first; the base policy's come first.
    pub chains: Vec<Chain>,
}

/// An image as rules see it: whose it is and how it is laid out, never its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// What is in it.
    pub holds: Holds,
    /// Family of its keys.
    pub family: Family,
    /// How it is laid out.
    pub layout: Layout,
}

/// What an image holds. Tables and lists of limits each have their own names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holds {
    /// The tables of these names. Of several, all sets, it answers with a bit for each.
    Tables(Vec<String>),
    /// The prefixes of the list of limits of this name; a label is the place of a prefix among them, from 1.
    Limits(String),
}

impl Slot {
    /// What it is called: `bad`, or `allowed+bad`.
    pub fn name(&self) -> String {
        match &self.holds {
            Holds::Tables(names) => names.join("+"),
            Holds::Limits(name) => name.clone(),
        }
    }

    /// The names of its tables; none if it holds limits.
    pub fn tables(&self) -> &[String] {
        match &self.holds {
            Holds::Tables(names) => names,
            Holds::Limits(_) => &[],
        }
    }

    /// Whether one lookup answers for several tables.
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
    /// Everything that its tests and its rules' effects may ask tables.
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

/// A question to a slot: the label of the longest prefix that holds the key, 0 if there is none; of a fused slot, a bit for each table
/// that holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Find {
    /// The slot.
    pub slot: SlotId,
    /// An address field of the table's family.
    pub key: Field,
}

/// Something that no engine does yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported {
    /// The rule that asks for it.
    pub rule: RuleId,
    /// `limit`, `track`.
    pub what: &'static str,
}

impl Program {
    /// Rules with effects that no engine has yet. Empty: every one takes the program.
    pub fn unsupported(&self) -> Vec<Unsupported> {
        let mut found = Vec::new();
        for (rule, Rule { effects, .. }) in (0..).map(RuleId).zip(&self.rules) {
            found.extend(effects.iter().filter_map(Effect::unsupported).map(|what| Unsupported { rule, what }));
        }
        found
    }

    /// Rules whose limits end the way of what has no room, each with the verdict; in order of the rules. The counters of what they
    /// ended stand behind those of the rules, in this order: a rule's own counter counts all that matched it.
    pub fn limited(&self) -> Vec<(RuleId, Action)> {
        let mut limited = Vec::new();
        for (index, rule) in (0..).zip(&self.rules) {
            let first = limited.len();
            for action in rule.effects.iter().filter_map(Effect::exceeded_verdict) {
                if !limited[first..].contains(&(RuleId(index), action)) {
                    limited.push((RuleId(index), action));
                }
            }
        }
        limited
    }

    /// Addresses that a rule's limits look at themselves.
    pub fn limited_addresses(&self, rule: RuleId) -> impl Iterator<Item = Field> {
        let limiters = self.rule(rule).effects.iter().filter_map(Effect::limiter);
        limiters.filter_map(|limiter| match self.limiter(limiter).kind {
            LimiterKind::Each(each) => Some(each.key),
            LimiterKind::Prefixes { .. } | LimiterKind::Labels | LimiterKind::Rate(_) => None,
        })
    }

    /// Counters that the program needs: built-in reasons, rules, what limits of rules ended.
    pub fn counters(&self) -> usize {
        usize::from(Reason::RULE_BASE) + self.rules.len() + self.limited().len()
    }

    /// The limiter.
    pub fn limiter(&self, id: LimiterId) -> &Limiter {
        &self.limiters[usize::from(id.0)]
    }

    /// Index of the chain of a posture and direction.
    pub fn chain(&self, posture: Option<&str>, direction: Direction) -> Option<usize> {
        self.chains.iter().position(|chain| chain.posture.as_deref() == posture && chain.direction == direction)
    }

    /// The rule.
    pub fn rule(&self, id: RuleId) -> &Rule {
        &self.rules[usize::from(id.0)]
    }

    /// The slot.
    pub fn slot(&self, id: SlotId) -> &Slot {
        &self.slots[usize::from(id.0)]
    }
}
