//! What the caller knows of the tables: the compiler opens no file, it asks the catalog.

pub use weir_abi::Family;

/// What one table holds, once its files have been read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableFacts {
    /// Distinct prefixes.
    pub entries: usize,
    /// Prefixes of each length, index 0 to the family's bits; shorter when the rest is 0.
    pub by_length: Vec<usize>,
    /// Labels; label id `i + 1` is `labels[i]`. Empty for a set.
    pub labels: Vec<String>,
}

/// Answers what each table holds.
pub trait Catalog {
    /// The facts of a table, or `None` if it could not be read, which the caller has reported.
    fn table(&self, name: &str) -> Option<&TableFacts>;
}
