//! Why a table cannot be changed or read.

use weir_tables::live::LiveError;

/// Why a table cannot be changed or read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// The policy has no such table.
    #[error("the active policy has no table {name}; it has {}", if known.is_empty() { "none".to_owned() } else { known.join(", ") })]
    NoTable {
        /// The name.
        name: String,
        /// The tables that there are.
        known: Vec<String>,
    },
    /// The entries are of the other family, or have labels where the table has none.
    #[error("table {name} has {expected}")]
    OtherType {
        /// The name.
        name: String,
        /// What its entries are.
        expected: &'static str,
    },
    /// A label that no entry had when the policy was loaded.
    #[error(
        "table {name}: no entry had the label {label} when the policy was loaded; rules and limits know only those labels"
    )]
    NewLabel {
        /// The name.
        name: String,
        /// The label.
        label: String,
    },
    /// A dynamic table has no room for the entries.
    #[error("table {name} is full: it has {entries} entries, {more} more would exceed its size of {size}")]
    Full {
        /// The name.
        name: String,
        /// Number of entries now, or 0 if they are to be replaced.
        entries: usize,
        /// Number of new entries.
        more: usize,
        /// Maximum number of entries.
        size: usize,
    },
    /// The image is too large to have two of them in the kernel.
    #[error("table {name}: its image is too large to change in the kernel")]
    TooLarge {
        /// The name.
        name: String,
    },
    /// A timeout beyond [`TIMEOUT_MS_MAX`].
    #[error("table {name}: a timeout is at most 365d")]
    LongTimeout {
        /// The name.
        name: String,
    },
    /// The layout cannot hold the entries.
    #[error("table {name}: {error}")]
    Refused {
        /// The name.
        name: String,
        /// Why.
        error: LiveError,
    },
    /// The change stopped in the middle: workers hold replaced images for too long, or an image became too large.
    #[error("table {name}: {error}; a part of the change may have taken effect")]
    Partial {
        /// The name.
        name: String,
        /// Why.
        error: LiveError,
    },
}
