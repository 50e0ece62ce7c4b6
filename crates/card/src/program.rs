//! The card's part of a policy: patterns, rules, lookups, and the body that it appends.

use crate::body::BodyLayout;
use crate::field::CardField;
pub use crate::pattern::TableKey;
use weir_policy::field::Guard;
use weir_policy::ir::RuleId;

/// What a card does with the packets of one chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CardProgram {
    /// What is compared. The first [`BodyLayout::patterns`] are sent.
    pub patterns: Vec<CardPattern>,
    /// What follows from matches: rules that count, then those that drop, then those that end, in the policy's order.
    pub rules: Vec<CardRule>,
    /// What is looked up.
    pub lookups: Vec<TableKey>,
    /// Whether packets with IP options get no answers, because a default of the policy decides them.
    pub options_alone: bool,
    /// The rules of the policy whose packets the card drops, by counter.
    pub dropped: Vec<RuleId>,
    /// What is appended.
    pub body: BodyLayout,
}

/// A comparison.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CardPattern {
    /// The header that the packet must have.
    pub header: Guard,
    /// The comparison of a field; without it only the header is wanted.
    pub compare: Option<Compare>,
}

/// The comparison of a field.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Compare {
    /// The field.
    pub field: CardField,
    /// The bits that are compared.
    pub mask: u32,
    /// Inclusive ranges.
    pub ranges: Vec<(u32, u32)>,
    /// Whether the value must be outside of all of them.
    pub negated: bool,
}

impl Compare {
    /// Whether a value passes.
    pub fn holds(&self, value: u32) -> bool {
        let value = value & self.mask;
        self.ranges.iter().any(|&(first, last)| (first..=last).contains(&value)) != self.negated
    }
}

/// A rule: what follows if all its patterns match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CardRule {
    /// Indices of patterns.
    pub patterns: Vec<usize>,
    /// What follows.
    pub act: Act,
}

/// What follows from a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Sets this bit of `counted`.
    Count(u8),
    /// Drops the packet and counts it.
    Drop(u8),
    /// `first` becomes this number, unless an earlier rule has set it.
    End(u8),
}
