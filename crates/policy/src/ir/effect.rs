//! What rules do with packets that match them: their effects, and the limiters that those charge. Nothing here knows a test.

use super::id::{Direction, FindId, LimiterId};
use crate::checked::{Exceed, LimitEach, Log};
use weir_abi::{Action, Family, Limit};

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

/// What a rule does with packets that match it. Which those are says a [`super::MatchTree`].
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

    /// What its effects look up in tables.
    pub fn finds(&self) -> impl Iterator<Item = FindId> {
        self.effects.iter().filter_map(Effect::find)
    }
}

/// What a rule does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// One packet in so many is copied to the divert interface.
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
    /// What it looks up in a table, done before on every way to the rule.
    pub fn find(&self) -> Option<FindId> {
        match self {
            Effect::Limit { find, .. } => *find,
            Effect::Sample { .. } | Effect::Track | Effect::Verdict(_) => None,
        }
    }

    /// The limiter that it charges.
    pub fn limiter(&self) -> Option<LimiterId> {
        match self {
            Effect::Limit { limiter, .. } => Some(*limiter),
            Effect::Sample { .. } | Effect::Track | Effect::Verdict(_) => None,
        }
    }

    /// The verdict on what has no room, if it is a limit that ends its way.
    pub fn exceeded_verdict(&self) -> Option<Action> {
        match self {
            Effect::Limit { exceed, .. } => exceed.verdict(),
            Effect::Sample { .. } | Effect::Track | Effect::Verdict(_) => None,
        }
    }
}
