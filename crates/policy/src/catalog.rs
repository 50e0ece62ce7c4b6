//! What the caller knows of the tables: the compiler opens no file, it asks the catalog.

/// Address family of a table or an address field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// 32-bit addresses.
    Ipv4,
    /// 128-bit addresses.
    Ipv6,
}

impl Family {
    /// Bits of an address.
    pub const fn bits(self) -> u8 {
        match self {
            Family::Ipv4 => 32,
            Family::Ipv6 => 128,
        }
    }
}

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
