//! Tables as lists that Weir writes itself, for bundles. A line is a prefix, in a map with the number of its label:
//!
//! ```text
//! # prefix,label number
//! 192.0.2.0/24,3
//! ```
//! Labels have numbers because compiled code knows them by number, and because a label may be text that no list can
//! contain. The owner of the list also keeps the labels.

use std::fmt::{Display, Write};

use weir_abi::Family;

use super::error::ListError;
use super::format::Format;
use super::lines;
use super::report::ReadOptions;
use crate::entries::{Entries, Kind, Labels, Prefixes, Table};
use crate::prefix::Prefix;

impl Table {
    /// The entries as a list, in order.
    pub fn to_list(&self) -> String {
        let mut text = match self.kind() {
            Kind::Set => "# prefix\n".to_owned(),
            Kind::Labels => "# prefix,label number\n".to_owned(),
        };
        let mut line = |prefix: &dyn Display, number: u32| {
            // Writing to a string does not fail.
            let _ = match self.kind() {
                Kind::Set => writeln!(text, "{prefix}"),
                Kind::Labels => writeln!(text, "{prefix},{number}"),
            };
        };
        self.prefixes4().iter().for_each(|prefix| line(prefix, prefix.label));
        self.prefixes6().iter().for_each(|prefix| line(prefix, prefix.label));
        text
    }

    /// Reads a list of [`Table::to_list`]. Label id `i + 1` is `labels[i]`. `name` is for messages.
    ///
    /// # Errors
    /// There are bad lines, or labels without a number or with one number for several.
    pub fn from_list(
        name: &str,
        bytes: &[u8],
        (family, kind): (Family, Kind),
        labels: &[Box<str>],
    ) -> Result<Self, ListError> {
        let mut known = Labels::default();
        labels.iter().for_each(|label| _ = known.intern(label));
        let repeated = known.names().len() < labels.len();
        if repeated || (kind == Kind::Set && !labels.is_empty()) {
            return Err(ListError::Labels { name: name.to_owned(), labels: labels.len() });
        }
        let format = match kind {
            Kind::Set => Format::Plain,
            Kind::Labels => Format::Csv,
        };
        let mut entries = Entries::new(family, kind);
        let report = lines::read(&mut entries, format, name, bytes, &ReadOptions::default())?;
        if report.unlabelled.count > 0 {
            // Lists of other programs may leave a label empty, Weir's own do not.
            return Err(ListError::LabelNumber {
                name: name.to_owned(),
                number: "``".to_owned(),
                labels: labels.len(),
            });
        }
        let numbered = entries.settle();
        let ids = numbered.labels().iter().map(|number| {
            let id = number.parse::<usize>().ok().filter(|id| (1..=labels.len()).contains(id));
            let refused = || ListError::LabelNumber {
                name: name.to_owned(),
                number: number.escape_debug().to_string(),
                labels: labels.len(),
            };
            id.map(|id| id as u32).ok_or_else(refused)
        });
        let ids: Vec<u32> = ids.collect::<Result<_, _>>()?;
        let id = |label: u32| ids.get(label as usize - 1).copied().unwrap_or(label);
        let prefixes = match numbered.prefixes {
            Prefixes::V4(prefixes) => Prefixes::V4(relabelled(prefixes, id)),
            Prefixes::V6(prefixes) => Prefixes::V6(relabelled(prefixes, id)),
        };
        Ok(Table::settled(kind, prefixes, known.into_names()))
    }
}

fn relabelled<A>(mut prefixes: Vec<Prefix<A>>, id: impl Fn(u32) -> u32) -> Vec<Prefix<A>> {
    prefixes.iter_mut().for_each(|prefix| prefix.label = id(prefix.label));
    prefixes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn names(labels: &[&str]) -> Vec<Box<str>> {
        labels.iter().map(|&label| label.into()).collect()
    }

    fn read_again(table: &Table) -> Table {
        let of = (table.family(), table.kind());
        Table::from_list("t", table.to_list().as_bytes(), of, table.labels()).expect("it was written by Weir")
    }

    #[test]
    fn labels_keep_their_ids_also_if_no_list_could_contain_them() {
        let odd = ["192.0.2.1", "a,b", "a \"b\"", "line\nfeed", "7", " blank"];
        let mut entries = Entries::with_labels(Family::Ipv6, Kind::Labels, &names(&["nobody has it"]));
        for (index, label) in odd.iter().enumerate() {
            entries.insert_text(&format!("2001:db8:{index:x}::/48"), Some(label)).unwrap();
        }
        let table = entries.settle();
        assert_eq!(read_again(&table), table);
        assert_eq!(read_again(&table).labels().len(), 7);
    }

    #[test]
    fn what_was_given_twice_is_written_once() {
        let mut entries = Entries::new(Family::Ipv4, Kind::Labels);
        for (element, label) in [("10.0.0.0/8", "a"), ("10.0.0.0/8", "b"), ("10.0.0.0-10.0.0.9", "c")] {
            entries.insert_text(element, Some(label)).unwrap();
        }
        let table = entries.settle();
        assert_eq!(table.facts().relabelled, 1);
        assert_eq!(read_again(&table), table);
        assert_eq!(table.to_list(), "# prefix,label number\n10.0.0.0/8,2\n10.0.0.0/29,3\n10.0.0.8/31,3\n");
    }

    #[test]
    fn lists_that_weir_does_not_write() {
        let refused = |kind: Kind, list: &str, labels: &[&str]| {
            let read = Table::from_list("t", list.as_bytes(), (Family::Ipv4, kind), &names(labels));
            read.unwrap_err().to_string()
        };
        let ab = ["a", "b"];
        assert_eq!(refused(Kind::Set, "10.0.0.0/8\n10.0.0.0/33\n", &[]), "t:2: `10.0.0.0/33`: prefix length above 32");
        assert_eq!(refused(Kind::Labels, "10.0.0.0/8\n", &ab), "t:1: `10.0.0.0/8`: label missing");
        for number in ["0", "3", "-1", "a", "99999999999999999999"] {
            let problem = format!("t: there is no label {number}; the labels have the numbers 1 to 2");
            assert_eq!(refused(Kind::Labels, &format!("10.0.0.0/8,{number}\n"), &ab), problem);
        }
        let empty = "t: there is no label ``; the labels have the numbers 1 to 2";
        assert_eq!(refused(Kind::Labels, "10.0.0.0/8,1\n10.1.0.0/16,\n", &ab), empty);
        assert!(refused(Kind::Set, "10.0.0.1/8\n", &[]).contains("bits are set behind the length"));
        assert_eq!(refused(Kind::Labels, "10.0.0.0/8,1\n", &["a", "a"]), "t: its 2 labels are not those of a map");
        assert_eq!(refused(Kind::Set, "10.0.0.0/8\n", &["a"]), "t: its 1 labels are not those of a map");
    }

    proptest! {
        #[test]
        fn lists_are_read_as_they_were_written(given in prop::collection::vec((any::<u32>(), 0..=32u8, 0..5usize), 0..60), labelled in any::<bool>()) {
            let kind = if labelled { Kind::Labels } else { Kind::Set };
            let mut entries = Entries::new(Family::Ipv4, kind);
            for (addr, len, label) in given {
                entries.insert_prefix(std::net::Ipv4Addr::from(addr).into(), len, Some(["v", "w", "x", "y", "z"][label])).unwrap();
            }
            let table = entries.settle();
            prop_assert_eq!(read_again(&table), table);
        }
    }
}
