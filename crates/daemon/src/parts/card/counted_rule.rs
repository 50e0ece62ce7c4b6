//! The rule that counts the packets that a card has dropped.

/// A rule that counts the packets that the card drops.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CountedRule {
    /// Its citation.
    pub at: String,
    /// Its text.
    pub text: String,
    /// The tables in its matches.
    pub tables: Vec<String>,
}
