//! The categories of rules, and what follows from each: Tables 1 to 3 of the paper.

use std::fmt::{self, Display, Formatter};

/// What a card can do with one pattern of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Match it completely: p_O.
    Complete,
    /// Prepare it: p_P.
    Partial,
    /// Nothing: p_N.
    Not,
}

/// How much of a rule's patterns a card can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Offloadability {
    /// All of them.
    O,
    /// Some of them, completely.
    P0,
    /// Some of them in part.
    P1,
    /// Some of them completely, and some in part.
    P2,
    /// None.
    N,
}

/// What a rule does with the packets that it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Outcome {
    /// Ends the chain, and the packet goes on: `accept`, `divert`.
    Accept,
    /// Ends the chain: `drop`.
    Deny,
    /// The next rule follows.
    NonTerminating,
}

/// A category: `P1Dc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Category {
    /// By its patterns.
    pub offloadability: Offloadability,
    /// By its verdict.
    pub outcome: Outcome,
    /// Whether the software must be told of a match: for a `counter`, or for what the rule does besides its verdict.
    pub counted: bool,
}

/// Where a rule is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Offload {
    /// On the card. The software only acts on it.
    Hardware,
    /// On both.
    Hybrid,
    /// In the software.
    Software,
}

/// The place of a rule in its chain, as far as Table 3 asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// The card drops what it and all rules before it match.
    Head,
    /// Anywhere else.
    Behind,
}

impl Offloadability {
    /// Table 1: by the kinds of a rule's patterns. A rule without patterns matches every packet, on a card too.
    pub fn of(kinds: &[Kind]) -> Self {
        let has = |kind| kinds.contains(&kind);
        match (has(Kind::Complete), has(Kind::Partial), has(Kind::Not)) {
            (_, false, false) => Self::O,
            (true, false, true) => Self::P0,
            (false, true, _) => Self::P1,
            (true, true, _) => Self::P2,
            (false, false, true) => Self::N,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::O => "O",
            Self::P0 => "P0",
            Self::P1 => "P1",
            Self::P2 => "P2",
            Self::N => "N",
        }
    }
}

impl Offload {
    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hardware => "hardware",
            Self::Hybrid => "hybrid",
            Self::Software => "software",
        }
    }
}

impl Category {
    /// Table 2.
    pub const fn offload(self) -> Offload {
        match self.offloadability {
            Offloadability::O => Offload::Hardware,
            Offloadability::P0 | Offloadability::P1 | Offloadability::P2 => Offload::Hybrid,
            Offloadability::N => Offload::Software,
        }
    }

    /// Table 3: the numbers of the metadata that the rule needs.
    pub const fn metadata(self, place: Place) -> &'static [u8] {
        match (self.offloadability, self.outcome) {
            (Offloadability::O, Outcome::Deny) if self.may_drop() && matches!(place, Place::Head) => &[],
            (Offloadability::O, Outcome::Accept | Outcome::Deny) => &[4],
            (Offloadability::O, Outcome::NonTerminating) => &[3],
            (Offloadability::P0, _) => &[2],
            (Offloadability::P1, _) => &[1],
            (Offloadability::P2, _) => &[1, 2],
            (Offloadability::N, _) => &[],
        }
    }

    /// Whether a card may drop for the rule at the head of a chain: `ODn`.
    pub const fn may_drop(self) -> bool {
        matches!(self.offloadability, Offloadability::O) && matches!(self.outcome, Outcome::Deny) && !self.counted
    }
}

impl Display for Category {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let outcome = match self.outcome {
            Outcome::Accept => 'A',
            Outcome::Deny => 'D',
            Outcome::NonTerminating => 'N',
        };
        write!(f, "{}{outcome}{}", self.offloadability.name(), if self.counted { 'c' } else { 'n' })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_1() {
        use Kind::{Complete as O, Not as N, Partial as P};
        for (kinds, name) in [
            (&[O][..], "O"),
            (&[O, O], "O"),
            (&[], "O"),
            (&[N, O], "P0"),
            (&[O, N, N], "P0"),
            (&[P], "P1"),
            (&[P, N], "P1"),
            (&[P, O], "P2"),
            (&[O, N, P], "P2"),
            (&[N], "N"),
            (&[N, N], "N"),
        ] {
            assert_eq!(Offloadability::of(kinds).name(), name, "{kinds:?}");
        }
    }
}
