//! The buckets of the program before this one in its process. A generation with the same list, with the same entries,
//! takes them with their words, while programs in the kernel charge them.

use serde::{Deserialize, Serialize};

use super::entry_names::EntryNames;

/// How buckets are assigned.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandedAssignment {
    /// The buckets of lists.
    pub lists: Vec<HandedBuckets>,
    /// Free runs of neighbouring buckets: their first slots, by width.
    pub free: Vec<(u32, Vec<u32>)>,
    /// Number of slots that were ever assigned.
    pub used: usize,
}

/// The buckets of one list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandedBuckets {
    name: String,
    /// Number of neighbouring buckets of an entry.
    pub width: u32,
    /// The format of the words: its number, and what belongs to it.
    format: (u8, u64),
    /// A digest of the names of the entries, each with its index.
    entries: u64,
    /// The first bucket of each entry.
    pub slots: Vec<u32>,
}

impl HandedBuckets {
    /// The buckets of a declaration.
    pub(super) fn of(name: &str, (width, format): (u32, (u8, u64)), entries: &EntryNames, slots: &[u32]) -> Self {
        HandedBuckets { name: name.to_owned(), width, format, entries: digest(entries), slots: slots.to_vec() }
    }

    /// Whether these are the buckets of a declaration.
    pub(super) fn is_of(&self, name: &str, shape: (u32, (u8, u64)), entries: &EntryNames) -> bool {
        self.name == name
            && (self.width, self.format) == shape
            && self.slots.len() == entries.len()
            && self.entries == digest(entries)
    }

    /// Whether all of its buckets are among `used` slots.
    pub(super) fn is_within(&self, used: usize) -> bool {
        self.slots.iter().all(|&first| first > 0 && first as usize + self.width as usize <= used)
    }
}

impl HandedAssignment {
    /// Whether it can be an assignment of `buckets` buckets.
    pub fn fits(&self, buckets: usize) -> bool {
        let is_free = |width: u32, first: u32| first > 0 && first as usize + width as usize <= self.used;
        (1..=buckets).contains(&self.used)
            && self.lists.iter().all(|list| list.is_within(self.used))
            && self.free.iter().all(|(width, slots)| slots.iter().all(|&first| is_free(*width, first)))
    }
}

/// A sum over all entries, because tables have them in no certain order.
fn digest(names: &EntryNames) -> u64 {
    match names {
        EntryNames::One => 1,
        EntryNames::Prefixes(table, family) => table
            .prefixes(*family)
            .fold(2, |sum: u64, (label, addr, len)| sum.wrapping_add(hash(format!("{label} {addr}/{len}").bytes()))),
        EntryNames::Labels(labels) => labels
            .iter()
            .enumerate()
            .fold(3, |sum: u64, (index, label)| sum.wrapping_add(hash(format!("{index} {label}").bytes()))),
    }
}

/// FNV-1a.
fn hash(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
