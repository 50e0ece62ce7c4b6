//! What a lookup costs in each layout that can hold a table: the instructions of its layout and the cache lines that it waits for.
//!
//! Instructions are those of `weir bench tables` with bursts of keys from tables that the nearest caches hold; what a line costs is the
//! machine's own ([`CostModel`]). The estimates need to put layouts in the right order, not to foretell cycles.

use crate::catalog::TableFacts;
use crate::checked::{Table, TableKind};
use weir_abi::{Family, Layout};

/// Sets in one image at most.
pub const FUSED_MAX: usize = 4;

/// What an image is to hold.
#[derive(Clone, Copy)]
pub(super) struct Holding<'t> {
    pub(super) family: Family,
    pub(super) kind: TableKind,
    pub(super) entries: usize,
    pub(super) labels: usize,
    pub(super) by_length: &'t [usize],
    /// Whether labels count up from prefix to prefix, as the buckets of a list of limits do.
    pub(super) counts: bool,
}

impl<'t> From<&'t Table> for Holding<'t> {
    fn from(table: &'t Table) -> Self {
        let TableFacts { entries, by_length, labels } = &table.facts;
        Holding {
            family: table.family,
            kind: table.kind,
            entries: *entries,
            labels: labels.len(),
            by_length,
            counts: false,
        }
    }
}

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

impl Estimate {
    /// What it is sorted by: cycles that differ by less than half of one do not differ, and then the smaller wins: what one table leaves
    /// of the cache, the others have.
    pub fn rank(&self) -> (usize, usize) {
        (self.cycles.round() as usize, self.bytes)
    }
}

/// What a machine takes for a cache line, for one of many that are asked for at once.
#[derive(Clone, Debug, PartialEq)]
pub struct CostModel {
    /// Bytes that lines are picked from at random, and TSC cycles a line; rising, not empty.
    lines: Vec<(usize, f64)>,
}

impl Default for CostModel {
    /// A server core of 2023 with 2 MiB of second-level cache, huge pages.
    fn default() -> Self {
        let point = |kib: usize, cycles: f64| (kib << 10, cycles);
        CostModel {
            lines: vec![
                point(32, 0.3),
                point(512, 0.4),
                point(1 << 10, 0.5),
                point(2 << 10, 2.0),
                point(4 << 10, 3.2),
                point(8 << 10, 4.1),
                point(16 << 10, 5.5),
                point(32 << 10, 8.8),
                point(64 << 10, 15.0),
                point(128 << 10, 19.0),
            ],
        }
    }
}

impl CostModel {
    /// A model of measured points: bytes that lines were picked from at random, and TSC cycles a line. `None` if there are none.
    pub fn measured(mut points: Vec<(usize, f64)>) -> Option<Self> {
        points.sort_by_key(|&(bytes, _)| bytes);
        (!points.is_empty()).then_some(CostModel { lines: points })
    }

    /// The points, by bytes.
    pub fn lines(&self) -> &[(usize, f64)] {
        &self.lines
    }

    /// Cycles for a line of so many bytes, between the points next to it in proportion to the logarithm of the bytes.
    fn line_cycles(&self, bytes: usize) -> f64 {
        let above = self.lines.partition_point(|&(size, _)| size < bytes);
        match (above.checked_sub(1).map(|below| self.lines[below]), self.lines.get(above)) {
            (Some((small, fast)), Some(&(large, slow))) => {
                let share = (bytes as f64 / small as f64).log2() / (large as f64 / small as f64).log2();
                fast + (slow - fast) * share
            }
            (None, Some(&(_, cycles))) | (Some((_, cycles)), None) => cycles,
            (None, None) => unreachable!("a model has points"),
        }
    }

    /// What a table or list would cost in a layout; `None` if it does not fit.
    pub(super) fn estimate<'t>(&self, of: impl Into<Holding<'t>>, layout: Layout) -> Option<Estimate> {
        let table: Holding = of.into();
        let Holding { entries, labels, .. } = table;
        // A set's prefixes mostly stand alone: a run for each and one for the gap behind it. Labelled ones mostly have neighbours.
        let runs = if table.kind == TableKind::Set { 2 * entries + 1 } else { entries + 1 };
        let (instructions, lines, bytes) = match (layout, table.family) {
            (Layout::Dxr16x4, Family::Ipv4) => (10.0, 4.0, (128 << 10) + runs * 5),
            (Layout::ExactSet, Family::Ipv4) if is_addresses(table) => (2.5, 1.0, fused_bytes(&[entries])),
            (Layout::RankLeaf, Family::Ipv4) => (3.0, 3.0, (256 << 10) + runs * (3 + value_bytes(labels))),
            // Rank leaves where that is smaller; three bytes a run are two for its start and a share of an entry.
            (Layout::CountedLeaf, Family::Ipv4) if table.counts => {
                let leaves = (256 << 10) + runs * (3 + value_bytes(labels));
                (3.4, 3.0, leaves.min((512 << 10) + runs * 3))
            }
            (Layout::Range6, Family::Ipv6) => (40.0, 6.0, (1 << 20) + runs * 24),
            (Layout::RankLeaf6, Family::Ipv6) => {
                let steps = rank_steps(table.by_length);
                (5.0 * steps, 3.0 * steps, (256 << 10) + (runs as f64 * steps) as usize * 8)
            }
            (Layout::ExactSet6, Family::Ipv6) => {
                let (nets, hosts) = nets_and_hosts(table)?;
                let kinds = f64::from(u8::from(nets > 0) + u8::from(hosts > 0));
                (6.0 + 3.0 * kinds, kinds, buckets6_bytes(nets, hosts))
            }
            _ => return None,
        };
        Some(Estimate { layout, cycles: instructions + lines * self.line_cycles(bytes), bytes })
    }

    /// What sets of so many addresses would cost together.
    pub(super) fn fused(&self, sizes: &[usize]) -> Estimate {
        let bytes = fused_bytes(sizes);
        Estimate { layout: Layout::ExactSets, cycles: 3.2 + self.line_cycles(bytes), bytes }
    }
}

/// Bytes of buckets in which sets of random addresses have room: a multiple of four slots of two bytes for each, a power of two together,
/// at most 32, in as few of the smallest buckets as hold the mean and three standard deviations; two to 2.3 of sets that share a bucket, more of
/// which may overflow.
fn fused_bytes(sizes: &[usize]) -> usize {
    const SLOTS_MAX: usize = 32;
    let deviations = match sizes.len() {
        1 => 3.0,
        2 => 2.0,
        _ => 2.3,
    };
    let slots = |size: usize, bits: u32| {
        let mean = size as f64 / f64::from(1u32 << bits);
        ((mean + deviations * mean.sqrt()) / 4.0).ceil().max(1.0) as usize * 4
    };
    let bytes = |bits: u32| {
        let slots = sizes.iter().map(|&size| slots(size, bits)).sum::<usize>().next_power_of_two();
        (slots <= SLOTS_MAX).then_some((2 * slots) << bits)
    };
    (16..=20).find_map(bytes).unwrap_or_else(|| 8 * sizes.iter().sum::<usize>())
}

/// Bytes of the buckets of an exact set of IPv6: a cache line for three networks, and one for each host.
fn buckets6_bytes(nets: usize, hosts: usize) -> usize {
    64 * (nets.div_ceil(3) + hosts)
}

/// Whether the table is a set of IPv4 addresses, and not empty.
pub(super) fn is_addresses<'t>(of: impl Into<Holding<'t>>) -> bool {
    let table: Holding = of.into();
    let addresses = table.by_length.get(32).copied().unwrap_or(0);
    table.family == Family::Ipv4 && table.kind == TableKind::Set && table.entries > 0 && table.entries == addresses
}

/// How many /64s and /128s a set has; `None` if it is no set of these, or empty.
fn nets_and_hosts(table: Holding) -> Option<(usize, usize)> {
    let of_length = |length: usize| table.by_length.get(length).copied().unwrap_or(0);
    let (nets, hosts) = (of_length(64), of_length(128));
    let fits = table.kind == TableKind::Set && table.entries > 0 && table.entries == nets + hosts;
    fits.then_some((nets, hosts))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_costs_what_its_neighbours_do() {
        let model = CostModel::measured(vec![(4 << 20, 3.0), (1 << 20, 1.0)]).expect("there are points");
        let cycles = [1, 1 << 20, 2 << 20, 4 << 20, 1 << 30].map(|bytes| model.line_cycles(bytes));
        assert_eq!(cycles, [1.0, 1.0, 2.0, 3.0, 3.0]);
        assert_eq!(CostModel::measured(vec![]), None);
    }

    #[test]
    fn fused_sets_take_what_the_builder_makes() {
        // What `exact_sets()` of random addresses comes to.
        let mib = |sizes: &[usize]| fused_bytes(sizes) as f64 / f64::from(1 << 20);
        assert_eq!((mib(&[100_000, 178_000]), mib(&[100_000; 4])), (2.0, 4.0));
        assert_eq!((mib(&[100_000, 1_100_000]), mib(&[100_000]), mib(&[1_100_000])), (4.0, 1.0, 4.0));
        assert_eq!(mib(&[1]), 0.5);
    }

    #[test]
    fn sets_of_ipv6_take_what_the_builder_makes() {
        // Without the overflow, which is some hundredths.
        assert_eq!((buckets6_bytes(100_000, 0), buckets6_bytes(0, 100_000)), (2_133_376, 6_400_000));
    }
}
