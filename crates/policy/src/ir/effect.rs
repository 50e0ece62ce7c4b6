//! What rules do with packets that match: effects, the limiters that effects charge, and the adders that effects use.
//! Tests are in [`super::match_tree`].

use super::id::{AdderId, Direction, FindId, LimiterId, RuleSlotId, SlotId};
use crate::checked::{AddKind, Exceed, LimitEach, Log};
use crate::field::Field;
use weir_abi::slot::VERDICT;
use weir_abi::{Action, Family, Limit, Reason};

/// A group of buckets, one for each label. Each limit statement of a chain has its own limiter. Statements with the
/// same ordinal, kind and direction in other postures share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limiter {
    /// The list's name, `rate` or `each`.
    pub name: String,
    /// The direction of its statements.
    pub direction: Direction,
    /// Ordinal from 0 of the statement among the statements of its chain with the same list and family, or with the
    /// same kind.
    pub nth: u16,
    /// How a bucket is selected.
    pub kind: LimiterKind,
    /// What is counted for each bucket.
    pub log: Log,
}

impl Limiter {
    /// Whether it limits the connections of addresses.
    pub fn is_of_connections(&self) -> bool {
        matches!(self.kind, LimiterKind::Each(each) if each.connections().is_some())
    }
}

/// How a limiter selects a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimiterKind {
    /// The most specific prefix of a list.
    Prefixes {
        /// The family of the addresses.
        family: Family,
        /// Whether all enclosing prefixes are charged too.
        nested: bool,
    },
    /// The label of the address in a table.
    Labels,
    /// One bucket for all packets.
    Rate(Limit),
    /// A bounded table of buckets, keyed by address.
    Each(LimitEach),
}

/// How an effect adds an address to a table. Equal statements share an adder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Adder {
    /// What happens to an entry that is there.
    pub kind: AddKind,
    /// The slot of the table, which holds one dynamic set of the key's family.
    pub slot: SlotId,
    /// An address field.
    pub key: Field,
    /// Prefix length: the entry is the prefix of the address.
    pub length: u8,
    /// The timeout of the entry, ms; `None`: the timeout of the table.
    pub timeout_ms: Option<u64>,
}

impl Adder {
    /// The mask of the prefix length, right-aligned.
    pub fn mask(&self) -> u128 {
        let all = u128::MAX >> (128 - self.key.bits());
        all << (self.key.bits() - self.length) & all
    }
}

/// What a rule does with packets that match it. A [`super::MatchTree`] says which packets match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its citation: `edge.weir:12`.
    pub at: String,
    /// Its text on one line.
    pub text: String,
    /// Effects in order, besides counting. Only the last may be a verdict.
    pub effects: Vec<Effect>,
}

impl Rule {
    /// The verdict, if the rule has one.
    pub fn verdict(&self) -> Option<Action> {
        match self.effects.last() {
            Some(&Effect::Verdict(action)) => Some(action),
            _ => None,
        }
    }

    /// Whether it drops packets that the tracker refuses.
    pub fn tracks(&self) -> bool {
        self.effects.iter().any(Effect::tracks)
    }

    /// Whether it answers SYNs.
    pub fn answers(&self) -> bool {
        self.effects.contains(&Effect::Synproxy)
    }

    /// Whether it limits the connections of addresses.
    pub fn counts_connections(&self, limiters: &[Limiter]) -> bool {
        let limited = self.effects.iter().filter_map(Effect::limiter);
        limited.map(|id| &limiters[usize::from(id.0)]).any(Limiter::is_of_connections)
    }

    /// The finds that its effects use.
    pub fn finds(&self) -> impl Iterator<Item = FindId> {
        self.effects.iter().filter_map(Effect::find)
    }
}

/// An effect of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Copies one packet in `one_in` to the divert interface.
    Sample {
        /// At least 1.
        one_in: u32,
    },
    /// Charges the packet to a bucket.
    Limit {
        /// The limiter.
        limiter: LimiterId,
        /// The find that selects the bucket, done on every path to the rule. `None` if no table is used.
        find: Option<FindId>,
        /// The adder for the addresses of packets that exceed the limit.
        add: Option<AdderId>,
        /// What happens to packets that exceed the limit.
        exceed: Exceed,
    },
    /// Adds an address to a table.
    Add {
        /// The adder.
        adder: AdderId,
    },
    /// Counts the packet at the entry that a find has found, once a packet and find.
    Count {
        /// The find in a slot with counters, done on every path to the rule.
        find: FindId,
    },
    /// Drops packets of TCP that the tracker refuses. The rule does not count them. The first effect of its rule.
    Track,
    /// As `Track`, and answers SYNs that would open a connection. The first effect of its rule.
    Synproxy,
    /// Drops the packet if a rule of a slot does. At most one of a chain for each slot.
    Slot(RuleSlotId),
    /// Decides the packet and ends the chain.
    Verdict(Action),
}

impl Effect {
    /// Whether it drops packets that the tracker refuses.
    pub fn tracks(&self) -> bool {
        matches!(self, Effect::Track | Effect::Synproxy)
    }

    /// The slot that it asks.
    pub fn rule_slot(&self) -> Option<RuleSlotId> {
        match self {
            Effect::Slot(slot) => Some(*slot),
            _ => None,
        }
    }

    /// The verdict and the reason of packets that exceed the limit or that the slot drops. `None` for other effects.
    pub fn ends(&self) -> Option<(Action, Reason)> {
        match self {
            Effect::Slot(_) => Some((VERDICT, Reason::SLOT)),
            _ => self.exceeded_verdict().map(|action| (action, Reason::LIMIT)),
        }
    }

    /// The find that it uses, done on every path to the rule.
    pub fn find(&self) -> Option<FindId> {
        match self {
            Effect::Limit { find, .. } => *find,
            Effect::Count { find } => Some(*find),
            Effect::Add { .. } | Effect::Sample { .. } => None,
            Effect::Track | Effect::Synproxy | Effect::Slot(_) | Effect::Verdict(_) => None,
        }
    }

    /// The limiter that it charges.
    pub fn limiter(&self) -> Option<LimiterId> {
        match self {
            Effect::Limit { limiter, .. } => Some(*limiter),
            Effect::Add { .. } | Effect::Count { .. } | Effect::Sample { .. } => None,
            Effect::Track | Effect::Synproxy | Effect::Slot(_) | Effect::Verdict(_) => None,
        }
    }

    /// The adder that it uses.
    pub fn adder(&self) -> Option<AdderId> {
        match self {
            Effect::Add { adder } => Some(*adder),
            Effect::Limit { add, .. } => *add,
            Effect::Count { .. } | Effect::Sample { .. } => None,
            Effect::Track | Effect::Synproxy | Effect::Slot(_) | Effect::Verdict(_) => None,
        }
    }

    /// The verdict on packets that exceed the limit, if it is a limit that decides them.
    pub fn exceeded_verdict(&self) -> Option<Action> {
        match self {
            Effect::Limit { exceed, .. } => exceed.verdict(),
            Effect::Add { .. } | Effect::Count { .. } | Effect::Sample { .. } => None,
            Effect::Track | Effect::Synproxy | Effect::Slot(_) | Effect::Verdict(_) => None,
        }
    }
}
