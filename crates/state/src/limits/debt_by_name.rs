//! Debts of buckets by name.

use std::net::IpAddr;

/// The name of an entry in a list of limits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum EntryName {
    /// The only entry, or the one for all others.
    First,
    /// A prefix.
    Prefix(IpAddr, u8),
    /// A label.
    Label(Box<str>),
}

/// The debt of a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedDebt {
    /// The entry.
    pub entry: EntryName,
    /// The limiter among the limiters of the list.
    pub limiter: u32,
    /// The time of shared state at which the bucket is full.
    pub until_ns: u64,
}

/// The debts of the buckets of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedDebts {
    /// The name of their declaration.
    pub name: String,
    /// The buckets in debt.
    pub debts: Vec<SavedDebt>,
}
