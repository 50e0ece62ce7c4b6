//! Why there is no state for a generation.

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
}
