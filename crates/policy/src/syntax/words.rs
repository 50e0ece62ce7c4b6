//! The keywords that begin statements. No match begins with one of them.

/// Keywords that begin a statement.
pub(super) const STATEMENT_WORDS: [&str; 11] =
    ["counter", "sample", "limit", "add", "update", "track", "synproxy", "slot", "accept", "drop", "divert"];
