//! The intermediate representation: what each direction of each posture does with a packet, as a tree of tests.
//!
//! A chain is a list of nodes run in order. `when` runs its body if a test holds, `find` asks a table, `rule` counts a match, has
//! the rule's effects and, if it has a verdict, ends the chain. Tests read the packet and change nothing, so passes may merge, move
//! and drop them; `eval` runs the tree as it stands and is what every backend answers to.

mod asked;
pub mod eval;
pub mod lower;
pub mod parse;
pub mod print;
pub mod verify;

pub use crate::checked::{Defaults, Exceed, Fallback, LabelId, LimitEach, Log, OnExit, ValueSet};
use crate::field::{Field, Guard, Subject};
use weir_abi::{Action, Family, Layout, Limit, Reason};

/// Index into [`Program::slots`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SlotId(pub u16);

/// Index into [`Program::rules`]; `Reason::rule` of it is the rule's reason and counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RuleId(pub u16);

/// Index into [`Program::limiters`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LimiterId(pub u16);

/// Index into [`Chain::finds`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FindId(pub u16);

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
    /// Rules of all chains.
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

/// Buckets, one for each label of what they police by. Each limit statement of a chain has its own; the chains of postures share
/// those of statements that are the same in order and kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limiter {
    /// The list's name, `rate` or `each`.
    pub name: String,
    /// The direction of its statements.
    pub direction: Direction,
    /// How many statements of the chain with the same list and family, or of the same kind, stand before.
    pub nth: u16,
    /// What it polices by.
    pub kind: LimiterKind,
    /// What is counted for each bucket.
    pub log: Log,
}

/// What a limiter polices by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimiterKind {
    /// The most specific prefix of a list.
    Prefixes {
        /// The family of its addresses.
        family: Family,
        /// Whether all enclosing prefixes are charged too.
        nested: bool,
    },
    /// The label that a table has for the address.
    Labels,
    /// One bucket for all packets.
    Rate(Limit),
    /// A table of buckets for addresses.
    Each(LimitEach),
}

/// A rule, apart from the tests that lead to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// `edge.weir:12`.
    pub at: String,
    /// Its text on one line.
    pub text: String,
    /// What it does besides counting; only the last may be a verdict.
    pub effects: Vec<Effect>,
}

impl Rule {
    /// The verdict, if the rule ends the chain.
    pub fn verdict(&self) -> Option<Action> {
        match self.effects.last() {
            Some(&Effect::Verdict(action)) => Some(action),
            _ => None,
        }
    }
}

/// What a rule does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// One packet in so many is copied to the divert bundle.
    Sample {
        /// At least 1.
        one_in: u32,
    },
    /// Charges the packet to a bucket.
    Limit {
        /// Whose buckets.
        limiter: LimiterId,
        /// What finds the bucket, done on every way here; `None` where no table does.
        find: Option<FindId>,
        /// What happens to what has no room.
        exceed: Exceed,
    },
    /// Follows the TCP connection.
    Track,
    /// Ends the chain.
    Verdict(Action),
}

impl Effect {
    /// The verdict on what has no room, if it is a limit that ends its way.
    pub fn exceeded_verdict(&self) -> Option<Action> {
        match self {
            Effect::Limit { exceed, .. } => exceed.verdict(),
            Effect::Sample { .. } | Effect::Track | Effect::Verdict(_) => None,
        }
    }
}

/// Which way packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// From the lower bundle to the upper.
    Upstream,
    /// From the upper bundle to the lower.
    Downstream,
}

impl Direction {
    /// Both, in the order in which a posture's chains stand.
    pub const BOTH: [Direction; 2] = [Direction::Upstream, Direction::Downstream];

    /// The policy keyword.
    pub const fn name(self) -> &'static str {
        match self {
            Direction::Upstream => "upstream",
            Direction::Downstream => "downstream",
        }
    }
}

/// One direction of one posture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// The posture; `None` for the base policy.
    pub posture: Option<String>,
    /// The direction.
    pub direction: Direction,
    /// Everything that the chain may ask tables.
    pub finds: Vec<Find>,
    /// Finds done before the body, for a whole burst at a time. Those are not in the body.
    pub staged: Vec<FindId>,
    /// The nodes.
    pub body: Vec<Node>,
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

/// One step of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// Runs the body if the test holds.
    When {
        /// The test.
        test: Test,
        /// The body.
        body: Vec<Node>,
    },
    /// Asks a table; the key's guard holds here.
    Find(FindId),
    /// The rule matched.
    Rule(RuleId),
}

/// A test of the packet. The guard of what it looks at holds where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Test {
    /// The packet has the header.
    Guard(Guard),
    /// The value is, or negated is not, in the set.
    Value {
        /// What is looked at. Raw bits outside the captured packet make the test fail, negated or not.
        subject: Subject,
        /// Bits that count.
        mask: Option<u128>,
        /// The values.
        set: ValueSet,
        /// Turns the test around.
        negated: bool,
    },
    /// What was found is, or negated is not, what was looked for.
    Found {
        /// Done before on every way here.
        find: FindId,
        /// What was looked for.
        wanted: Wanted,
        /// Turns the test around.
        negated: bool,
    },
}

/// What a find is to have found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Any label but 0.
    Any,
    /// A label of the list, which is sorted.
    Labels(Vec<LabelId>),
    /// The bit of one of a fused slot's tables.
    Table(u8),
}

impl Wanted {
    /// Whether `found` is it.
    pub fn is(&self, found: u32) -> bool {
        match self {
            Wanted::Any => found != 0,
            Wanted::Labels(labels) => labels.iter().any(|label| label.0 == found),
            Wanted::Table(index) => found >> index & 1 != 0,
        }
    }
}

impl Program {
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
        self.rule(rule).effects.iter().filter_map(|effect| match effect {
            Effect::Limit { limiter, .. } => match self.limiter(*limiter).kind {
                LimiterKind::Each(each) => Some(each.key),
                LimiterKind::Prefixes { .. } | LimiterKind::Labels | LimiterKind::Rate(_) => None,
            },
            Effect::Sample { .. } | Effect::Track | Effect::Verdict(_) => None,
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
