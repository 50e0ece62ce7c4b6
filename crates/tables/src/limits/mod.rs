//! Lists of limits, from `prefix,rate[,burst]` or `label,rate[,burst]` to the entries of limiters.
//!
//! ```text
//! list bytes --read--> PrefixLimits --settle--> LimitTable --entries--> LimitEntries, one for each label of its image
//! list bytes --read--> LabelLimits  --settle--> RateOfLabel --entries--> LimitEntries, one for each label of a table
//! ```
//! One list holds prefixes of both families. The label of a prefix in the image is its position among the sorted
//! prefixes of its family, from 1. The same prefix with two different limits is an error that names both lines.

pub mod image;
mod labels;
mod prefixes;
mod read;

#[cfg(test)]
mod tests;

use std::collections::HashMap;

use weir_abi::{Limit, LimitEntries, LimitEntry, LimitProfile};

pub use labels::{LabelLimits, RateOfLabel};
pub use prefixes::{LimitTable, PrefixLimits};
pub use read::BadLines;

use crate::list::{ERRORS_MAX, ListError};

/// Whether a packet is charged to all prefixes that enclose its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nesting {
    /// Charges only the bucket of the longest prefix.
    Flat,
    /// Charges the buckets of all enclosing prefixes, or none of them.
    Nested,
}

/// The source and line of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Origin {
    /// Index into [`Origins`].
    source: u32,
    /// Line number from 1; 0 if the source name already contains the line.
    line: u32,
}

/// The names of the lists and policies that entries came from.
#[derive(Clone, Debug, Default)]
struct Origins(Vec<String>);

impl Origins {
    fn add(&mut self, name: &str) -> u32 {
        if self.0.last().is_none_or(|last| last != name) {
            self.0.push(name.to_owned());
        }
        (self.0.len() - 1) as u32
    }

    /// `limits.csv:7`, `edge.weir:12`
    fn text(&self, origin: Origin) -> String {
        let name = &self.0[origin.source as usize];
        if origin.line == 0 { name.clone() } else { format!("{name}:{}", origin.line) }
    }
}

/// Distinct limits. Two limits that charge alike count as one.
#[derive(Clone, Debug, Default, PartialEq)]
struct Profiles {
    limits: Vec<Limit>,
    ids: HashMap<LimitProfile, u32>,
}

impl Profiles {
    /// Returns the number of the limit, from 1.
    fn intern(&mut self, limit: Limit) -> u32 {
        *self.ids.entry(limit.profile()).or_insert_with(|| {
            self.limits.push(limit);
            self.limits.len() as u32
        })
    }

    /// The limit as first written.
    fn limit(&self, number: u32) -> Limit {
        self.limits[number as usize - 1]
    }

    /// The entries of limiters: one for packets that the lookup does not find, then one per label.
    fn entries(&self, default: Option<Limit>, of_labels: impl Iterator<Item = LimitEntry>) -> LimitEntries {
        let mut profiles = vec![LimitProfile::default()];
        profiles.extend(self.limits.iter().map(|limit| limit.profile()));
        let known = |profile: LimitProfile| self.ids.get(&profile).copied();
        let default = default.map_or(0, |limit| {
            known(limit.profile()).unwrap_or_else(|| {
                profiles.push(limit.profile());
                profiles.len() as u32 - 1
            })
        });
        let not_found = LimitEntry { profile: default, parent: 0 };
        LimitEntries { profiles, entries: std::iter::once(not_found).chain(of_labels).collect() }
    }
}

/// Entries that contradict each other.
#[derive(Debug, Default)]
struct Conflicts {
    first: Vec<String>,
    total: u64,
}

impl Conflicts {
    /// Records that two sources give `what` different limits.
    fn add(&mut self, what: &dyn std::fmt::Display, later: (String, Limit), earlier: (String, Limit)) {
        self.total += 1;
        if self.first.len() < ERRORS_MAX {
            let ((later, limit), (earlier, other)) = (later, earlier);
            self.first.push(format!("{later}: {what} is limited to {limit}, and in {earlier} to {other}"));
        }
    }

    fn into_result(self) -> Result<(), ListError> {
        match self.total {
            0 => Ok(()),
            total => Err(ListError::Limits { conflicts: self.first, total }),
        }
    }
}
