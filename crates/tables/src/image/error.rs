//! Why a table has no image in a layout, and why bytes are no image.

use weir_abi::{Family, Layout};

use crate::problem::family_name;

/// Why a table cannot be built in a layout.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// The layout holds prefixes of the other family.
    #[error("layout {} does not hold {} prefixes", layout.name(), family_name(*family))]
    Family {
        /// The layout.
        layout: Layout,
        /// The table's family.
        family: Family,
    },
    /// The layout holds sets only.
    #[error("layout {} holds sets only, the table has labels", layout.name())]
    Labelled {
        /// The layout.
        layout: Layout,
    },
    /// The layout holds single addresses only.
    #[error("layout {} holds /32 addresses only, the table has {prefix}", layout.name())]
    NotAnAddress {
        /// The layout.
        layout: Layout,
        /// The first prefix that is shorter.
        prefix: String,
    },
    /// The layout holds networks (/64) and hosts (/128) only.
    #[error("layout {} holds /64 and /128 prefixes only, the table has {prefix}", layout.name())]
    NotANetOrHost {
        /// The layout.
        layout: Layout,
        /// The first prefix of another length.
        prefix: String,
    },
    /// The table exceeds a limit of the layout.
    #[error("layout {} holds at most {max} {what}", layout.name())]
    Limit {
        /// The layout.
        layout: Layout,
        /// What exceeds the limit.
        what: &'static str,
        /// The limit.
        max: usize,
    },
    /// The lists exceed a limit of limiters.
    #[error("there are at most {max} {what}")]
    Limits {
        /// What exceeds the limit.
        what: &'static str,
        /// The limit.
        max: usize,
    },
    /// The image would be larger than 4 GiB.
    #[error("the image in layout {} would exceed 4 GiB", layout.name())]
    TooBig {
        /// The layout.
        layout: Layout,
    },
}

/// Why bytes are no valid image.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// The bytes are shorter than a header.
    #[error("table image of {bytes} bytes is shorter than its header")]
    Short {
        /// Bytes given.
        bytes: usize,
    },
    /// The first word is wrong.
    #[error("not a table image: starts with {found:#010x}")]
    Magic {
        /// The first word.
        found: u32,
    },
    /// A layout that this version does not know.
    #[error("table image of unknown layout {found}")]
    Layout {
        /// The layout word.
        found: u32,
    },
    /// The length differs from the header's.
    #[error("table image has {bytes} bytes, its header says {header}")]
    Length {
        /// Length in the header.
        header: u64,
        /// Bytes given.
        bytes: usize,
    },
    /// A value inside a section is invalid.
    #[error("corrupt {} image: section `{section}`: bad {what}", layout.name())]
    Corrupt {
        /// The layout.
        layout: Layout,
        /// The section.
        section: &'static str,
        /// What is wrong.
        what: &'static str,
    },
}
