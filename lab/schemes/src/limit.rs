//! What a scheme's builder reports if a table does not fit. The paper shows such tables as (NC).

/// A limit of a scheme that a table exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limit {
    /// What exceeds the limit.
    pub what: &'static str,
    /// The limit.
    pub max: usize,
}
