//! The rule for which packets count that a card has dropped.

/// A rule that packets count for which the card drops.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CountedRule {
    /// Its citation.
    pub at: String,
    /// Its text.
    pub text: String,
    /// The tables in its matches.
    pub tables: Vec<String>,
}
