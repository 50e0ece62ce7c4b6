//! What an update of a table adds and removes, and where tables overlap.
//!
//! Prefixes of a table are sorted by address and from short to long. Both questions are answered by one pass over two
//! such lists.

use std::fmt;

use weir_abi::Family;

use crate::entries::{Kind, Prefixes, Table};
use crate::merge::merge;
use crate::prefix::{Address, Prefix, Prefix4, Prefix6};

/// What makes one table out of another.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The entries that the new table has and the old one lacks, or has with another label.
    pub added: Table,
    /// Number of entries of `added` that only have another label.
    pub relabelled: usize,
    /// Number of entries that the new table lacks.
    pub removed: usize,
}

impl Difference {
    /// Whether both tables answer every lookup alike, entry by entry.
    pub fn is_empty(&self) -> bool {
        self.changed() == 0
    }

    /// Number of prefixes that differ.
    pub fn changed(&self) -> usize {
        self.added.facts().entries + self.removed
    }
}

/// The first place where a table overlaps another one, and the number of places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overlap {
    /// The prefix of the table, in text form.
    pub entry: String,
    /// A prefix of the other table that has addresses in common with it, in text form.
    pub other: String,
    /// Number of prefixes that overlap the other table. Prefixes inside others may not be counted.
    pub count: usize,
}

impl Table {
    /// What makes `new` out of this table. Both have the same family and kind. Labels are compared by name.
    pub fn difference(&self, new: &Table) -> Difference {
        let ids = OldIds::of(self, new);
        let (added, relabelled, removed) = match (&self.prefixes, &new.prefixes) {
            (Prefixes::V4(old), Prefixes::V4(new)) => {
                let Walked { added, relabelled, removed } = walk(old, new, &ids);
                (Prefixes::V4(added), relabelled, removed)
            }
            (Prefixes::V6(old), Prefixes::V6(new)) => {
                let Walked { added, relabelled, removed } = walk(old, new, &ids);
                (Prefixes::V6(added), relabelled, removed)
            }
            // Tables of different families have nothing in common.
            (_, new) => (new.clone(), 0, self.facts().entries),
        };
        Difference { added: Table::settled(new.kind(), added, new.labels().to_vec()), relabelled, removed }
    }

    /// Where the prefixes of this table overlap the prefixes of another one of the same family.
    pub fn overlap(&self, other: &Table) -> Option<Overlap> {
        match (&self.prefixes, &other.prefixes) {
            (Prefixes::V4(own), Prefixes::V4(others)) => overlap(own, others),
            (Prefixes::V6(own), Prefixes::V6(others)) => overlap(own, others),
            _ => None,
        }
    }
}

/// The label id in the old table of each label of the new table, by index; 0 if the old table lacks the label.
struct OldIds(Option<Vec<u32>>);

impl OldIds {
    fn of(old: &Table, new: &Table) -> Self {
        if new.kind() == Kind::Set {
            return OldIds(None);
        }
        let known: std::collections::HashMap<&str, u32> = old.labels().iter().map(|name| &**name).zip(1..).collect();
        OldIds(Some(new.labels().iter().map(|name| known.get(&**name).copied().unwrap_or(0)).collect()))
    }

    fn get(&self, new: u32) -> u32 {
        self.0.as_ref().map_or(new, |ids| ids[new as usize - 1])
    }
}

struct Walked<A> {
    added: Vec<Prefix<A>>,
    relabelled: usize,
    removed: usize,
}

/// Compares two sorted lists of distinct prefixes.
fn walk<'p, A: Address>(old: &'p [Prefix<A>], new: &'p [Prefix<A>], ids: &OldIds) -> Walked<A> {
    let mut walked = Walked { added: Vec::new(), relabelled: 0, removed: 0 };
    let in_order = |prefixes: &'p [Prefix<A>]| prefixes.iter().map(|prefix| (prefix.addr.order(prefix.len), prefix));
    for (_, old, new) in merge(in_order(old), in_order(new)) {
        match (old, new) {
            (_, None) => walked.removed += 1,
            (Some(old), Some(new)) if old.label == ids.get(new.label) => {}
            (old, Some(new)) => {
                walked.relabelled += usize::from(old.is_some());
                walked.added.push(*new);
            }
        }
    }
    walked
}

/// The prefixes that no other prefix of a sorted list contains. They are disjoint.
pub(crate) fn outermost<A: Address>(prefixes: &[Prefix<A>]) -> impl Iterator<Item = &Prefix<A>> {
    let mut last: Option<A> = None;
    prefixes.iter().filter(move |prefix| {
        let is_outermost = last.is_none_or(|last| prefix.addr > last);
        if is_outermost {
            last = Some(prefix.last());
        }
        is_outermost
    })
}

fn overlap<A: Address>(own: &[Prefix<A>], others: &[Prefix<A>]) -> Option<Overlap>
where
    Prefix<A>: Shown,
{
    let mut first: Option<Overlap> = None;
    let mut others = outermost(others).peekable();
    for prefix in outermost(own) {
        while others.next_if(|other| other.last() < prefix.addr).is_some() {}
        let Some(other) = others.peek().filter(|other| other.addr <= prefix.last()) else { continue };
        match &mut first {
            Some(first) => first.count += 1,
            None => first = Some(Overlap { entry: prefix.shown(), other: other.shown(), count: 1 }),
        }
    }
    first
}

/// The text form of a prefix. An address has no length.
trait Shown {
    fn shown(&self) -> String;
}

impl Shown for Prefix4 {
    fn shown(&self) -> String {
        shown(self, self.len, Family::Ipv4)
    }
}

impl Shown for Prefix6 {
    fn shown(&self) -> String {
        shown(self, self.len, Family::Ipv6)
    }
}

fn shown(prefix: &impl fmt::Display, len: u8, family: Family) -> String {
    let text = prefix.to_string();
    match text.rsplit_once('/') {
        Some((address, _)) if len == family.bits() => address.to_owned(),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entries::Entries;

    fn table(family: Family, kind: Kind, entries: &[(&str, &str)]) -> Table {
        let mut all = Entries::new(family, kind);
        for (entry, label) in entries {
            all.insert_text(entry, (kind == Kind::Labels).then_some(*label)).expect("it is an entry");
        }
        all.settle()
    }

    fn set(entries: &[&str]) -> Table {
        let entries: Vec<(&str, &str)> = entries.iter().map(|entry| (*entry, "")).collect();
        table(Family::Ipv4, Kind::Set, &entries)
    }

    fn shown4(table: &Table) -> Vec<String> {
        table.prefixes4().iter().map(Shown::shown).collect()
    }

    #[test]
    fn what_is_added_and_removed() {
        let old = set(&["10.0.0.0/8", "10.0.0.0/16", "192.0.2.1", "192.0.2.9"]);
        let new = set(&["10.0.0.0/16", "10.0.0.0/24", "192.0.2.1", "203.0.113.0/24"]);
        let difference = old.difference(&new);
        assert_eq!(shown4(&difference.added), ["10.0.0.0/24", "203.0.113.0/24"]);
        assert_eq!((difference.relabelled, difference.removed, difference.changed()), (0, 2, 4));
        assert!(new.difference(&new).is_empty());
        assert_eq!(set(&[]).difference(&old).changed(), 4);
        assert_eq!(old.difference(&set(&[])).removed, 4);
    }

    #[test]
    fn labels_are_compared_by_name() {
        let labels = |entries: &[(&str, &str)]| table(Family::Ipv6, Kind::Labels, entries);
        let old = labels(&[("2001:db8::/32", "AA"), ("2001:db8:1::/48", "BB")]);
        // The ids of the labels are in the order of the entries.
        let same = labels(&[("2001:db8:1::/48", "BB"), ("2001:db8::/32", "AA")]);
        assert!(old.difference(&same).is_empty());
        let other = labels(&[("2001:db8::/32", "BB"), ("2001:db8:1::/48", "CC"), ("2001:db8:2::/48", "AA")]);
        let difference = old.difference(&other);
        assert_eq!((difference.relabelled, difference.removed), (2, 0));
        assert_eq!(difference.added, other);
    }

    #[test]
    fn overlaps_are_found_in_both_directions() {
        let admin = set(&["192.0.2.0/28", "192.0.2.7", "198.51.100.7"]);
        let found = |entries: &[&str]| {
            set(entries).overlap(&admin).map(|Overlap { entry, other, count }| (entry, other, count))
        };
        let some = |entry: &str, other: &str, count| Some((entry.to_owned(), other.to_owned(), count));
        assert_eq!(found(&["192.0.1.255", "192.0.2.16", "198.51.100.6", "198.51.100.8/29"]), None);
        assert_eq!(found(&["192.0.2.15"]), some("192.0.2.15", "192.0.2.0/28", 1));
        assert_eq!(found(&["10.0.0.1", "198.51.100.0/24"]), some("198.51.100.0/24", "198.51.100.7", 1));
        assert_eq!(
            found(&["192.0.2.1", "192.0.2.2", "198.51.100.7", "203.0.113.0/24"]),
            some("192.0.2.1", "192.0.2.0/28", 3)
        );
        assert_eq!(found(&["0.0.0.0/0", "192.0.2.1"]), some("0.0.0.0/0", "192.0.2.0/28", 1));
        assert_eq!(set(&[]).overlap(&admin), None);
        assert_eq!(admin.overlap(&set(&[])), None);
    }

    #[test]
    fn overlaps_agree_with_the_slow_answer() {
        // Every prefix of a 6-bit address space against every pair of prefixes.
        let prefixes: Vec<String> = (26..=32u8)
            .flat_map(|len| (0..64u32).step_by(1 << (32 - len)).map(move |last| format!("10.0.0.{last}/{len}")))
            .collect();
        let ends = |text: &str| {
            let prefix = set(&[text]).prefixes4()[0];
            (prefix.addr, prefix.last())
        };
        for (at, one) in prefixes.iter().enumerate() {
            let other = &prefixes[(at * 37 + 11) % prefixes.len()];
            let pair = set(&[one, other]);
            for probe in &prefixes {
                let (first, last) = ends(probe);
                let expected = [one, other].iter().any(|text| {
                    let (start, end) = ends(text);
                    first <= end && start <= last
                });
                assert_eq!(set(&[probe]).overlap(&pair).is_some(), expected, "{probe} with {one} and {other}");
                assert_eq!(pair.overlap(&set(&[probe])).is_some(), expected, "{one} and {other} with {probe}");
            }
        }
    }
}
