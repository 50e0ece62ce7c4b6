//! The guard rails of a table: which updates `protect` and `max-change` refuse.

use crate::parts::feeds::contents::Contents;
use std::fmt::{self, Display, Formatter};
use weir_command::failure::Failure;
use weir_command::figures;
use weir_loading::PolicyTables;
use weir_policy::checked::{TableId, Updates};
use weir_tables::{Difference, Overlap, Table};

/// Whether an update may be larger than `max-change`. Protected addresses are refused in both cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Force {
    /// Updates are as small as the policy says.
    No,
    /// An operator wants this update, however large it is.
    Yes,
}

impl From<bool> for Force {
    fn from(force: bool) -> Self {
        if force { Force::Yes } else { Force::No }
    }
}

/// Why an update is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unsafe {
    /// The update adds addresses of a protected table.
    Protected {
        /// The table that would be updated.
        table: String,
        /// The protected table.
        protected: String,
        /// Where they overlap.
        overlap: Overlap,
    },
    /// The update grows or shrinks the table too much.
    TooLarge {
        /// The table that would be updated.
        table: String,
        /// Number of entries now.
        before: usize,
        /// Number of entries after the update.
        after: usize,
        /// `max-change`
        max_percent: u32,
    },
}

impl Display for Unsafe {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Unsafe::Protected { table, protected, overlap: Overlap { entry, other, count } } => {
                write!(f, "table {table}: {entry} overlaps {other} of the protected table {protected}")?;
                match count - 1 {
                    0 => Ok(()),
                    more => write!(f, " (and {} more)", figures::grouped(more as u64)),
                }
            }
            Unsafe::TooLarge { table, before, after, max_percent } => {
                let (before, after) = (figures::grouped(*before as u64), figures::grouped(*after as u64));
                write!(
                    f,
                    "table {table}: {before} entries would become {after}, `max-change {max_percent}%` allows less; \
                     --force overrides this"
                )
            }
        }
    }
}

/// The guard rails of one table.
pub struct GuardRails<'a> {
    tables: &'a PolicyTables,
    name: &'a str,
    updates: &'a Updates,
}

impl<'a> GuardRails<'a> {
    /// The guard rails of a table, by its index in the policy.
    pub fn of(tables: &'a PolicyTables, table: usize) -> Self {
        let declared = &tables.all()[table];
        GuardRails { tables, name: &declared.name, updates: &declared.updates }
    }

    /// Checks entries that are to be added to a table.
    ///
    /// # Errors
    /// The entries are refused, or the protected table cannot be read.
    pub fn check_added(&self, entries: &Table, contents: Contents<'_>) -> Result<(), Failure> {
        for &protected in &self.updates.protected {
            if let Some(overlap) = contents.overlap(usize::from(protected.0), entries)? {
                return Err(Failure::Rejected(format!("weir: {}", self.overlapping(protected, overlap))));
            }
        }
        Ok(())
    }

    /// Checks an update from `before` entries to `after`. `contents_of` are the entries that a protected table has
    /// after the update.
    ///
    /// # Errors
    /// All reasons why the update is refused, at least one; the failure is the failure of `contents_of`.
    pub fn check_update<T: AsRef<Table>>(
        &self,
        difference: &Difference,
        [before, after]: [usize; 2],
        force: Force,
        contents_of: impl Fn(usize) -> Result<T, Failure>,
    ) -> Result<Vec<Unsafe>, Failure> {
        let mut reasons = Vec::new();
        for &protected in &self.updates.protected {
            if let Some(overlap) = difference.added.overlap(contents_of(usize::from(protected.0))?.as_ref()) {
                reasons.push(self.overlapping(protected, overlap));
            }
        }
        if let (Some(max_percent), Force::No) = (self.updates.max_change_percent, force)
            && exceeds(before, after, max_percent)
        {
            reasons.push(Unsafe::TooLarge { table: self.name.to_owned(), before, after, max_percent });
        }
        Ok(reasons)
    }

    fn overlapping(&self, protected: TableId, overlap: Overlap) -> Unsafe {
        let protected = self.tables.all()[usize::from(protected.0)].name.clone();
        Unsafe::Protected { table: self.name.to_owned(), protected, overlap }
    }
}

/// Whether a table grows or shrinks by more than this share. An empty table may grow to any size.
fn exceeds(before: usize, after: usize, max_percent: u32) -> bool {
    before > 0 && before.abs_diff(after) as u128 * 100 > before as u128 * u128::from(max_percent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_exact() {
        assert!(!exceeds(100, 120, 20) && exceeds(100, 121, 20));
        assert!(!exceeds(100, 80, 20) && exceeds(100, 79, 20));
        assert!(!exceeds(0, 1_000_000, 1), "an empty table may be filled");
        assert!(exceeds(1, 0, 99) && !exceeds(1, 0, 100));
        assert!(!exceeds(3, 3, 1) && exceeds(3, 4, 33) && !exceeds(3, 4, 34));
        assert!(!exceeds(usize::MAX / 2, usize::MAX, 101) && exceeds(1, usize::MAX, u32::MAX));
    }

    #[test]
    fn reasons_as_text() {
        let overlap = |count: usize| Overlap { entry: "10.0.0.0/8".into(), other: "10.1.2.3".into(), count };
        let protected =
            |count| Unsafe::Protected { table: "bad".into(), protected: "admin".into(), overlap: overlap(count) };
        assert_eq!(protected(1).to_string(), "table bad: 10.0.0.0/8 overlaps 10.1.2.3 of the protected table admin");
        assert!(protected(1235).to_string().ends_with("table admin (and 1,234 more)"));
        let large = Unsafe::TooLarge { table: "bad".into(), before: 1000, after: 10, max_percent: 20 };
        assert_eq!(
            large.to_string(),
            "table bad: 1,000 entries would become 10, `max-change 20%` allows less; --force overrides this"
        );
    }
}
