//! The names of entries in a list of limits, by which a new list takes over buckets.

use std::collections::HashMap;
use std::sync::Arc;

use weir_abi::Family;
use weir_tables::LimitTable;

/// The names of a list's entries, in their order.
#[derive(Clone, Debug)]
pub enum EntryNames {
    /// A single entry.
    One,
    /// One entry for all other addresses, then one for each prefix.
    Prefixes(Arc<LimitTable>, Family),
    /// An unused entry, then one for each label.
    Labels(Arc<[Box<str>]>),
}

impl EntryNames {
    /// Number of entries.
    pub fn len(&self) -> usize {
        match self {
            EntryNames::One => 1,
            EntryNames::Prefixes(table, family) => 1 + table.len(*family),
            EntryNames::Labels(labels) => 1 + labels.len(),
        }
    }

    /// Whether there are no entries, which never occurs.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Calls `same` for each pair of entries, of these names and of others, with equal names.
    pub(super) fn shared(&self, others: &EntryNames, mut same: impl FnMut(usize, usize)) {
        same(0, 0);
        match (self, others) {
            (EntryNames::Prefixes(table, family), EntryNames::Prefixes(other, of)) if family == of => {
                table.shared(other, *family, |own, other| same(own as usize, other as usize));
            }
            (EntryNames::Labels(labels), EntryNames::Labels(others)) => {
                let known: HashMap<&str, usize> =
                    others.iter().enumerate().map(|(index, label)| (&**label, 1 + index)).collect();
                for (index, label) in labels.iter().enumerate() {
                    if let Some(&other) = known.get(&**label) {
                        same(1 + index, other);
                    }
                }
            }
            _ => {}
        }
    }
}
