//! The decision about one packet and its reason, in one word.

use crate::Reason;

/// What to do with a packet. `enum action` in `verdict.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Action {
    /// Forward it to the other side (or up the stack).
    Accept = 0,
    /// Discard it.
    Drop = 1,
    /// Send it to the divert interface instead.
    Divert = 2,
}

impl Action {
    /// All of them.
    pub const ALL: [Action; 3] = [Action::Accept, Action::Drop, Action::Divert];

    /// The number of *reply*, which would send a packet back where it came from. It is reserved and no action: nothing can decide
    /// it, and a verdict with this number has no action.
    pub const REPLY: u8 = 3;

    /// The action with this policy keyword.
    pub fn from_name(name: &str) -> Option<Action> {
        Self::ALL.into_iter().find(|action| action.name() == name)
    }

    /// The policy keyword.
    pub const fn name(self) -> &'static str {
        match self {
            Action::Accept => "accept",
            Action::Drop => "drop",
            Action::Divert => "divert",
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
/// sampled to the divert interface. `rwr` is reserved and 0, as is the action 3 ([`Action::REPLY`]). Example: rule 3 drops a packet that was sampled: `0x0023_0101`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Verdict(pub u32);

impl Verdict {
    /// Set if a copy went to the divert interface.
    pub const SAMPLED: u32 = 1 << 8;
    /// Bit that would say that the chain rewrote the packet. It is reserved: a verdict with it has no action.
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
        match self.0 & 0xffff & !Self::SAMPLED {
            0 => Some(Action::Accept),
            1 => Some(Action::Drop),
            2 => Some(Action::Divert),
            _ => None,
        }
    }

    /// The reason.
    pub const fn reason(self) -> Reason {
        Reason((self.0 >> 16) as u16)
    }

    /// Whether a copy was sampled to the divert interface.
    pub const fn sampled(self) -> bool {
        self.0 & Self::SAMPLED != 0
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
    fn what_is_reserved_is_no_verdict() {
        for action in Action::ALL {
            assert_eq!(Action::from_name(action.name()), Some(action));
            for sampled in [Sampled::Yes, Sampled::No] {
                let verdict = Verdict::new(action, Reason::rule(3), sampled);
                assert_eq!(verdict.action(), Some(action));
                assert_eq!(Verdict(verdict.0 | Verdict::REWRITTEN).action(), None);
            }
        }
        assert_eq!(Verdict(Action::REPLY.into()).action(), None);
        assert_eq!(Action::from_name("reply"), None);
    }
}
