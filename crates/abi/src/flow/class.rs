//! Which flows make room for others: classes, each with its share of a bucket, and how soon a flow of a class goes.
//! `docs/reference/tracking.md#the-table` has the steps.

use super::{Flow, FlowState, Window, age};

/// What a flow has proven, which decides whether others may take its place. Its numbers are the upper bits of a tag:
///
/// ```text
///   15   14 13                      0
///  +-------+-------------------------+
///  | class |  hash, never all 0      |    the tag 0 is a free slot
///  +-------+-------------------------+
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum FlowClass {
    /// An open TCP connection whose both sides have answered each other. It is never evicted.
    Proven = 0,
    /// A TCP connection that is not open yet or has no answer yet.
    Embryonic = 1,
    /// A flow of another protocol than TCP, whose sender cannot prove its address, or a connection with an unseen side.
    Unproven = 2,
    /// A TCP connection that closes or was reset.
    Closing = 3,
}

/// The lowest bit of the class in a tag.
pub const TAG_CLASS_SHIFT: u32 = 14;
/// The bits of a tag that come from the hash. They are never all 0, so the tag 0 is a free slot.
pub const TAG_HASH: u16 = (1 << TAG_CLASS_SHIFT) - 1;

/// A closing connection makes room in a bucket that is rather full from this weighted age on, ticks: 16 s. That is 1 s
/// for one that is over, and 16 s for one that is half closed.
pub const RECLAIM_TICKS: u32 = 953;

impl FlowClass {
    /// The class in the tag of a used slot. The tag 0 is a free slot and has no class.
    pub const fn of_tag(tag: u16) -> Self {
        match tag >> TAG_CLASS_SHIFT {
            0 => FlowClass::Proven,
            1 => FlowClass::Embryonic,
            2 => FlowClass::Unproven,
            _ => FlowClass::Closing,
        }
    }

    /// The tag of a flow of this class, from the bits of its hash.
    pub const fn tag(self, hash: u16) -> u16 {
        hash | (self as u16) << TAG_CLASS_SHIFT
    }
}

impl Flow {
    /// What the flow has proven.
    pub fn class(&self) -> FlowClass {
        use FlowState::{
            Assured, CloseWait, Closed, Established, FinWait, LastAck, Replied, Resetting, Restored, SynReceived,
            SynReceived2, SynSent, SynSent2, TimeWait, Unreplied,
        };
        match self.state {
            SynSent | SynSent2 | SynReceived | SynReceived2 => FlowClass::Embryonic,
            Established | Resetting if !self.replied => FlowClass::Embryonic,
            // In one-way mode the other side has not sent anything.
            Established | Resetting if self.sides.iter().any(|side| side.window == Window::NONE) => FlowClass::Unproven,
            Established | Resetting | Restored => FlowClass::Proven,
            Unreplied | Replied | Assured => FlowClass::Unproven,
            FinWait | CloseWait | LastAck | TimeWait | Closed => FlowClass::Closing,
        }
    }

    /// How old the flow counts as at the time `now`, ticks, when one of its class has to go. What is over or unanswered
    /// counts as older than it is.
    pub fn weighted_age(&self, now: u32) -> u32 {
        age(now, self.time) << self.state.haste()
    }
}

impl FlowState {
    /// log2 of the factor of a flow's age.
    pub const fn haste(self) -> u32 {
        match self {
            FlowState::TimeWait | FlowState::Closed | FlowState::Unreplied => 4,
            FlowState::LastAck | FlowState::Replied => 2,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::{Side, TICK_SHIFT, TICKS};

    fn flow(state: FlowState, replied: bool, windows: [u8; 2]) -> Flow {
        let sides = windows.map(|window| Side { window: Window(window), ..Side::default() });
        Flow { time: 0, state, opener: 0, liberal: false, replied, syn: false, proxied: false, sides }
    }

    #[test]
    fn only_connections_that_both_sides_have_opened_are_proven() {
        let proven = FlowState::ALL
            .map(|(state, _)| state)
            .into_iter()
            .filter(|&state| flow(state, true, [9, 9]).class() == FlowClass::Proven);
        let expected = [FlowState::Established, FlowState::Resetting, FlowState::Restored];
        assert_eq!(proven.collect::<Vec<_>>(), expected);
        assert_eq!(flow(FlowState::Established, false, [9, 9]).class(), FlowClass::Embryonic);
        assert_eq!(flow(FlowState::Established, true, [9, 0]).class(), FlowClass::Unproven);
    }

    #[test]
    fn classes_are_in_tags() {
        for class in [FlowClass::Proven, FlowClass::Embryonic, FlowClass::Unproven, FlowClass::Closing] {
            assert_eq!(FlowClass::of_tag(class.tag(TAG_HASH)), class);
            assert_eq!(class.tag(7) & TAG_HASH, 7);
        }
        assert_eq!(FlowClass::Proven.tag(7), 7, "the common case compares the whole tag");
    }

    #[test]
    fn weighted_ages_do_not_overflow() {
        assert!(FlowState::ALL.iter().all(|(state, _)| (TICKS - 1).leading_zeros() >= state.haste()));
        assert_eq!(u64::from(RECLAIM_TICKS), 16_000_000_000 >> TICK_SHIFT);
        let over = flow(FlowState::TimeWait, true, [9, 9]);
        assert_eq!(over.weighted_age(60), 960, "a second");
    }
}
