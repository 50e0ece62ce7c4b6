//! Chooses how each table is laid out, from what it holds, by a model of what a lookup costs in each layout that can hold it.
//!
//! A lookup costs the instructions of its layout and the cache lines that it waits for. The constants are those of `weir bench tables`
//! with bursts of random and botnet keys; they need to put layouts in the right order, not to foretell cycles. Where two cost the same,
//! the smaller wins: what one table leaves of the cache, the others have.

use std::fmt;

use crate::checked::{Table, TableKind};
use weir_abi::{Family, Layout};

/// What a table is expected to cost in a layout.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The layout.
    pub layout: Layout,
    /// TSC cycles a lookup in a burst.
    pub cycles: f64,
    /// Bytes of the image.
    pub bytes: usize,
}

/// A layout, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// The layout.
    pub layout: Layout,
    /// Whether the policy insists on it.
    pub forced: bool,
    /// Every layout that could hold the table, the cheapest first.
    pub estimates: Vec<Estimate>,
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.forced {
            write!(f, "the policy says so; ")?;
        }
        write!(f, "expected")?;
        for (index, estimate) in self.estimates.iter().enumerate() {
            let separator = if index == 0 { "" } else { "," };
            let (name, mib) = (estimate.layout.name(), estimate.bytes as f64 / f64::from(1 << 20));
            write!(f, "{separator} {name} {:.0} cycles {mib:.2} MiB", estimate.cycles)?;
        }
        Ok(())
    }
}

/// The layout that the policy insists on, or the cheapest.
pub fn choose(table: &Table) -> Choice {
    let mut estimates: Vec<Estimate> = Layout::ALL.into_iter().filter_map(|layout| estimate(table, layout)).collect();
    let rank = |estimate: &Estimate| (estimate.cycles.round() as usize, estimate.bytes);
    estimates.sort_by_key(rank);
    let cheapest = estimates.first().expect("each family has a layout that holds everything").layout;
    Choice { layout: table.layout.unwrap_or(cheapest), forced: table.layout.is_some(), estimates }
}

/// What a table would cost in a layout; `None` if it does not fit.
fn estimate(table: &Table, layout: Layout) -> Option<Estimate> {
    let entries = table.facts.entries;
    let labels = table.facts.labels.len();
    // A set's prefixes mostly stand alone: a run for each and one for the gap behind it. Labelled ones mostly have neighbours.
    let runs = if table.kind == TableKind::Set { 2 * entries + 1 } else { entries + 1 };
    let (instructions, lines, bytes) = match (layout, table.family) {
        (Layout::Dxr16x4, Family::Ipv4) => (10.0, 4.0, (128 << 10) + runs * 5),
        (Layout::ExactSet, Family::Ipv4) if table.kind == TableKind::Set && only_addresses(table) => {
            (2.5, 1.0, exact_set_bytes(entries))
        }
        (Layout::RankLeaf, Family::Ipv4) => (6.0, 3.0, (256 << 10) + runs * (3 + value_bytes(labels))),
        (Layout::Range6, Family::Ipv6) => (40.0, 6.0, (1 << 20) + runs * 24),
        (Layout::RankLeaf6, Family::Ipv6) => {
            let steps = rank_steps(&table.facts.by_length);
            (8.0 * steps, 3.0 * steps, (256 << 10) + (runs as f64 * steps) as usize * 8)
        }
        _ => return None,
    };
    Some(Estimate { layout, cycles: instructions + lines * line_cycles(bytes), bytes })
}

/// What waiting for a cache line costs when a burst waits for many: cached close by, further away, or nowhere.
fn line_cycles(bytes: usize) -> f64 {
    match bytes {
        0..0x10_0000 => 0.4,
        0x10_0000..0x40_0000 => 0.8,
        0x40_0000..0x200_0000 => 2.5,
        _ => 8.0,
    }
}

/// Buckets of 65,536 times 4, 8, 16 or 32 slots of two bytes, filled to a third at most.
fn exact_set_bytes(entries: usize) -> usize {
    (entries * 6).next_power_of_two().clamp(512 << 10, 4 << 20).max(entries * 3)
}

fn value_bytes(labels: usize) -> usize {
    match labels {
        0..0x100 => 1,
        0x100..0x1_0000 => 2,
        _ => 3,
    }
}

/// Steps of 16 bits that the mean prefix takes after the first.
fn rank_steps(by_length: &[usize]) -> f64 {
    let total: usize = by_length.iter().sum();
    let steps = |bits: usize| bits.div_ceil(16).clamp(2, 8) - 1;
    let steps: usize = by_length.iter().enumerate().map(|(bits, &count)| steps(bits) * count).sum();
    if total == 0 { 1.0 } else { steps as f64 / total as f64 }
}

fn only_addresses(table: &Table) -> bool {
    let addresses = table.facts.by_length.get(32).copied().unwrap_or(0);
    table.facts.entries > 0 && table.facts.entries == addresses
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::TableFacts;
    use crate::source::{FileId, Span};

    fn table(family: Family, kind: TableKind, lengths: &[(usize, usize)], labels: usize) -> Table {
        let mut by_length = vec![0; usize::from(family.bits()) + 1];
        lengths.iter().for_each(|&(length, count)| by_length[length] = count);
        let labels = (0..labels).map(|index| index.to_string()).collect();
        let facts = TableFacts { entries: by_length.iter().sum(), by_length, labels };
        Table {
            name: "t".to_owned(),
            span: Span { file: FileId(0), start: 0, end: 0 },
            family,
            kind,
            dynamic: None,
            layout: None,
            facts,
        }
    }

    fn layout(family: Family, kind: TableKind, lengths: &[(usize, usize)], labels: usize) -> Layout {
        choose(&table(family, kind, lengths, labels)).layout
    }

    #[test]
    fn addresses_are_an_exact_set_and_prefixes_rank_leaves() {
        for count in [1, 1000, 178_000, 1_100_000] {
            assert_eq!(layout(Family::Ipv4, TableKind::Set, &[(32, count)], 0), Layout::ExactSet, "{count}");
        }
        assert_eq!(layout(Family::Ipv4, TableKind::Set, &[(24, 9), (32, 1000)], 0), Layout::RankLeaf);
        assert_eq!(layout(Family::Ipv4, TableKind::Labels, &[(24, 300_000)], 250), Layout::RankLeaf);
        assert_eq!(
            layout(Family::Ipv4, TableKind::Set, &[], 0),
            Layout::RankLeaf,
            "an empty table may yet get prefixes"
        );
    }

    #[test]
    fn short_ipv6_prefixes_are_rank_leaves_and_many_hosts_are_not() {
        assert_eq!(layout(Family::Ipv6, TableKind::Labels, &[(32, 60_000), (48, 90_000)], 250), Layout::RankLeaf6);
        assert_eq!(layout(Family::Ipv6, TableKind::Set, &[(128, 2_000_000)], 0), Layout::Range6);
    }

    #[test]
    fn the_policy_has_the_last_word_and_is_told_the_cost() {
        let mut table = table(Family::Ipv4, TableKind::Set, &[(32, 178_000)], 0);
        table.layout = Some(Layout::Dxr16x4);
        let choice = choose(&table);
        assert_eq!((choice.layout, choice.forced), (Layout::Dxr16x4, true));
        assert!(
            choice.to_string().starts_with("the policy says so; expected exact-set 3 cycles 2.00 MiB, rank-leaf "),
            "{choice}"
        );
    }
}
