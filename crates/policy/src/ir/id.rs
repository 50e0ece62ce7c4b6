//! Identifiers of the parts of a program.

pub use crate::checked::RuleSlotId;
pub use crate::direction::Direction;

/// Index into [`super::Program::slots`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SlotId(pub u16);

/// Index into [`super::Program::rules`]. `Reason::rule` of the index is the reason and counter of the rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RuleId(pub u16);

/// Index into [`super::Program::limiters`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LimiterId(pub u16);

/// Index into [`super::Program::adders`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AdderId(pub u16);

/// Index into [`super::Chain::finds`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FindId(pub u16);
