//! One change of a live table.

use super::rib::Net;

/// A resolved change: a prefix with its label before and after, or its mask of sets for fused sets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub net: Net,
    pub old: u32,
    pub new: u32,
}

impl Step {
    /// Whether the step has an effect.
    pub fn changes(&self) -> bool {
        self.old != self.new
    }
}
