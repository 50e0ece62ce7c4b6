//! What the parts of a program are called by.

/// Index into [`super::Program::slots`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SlotId(pub u16);

/// Index into [`super::Program::rules`]; `Reason::rule` of it is the rule's reason and counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RuleId(pub u16);

/// Index into [`super::Program::limiters`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LimiterId(pub u16);

/// Index into [`super::Chain::finds`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FindId(pub u16);

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
