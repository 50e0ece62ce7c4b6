//! What a lookup costs in an image: the instructions of its layout and the cache lines that it waits for.
//!
//! Which words and lines a lookup reads, the image's facts say; what a line costs is the machine's own ([`CostModel`]); what is left is a layout's
//! own, measured by `weir bench layout-choice`. The estimates need to put layouts in the right order, not to foretell cycles.
//!
//! Most lookups take a burst of keys through one step after the other, and what the keys wait for, they wait for together: a line costs what it costs
//! among many. A search through sorted ranges is made for one key at a time, each probe where the one before sent it, and is of another length
//! for the next key, so that the processor mispredicts its end and nothing overlaps: there a line costs what it costs alone. Searches of D16X4R are
//! short, and the next key's first lines are on their way meanwhile.

use crate::catalog::ImageFacts;
use weir_abi::Layout;

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

/// What lookups of a layout cost beside what the machine takes for lines, in cycles.
struct Way {
    /// A lookup.
    start: f64,
    /// Each word that it reads.
    word: f64,
    /// How many times what a line costs among many.
    line: f64,
}

/// Lines that are on their way to a core at once. A line that is waited for alone costs as many times more than one among many.
const LINES_AT_ONCE: f64 = 10.0;
/// The same where half of a lookup's lines are.
const LINES_HALF_AT_ONCE: f64 = 5.0;

impl Way {
    /// Of a layout.
    fn of(layout: Layout) -> Self {
        let staged = |start: f64, word: f64| Way { start, word, line: 1.0 };
        match layout {
            Layout::ExactSet => staged(2.5, 0.0),
            Layout::ExactSets => staged(3.2, 0.0),
            Layout::ExactSet6 => staged(6.0, 3.0),
            Layout::RankLeaf => staged(0.0, 0.8),
            Layout::CountedLeaf => staged(0.4, 0.8),
            Layout::RankLeaf6 => staged(0.0, 5.0),
            Layout::Dxr16x4 => Way { start: 2.0, word: 2.0, line: LINES_HALF_AT_ONCE },
            Layout::Range6 => Way { start: 4.0, word: 8.0, line: LINES_AT_ONCE },
        }
    }
}

impl CostModel {
    /// A model of measured points: bytes that lines were picked from at random, and TSC cycles a line. `None` if there are none.
    ///
    /// A line of less memory never costs more than one of more memory: where a point says so, somebody else was busy while it was measured.
    pub fn measured(mut points: Vec<(usize, f64)>) -> Option<Self> {
        points.sort_by_key(|&(bytes, _)| bytes);
        let mut least = f64::INFINITY;
        for (_, cycles) in points.iter_mut().rev() {
            least = least.min(*cycles);
            *cycles = least;
        }
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

    /// What an image would cost.
    pub(super) fn estimate(&self, image: ImageFacts) -> Estimate {
        let ImageFacts { layout, bytes, words, lines } = image;
        let way = Way::of(layout);
        let cycles = way.start + words * way.word + lines * way.line * self.line_cycles(bytes);
        Estimate { layout, cycles, bytes }
    }
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
        let disturbed = CostModel::measured(vec![(1, 1.0), (2, 35.0), (4, 16.0), (8, 16.5)]).expect("there are points");
        assert_eq!(disturbed.lines(), [(1, 1.0), (2, 16.0), (4, 16.0), (8, 16.5)]);
    }

    #[test]
    fn a_search_that_waits_for_each_line_is_not_cheap() {
        // The registries' IPv6 countries, and what a busy server measured of itself.
        let lines =
            [(32 << 10, 0.3), (512 << 10, 0.6), (2 << 20, 2.4), (4 << 20, 3.1), (8 << 20, 15.0), (128 << 20, 25.0)];
        for model in [CostModel::default(), CostModel::measured(lines.to_vec()).expect("there are points")] {
            let cycles =
                |layout, bytes, words, lines| model.estimate(ImageFacts { layout, bytes, words, lines }).cycles;
            let range6 = cycles(Layout::Range6, 6_062_300, 14.0, 9.0);
            let rank_leaf6 = cycles(Layout::RankLeaf6, 2_001_027, 9.0, 9.0);
            assert!(range6 > 4.0 * rank_leaf6, "{range6} and {rank_leaf6}");
            // A key that the root answers takes no search.
            assert!(cycles(Layout::Range6, 262_280, 1.0, 1.0) < cycles(Layout::RankLeaf6, 262_371, 4.0, 4.0));
        }
    }
}
