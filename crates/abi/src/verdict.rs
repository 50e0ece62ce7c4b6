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
///  31            16 15        9   8   7          0
/// +----------------+-----------+-----+------------+
/// |     reason     | 0         | smp |   action   |
/// +----------------+-----------+-----+------------+
/// ```
/// Reasons below [`Reason::RULE_BASE`] are built in; the others are rules. `smp` is set if a copy of the packet was
/// sampled to the divert interface. Example: rule 3 drops a packet that was sampled: `0x0023_0101`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Verdict(pub u32);

impl Verdict {
    /// Set if a copy went to the divert interface.
    pub const SAMPLED: u32 = 1 << 8;

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
        match self.0 & 0xff {
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
