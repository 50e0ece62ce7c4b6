//! Why there is no state for a generation.

use std::io;

use weir_tables::BuildError;

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
    /// A layout cannot hold the entries that a table has now.
    #[error("table {name}: its entries, which were changed while packets passed, do not fit the policy: {error}")]
    Table {
        /// The tables of the image.
        name: String,
        /// Why.
        error: BuildError,
    },
    /// The kernel refuses the memory for an image.
    #[error("table {name}: {source}")]
    TableMemory {
        /// The tables of the image.
        name: String,
        /// What the system says.
        source: io::Error,
    },
    /// The image of a table that changes, or was changed, is too large to have two of them in the kernel.
    #[error(
        "table {name}: its image has {bytes} bytes; a table that is dynamic, or was changed while packets passed, has \
         at most {max} in the kernel"
    )]
    TableTooLarge {
        /// The tables of the image.
        name: String,
        /// Size of the image.
        bytes: usize,
        /// Maximum size.
        max: usize,
    },
    /// The system refuses the memory for buckets.
    #[error("{count} buckets: {source}")]
    Memory {
        /// How many were requested.
        count: usize,
        /// What the system says.
        source: io::Error,
    },
    /// A slot has more rules than a policy reserves.
    #[error("slot {name}: it has {rules} rules, and the policy reserves {size}; remove rules first")]
    Slot {
        /// Its name.
        name: String,
        /// Number of its rules.
        rules: usize,
        /// How many the policy reserves.
        size: usize,
    },
    /// There are no sheets for what `observe` counts, or one cannot be read.
    #[error("features: {problem}")]
    Features {
        /// Why.
        problem: String,
    },
    /// The system gives no random numbers.
    #[error("no random numbers for the keys of flows: {source}")]
    Secrets {
        /// What the system says.
        source: io::Error,
    },
}
