//! The decision about one packet and its reason, in one word.

use crate::Reason;

/// What to do with a packet. `enum action` in `datapath/core/verdict.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Action {
    /// Forward it to the other side (or up the stack).
    Accept = 0,
    /// Discard it.
    Drop = 1,
    /// Send it to the divert interface instead.
    Divert = 2,
    /// Send it back out of the port at which it came in, rewritten. No policy names this action: statements imply it.
    Reply = 3,
}

impl Action {
    /// All of them.
    pub const ALL: [Action; 4] = [Action::Accept, Action::Drop, Action::Divert, Action::Reply];

    /// The action with this policy keyword.
    pub fn from_name(name: &str) -> Option<Action> {
        Self::ALL.into_iter().find(|action| action.name() == name && *action != Action::Reply)
    }

    /// The policy keyword, and the name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Action::Accept => "accept",
            Action::Drop => "drop",
            Action::Divert => "divert",
            Action::Reply => "reply",
        }
    }
}

/// The verdict of one packet. It is a `uint32_t` in C and the return value of a replayed XDP program.
///
/// ```text
///  31            16 15     10   9     8   7          0
/// +----------------+---------+-----+-----+------------+
/// |     reason     | 0       | rwr | smp |   action   |
/// +----------------+---------+-----+-----+------------+
/// ```
/// Reasons below [`Reason::RULE_BASE`] are built in, the others are rules. `smp` says that a copy of the packet was
/// sampled to the divert interface, and `rwr` that the chain changed the packet: what leaves is not what was received.
/// Only accepted packets and replies are changed. Example: rule 3 drops a packet that was sampled: `0x0023_0101`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Verdict(pub u32);

impl Verdict {
    /// Set if a copy went to the divert interface.
    pub const SAMPLED: u32 = 1 << 8;
    /// Set if the chain changed the packet.
    pub const REWRITTEN: u32 = 1 << 9;

    /// Packs a verdict.
    pub const fn new(action: Action, reason: Reason, sampled: Sampled) -> Self {
        let sampled = match sampled {
            Sampled::Yes => Self::SAMPLED,
            Sampled::No => 0,
        };
        Verdict(action as u32 | sampled | (reason.0 as u32) << 16)
    }

    /// The action; `None` for a word that no datapath produces.
    pub const fn action(self) -> Option<Action> {
        match self.0 & 0xffff & !(Self::SAMPLED | Self::REWRITTEN) {
            0 => Some(Action::Accept),
            1 => Some(Action::Drop),
            2 => Some(Action::Divert),
            3 => Some(Action::Reply),
            _ => None,
        }
    }

    /// This verdict on a packet that the chain changed.
    pub const fn of_rewritten(self) -> Self {
        Verdict(self.0 | Self::REWRITTEN)
    }

    /// The reason.
    pub const fn reason(self) -> Reason {
        Reason((self.0 >> 16) as u16)
    }

    /// Whether a copy was sampled to the divert interface.
    pub const fn sampled(self) -> bool {
        self.0 & Self::SAMPLED != 0
    }

    /// Whether the chain changed the packet.
    pub const fn rewritten(self) -> bool {
        self.0 & Self::REWRITTEN != 0
    }
}

/// Whether a copy of the packet goes to the divert interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampled {
    /// A copy goes there.
    Yes,
    /// No copy goes there.
    No,
}

const _: () = assert!(size_of::<Verdict>() == 4);

#[cfg(test)]
mod tests {
    use super::{Action, Sampled, Verdict};
    use crate::Reason;

    #[test]
    fn verdicts_say_what_they_were_made_of() {
        for action in Action::ALL {
            let is_named = action != Action::Reply;
            assert_eq!(Action::from_name(action.name()), is_named.then_some(action), "no policy says `reply`");
            for sampled in [Sampled::Yes, Sampled::No] {
                let verdict = Verdict::new(action, Reason::rule(3), sampled);
                assert_eq!(verdict.action(), Some(action));
                assert!(!verdict.rewritten() && verdict.of_rewritten().rewritten());
                assert_eq!(verdict.of_rewritten().action(), Some(action));
            }
        }
        assert_eq!(Verdict(0xff).action(), None);
    }
}
