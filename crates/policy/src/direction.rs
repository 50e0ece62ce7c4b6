//! The direction of packets through Weir.

/// The direction of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// From the lower to the upper interfaces.
    Upstream,
    /// From the upper to the lower interfaces.
    Downstream,
}

impl Direction {
    /// Both directions, in the order of a posture's chains.
    pub const BOTH: [Direction; 2] = [Direction::Upstream, Direction::Downstream];

    /// The policy keyword.
    pub const fn name(self) -> &'static str {
        match self {
            Direction::Upstream => "upstream",
            Direction::Downstream => "downstream",
        }
    }
}
