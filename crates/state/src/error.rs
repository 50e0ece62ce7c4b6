//! Why there is no state for a generation.

use std::io;

/// Why there is no state for a generation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// Limiters cannot have their buckets.
    #[error("{count} buckets: {problem}")]
    Buckets {
        /// How many there are, or were requested.
        count: usize,
        /// What is missing.
        problem: String,
    },
    /// The system refuses the memory for buckets.
    #[error("{count} buckets: {source}")]
    Memory {
        /// How many were requested.
        count: usize,
        /// What the system says.
        source: io::Error,
    },
}
