//! Identifiers of the parts of a program.

/// Index into [`super::Program::slots`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SlotId(pub u16);

/// Index into [`super::Program::rules`]. `Reason::rule` of the index is the reason and counter of the rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RuleId(pub u16);

/// Index into [`super::Program::limiters`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LimiterId(pub u16);

/// Index into [`super::Chain::finds`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FindId(pub u16);

/// The direction of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// From the lower to the upper interfaces.
    Upstream,
    /// From the upper to the lower interfaces.
    Downstream,
}

impl Direction {
    /// Both, in the order of a posture's chains.
    pub const BOTH: [Direction; 2] = [Direction::Upstream, Direction::Downstream];

    /// The policy keyword.
    pub const fn name(self) -> &'static str {
        match self {
            Direction::Upstream => "upstream",
            Direction::Downstream => "downstream",
        }
    }
}
